"""Imports point down only: the layers of the library, checked on the source text.

Imports inside functions count. Imports that only a type checker sees do not: nothing is loaded for them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail

ROOT = Path(dovetail.__file__).parent
FAMILIES = ("interval", "semistream", "online", "xquery")

# From the bottom up. A part may import parts of lower rank and itself; parts of one rank do not know each other.
RANKS = {
    "errors": 0,
    "version": 0,
    "kernels": 1,
    "engine": 2,
    **dict.fromkeys((*FAMILIES, "workloads"), 3),
    "spark": 4,
    "sql": 5,
    "pipeline": 5,
    "calibrate": 5,
    "cli": 6,
    "ui": 6,
}
TOP = max(RANKS.values())
# The commands show the live page; the reverse would be a cycle.
ALSO_ALLOWED = {("cli", "ui"), ("pipeline", "sql")}
# What a part may import from elsewhere, if that is restricted.
THIRD_PARTY = {"kernels": {"numpy", "numba"}}
BANNED = {"engine": {"pyspark"}, "workloads": {"pyspark"}, **{family: {"pyspark"} for family in FAMILIES}}


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    """The layer a file belongs to; "" for the package's own `__init__`."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def is_spark_face(path: Path) -> bool:
    """A file of a family or of the workloads that is allowed to know Spark, and with it the layer `spark`."""
    if part_of(path) == "workloads":
        return path.relative_to(ROOT) == Path("workloads/source.py")
    return part_of(path) in FAMILIES and path.name.startswith(("frame", "spark_"))


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Every dotted name that code under `tree` imports when it runs, relative ones made absolute."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: -node.level + 1 or None]) + "." if node.level else ""
            module = f"{base}{node.module or ''}".rstrip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif is_for_types_only(node):
            assert isinstance(node, ast.If)
            for other in node.orelse:
                yield from imported(other, package)
        else:
            yield from imported(node, package)


def complaints(path: Path, text: str) -> list[str]:
    part = part_of(path)
    package = ".".join(["dovetail", *path.relative_to(ROOT).parts[:-1]])
    found = []
    for name in imported(ast.parse(text), package):
        top, _, rest = name.partition(".")
        if top == "dovetail":
            found += _inside(path, part, rest)
        elif top == "bench":
            found.append("bench is not installed; the package must not import it")
        elif top in BANNED.get(part, set()) and not is_spark_face(path):
            found.append(f"{part} must not import {top}")
        elif part in THIRD_PARTY and top not in THIRD_PARTY[part] and top not in _standard_library():
            found.append(f"{part} may import {sorted(THIRD_PARTY[part])} only, not {top}")
    return found


def _inside(path: Path, part: str, name: str) -> list[str]:
    other = name.partition(".")[0]
    if other in {part, "__version__"} or (part, other) in ALSO_ALLOWED or part == "":
        return []
    if other not in RANKS:  # the package itself, or a name of its public face, which only the top may use
        return [] if RANKS[part] == TOP else [f"{part} imports {other or 'dovetail'!r}; import from the module instead"]
    # A Spark face stands on the session layer, which therefore must not look back at it.
    if other == "spark" and is_spark_face(path):
        return []
    if part == "spark" and is_spark_face(ROOT / Path(*name.split(".")[:2]).with_suffix(".py")):
        return [f"spark must not import dovetail.{name}, which imports spark"]
    return [] if RANKS[other] < RANKS[part] else [f"{part} must not import dovetail.{other}"]


def _standard_library() -> frozenset[str]:
    import sys

    return sys.stdlib_module_names


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    assert part_of(path) in {*RANKS, ""}, f"{path.name} belongs to no layer; give it a rank in {Path(__file__).name}"
    assert complaints(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels/sweep.py", "import pyarrow"),
        ("kernels/sweep.py", "def f():\n    from pyspark import TaskContext"),
        ("kernels/sweep.py", "from dovetail.engine import memory"),
        ("engine/spill.py", "try:\n    import pyspark.sql\nexcept ImportError:\n    pass"),
        ("engine/spill.py", "from dovetail.interval.relation import Relation"),
        ("engine/spill.py", "from ..spark import java"),
        ("interval/operator.py", "from pyspark.sql import DataFrame"),
        ("interval/operator.py", "from dovetail.spark.session import session"),
        ("interval/frame.py", "from dovetail.online.diner import Diner"),
        ("workloads/zipf.py", "import pyspark"),
        ("spark/java.py", "from dovetail.interval import frame"),
        ("spark/java.py", "from dovetail import session"),
        ("sql.py", "import dovetail.cli.main"),
        ("calibrate/measure.py", "from dovetail.cli import main"),
        ("cli/main.py", "from bench import harness"),
    ],
)
def test_an_import_that_points_up_is_found(file: str, text: str) -> None:
    assert len(complaints(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels/sweep.py", "import math\nimport numpy as np\nfrom dovetail.errors import PlanError"),
        ("kernels/sweep.py", "from .arrays import I64"),
        ("engine/spill.py", "import pyarrow as pa\nfrom dovetail.kernels.arrays import I64"),
        ("interval/frame.py", "from pyspark.sql import DataFrame\nfrom dovetail.spark.metrics import MetricsSink"),
        ("interval/spark_native.py", "import pyspark"),
        ("interval/cost/model.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("workloads/source.py", "from pyspark.sql.datasource import DataSource"),
        ("cli/main.py", "from dovetail.calibrate import measure\nfrom dovetail import __version__"),
    ],
)
def test_an_import_that_points_down_is_not_held_against_anyone(file: str, text: str) -> None:
    assert complaints(ROOT / file, text) == []
