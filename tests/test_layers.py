"""Imports point down only: the layers of the library, checked on the source text.

Imports inside functions count. Imports that only a type checker sees do not: nothing is loaded for them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dovetail

ROOT = Path(dovetail.__file__).parent
FAMILIES = (
    "joins.asof", "joins.interval", "joins.nearest", "joins.semistream", "joins.sets", "joins.online", "xml"
)  # fmt: skip

# From the bottom up. A part may import parts of lower rank and itself; parts of one rank do not know each other.
RANKS = {
    "errors": 0,
    "version": 0,
    "functions": 0,
    "engine.processor": -1,
    "engine.cache": 0,
    "engine.kernels": 1,
    "engine": 2,
    "request": 3,
    **{f"{family}.kernels": 2 for family in FAMILIES},
    **dict.fromkeys((*FAMILIES, "workloads"), 4),
    "spark": 5,
    "rewrite": 6,
    "pipeline": 6,
    "calibrate": 6,
    "cli": 7,
    "page": 7,
}
TOP = max(RANKS.values())
# The commands show the live page. Nearest and online joins compare intervals as interval joins do, and interval joins
# join sets of intervals. The reverse would be a cycle.
ALSO_ALLOWED = {
    ("cli", "page"),
    ("pipeline", "rewrite"),
    ("joins.nearest", "joins.interval"),
    ("joins.sets", "joins.interval"),
    ("joins.online", "joins.interval"),
}
FACES = ("api", "plan")
"""Parts of a family that know Spark."""
PLANS_WITH = ("sql", "errors")
"""What of PySpark these parts may import. A task asks `dovetail.spark.task` where it runs."""
BANNED = {
    "engine": {"pyspark"},
    "request": {"pyspark"},
    "workloads": {"pyspark"},
    **{family: {"pyspark"} for family in FAMILIES},
}
KERNELS_MAY_IMPORT = {"numpy", "numba", *sys.stdlib_module_names}


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(name: str) -> str:
    """The part that a module, named below the package, belongs to; "" for the package itself."""
    words = name.split(".")
    starts = [".".join(words[:n]) for n in range(len(words), 0, -1)]
    return next((start for start in starts if start in RANKS), words[0])


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def is_spark_face(name: str) -> bool:
    """A module of a family or of the workloads that is allowed to know Spark, and with it the layer `spark`."""
    part = part_of(name)
    rest = name.removeprefix(f"{part}.").split(".")[0]
    if part == "workloads":
        return rest == "source"
    return part in FAMILIES and rest in FACES


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
    name = name_of(path)
    part = part_of(name) if name else ""
    package = ".".join(["dovetail", *path.relative_to(ROOT).parts[:-1]])
    found = []
    for other in imported(ast.parse(text), package):
        top, _, rest = other.partition(".")
        if top == "dovetail":
            found += _inside(name, part, rest)
        elif top == "bench":
            found.append("bench is not installed; the package must not import it")
        elif top in BANNED.get(part, set()) and not is_spark_face(name):
            found.append(f"{part} must not import {top}")
        elif top == "pyspark" and is_spark_face(name) and not rest.startswith(PLANS_WITH):
            found.append(f"{name} imports {other}: plans are of pyspark.sql, tasks and contexts of dovetail.spark")
        elif part.endswith("kernels") and top not in KERNELS_MAY_IMPORT:
            found.append(f"{part} may import numpy and numba only, not {top}")
    return found


def _inside(name: str, part: str, imported_name: str) -> list[str]:
    other = part_of(imported_name)
    if part == "" or other in {part, "__version__"} or (part, other) in ALSO_ALLOWED:
        return []
    if other not in RANKS:  # the package itself, or a name of its public face, which only the top may use
        return [] if RANKS[part] == TOP else [f"{part} imports {other or 'dovetail'!r}; import from the module instead"]
    if part.endswith("kernels") and other == "engine":
        return [f"{part} must not import dovetail.{imported_name}: kernels know arrays only"]
    if name.startswith("spark.hosts") and other in FAMILIES:
        return [f"{name} imports dovetail.{imported_name}: hosts know no family"]
    # A Spark face stands on the session layer, which therefore must not look back at it.
    if other == "spark" and is_spark_face(name):
        return []
    if part == "spark" and is_spark_face(imported_name):
        return [f"spark must not import dovetail.{imported_name}, which imports spark"]
    return [] if RANKS[other] < RANKS[part] else [f"{part} must not import dovetail.{other}"]


def families_named(text: str) -> list[str]:
    """Modules of families that code names in a string, to import them later; docstrings do not count."""
    tree = ast.parse(text)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
    names = re.compile(r"\b(" + "|".join(FAMILIES).replace(".", r"\.") + r")\.\w")
    return [each for each in texts if isinstance(each, str) and names.search(each)]


@pytest.mark.parametrize("path", [path for path in sources() if part_of(name_of(path)).startswith(("engine", "spark"))])
def test_engine_and_hosts_name_no_family(path: Path) -> None:
    assert families_named(path.read_text(encoding="utf-8")) == []


def test_a_family_that_is_named_is_found() -> None:
    named = '"""As joins.online.api."""\nLOADED = ("dovetail.joins.online.api",)\nFIRST = ("xml.kernels",)'
    assert families_named(named) == ["dovetail.joins.online.api", "xml.kernels"]


HOSTED = {
    "mapInArrow", "mapInPandas", "map_in_arrow", "applyInArrow", "applyInPandas", "transformWithState",
    "transformWithStateInPandas", "repartition", "repartitionById", "repartitionByRange", "broadcast",
}  # fmt: skip
# `calibrate` measures what Spark's own functions cost, and `doctor` tries whether they run.
MAY_CALL_SPARK = {"spark", "calibrate", "cli"}


def hosted_calls(text: str) -> list[str]:
    """What code asks of Spark that hosts should: functions over batches, exchanges and broadcasts."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            # F.coalesce takes columns, DataFrame.coalesce a number of partitions.
            in_one = name == "coalesce" and any(isinstance(each, ast.Constant) for each in node.args)
            if name in HOSTED or in_one:
                found.append(f"line {node.lineno}: {name} is called; use a function of dovetail.spark.hosts")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_hosts_move_rows_and_run_code_on_workers(path: Path) -> None:
    if part_of(name_of(path)) not in MAY_CALL_SPARK:
        assert hosted_calls(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "frame.mapInArrow(f, schema)",
        "from dovetail.spark.frames import map_in_arrow\nmap_in_arrow(frame, f, schema)",
        "frame.where('a').repartition(4, 'k')",
        "frame.repartitionById(2, F.col('n'))",
        "left.join(F.broadcast(right), 'k')",
        "spark.sparkContext.broadcast(index)",
        "frame.coalesce(1)",
    ],
)
def test_code_that_goes_past_the_hosts_is_found(text: str) -> None:
    assert len(hosted_calls(text)) == 1
    assert hosted_calls("F.coalesce(a, F.lit(0)); mapped_frame(frame, f, fields)") == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(name_of(path))
    assert part in {*RANKS, "", "joins"}, f"{path.name} has no layer; give it a rank in {Path(__file__).name}"
    if part == "joins":
        assert path.read_text(encoding="utf-8").count("\n") == 1, "joins/ holds families and nothing else"
    else:
        assert complaints(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("engine/kernels/gather.py", "import pyarrow"),
        ("joins/interval/kernels/sweep.py", "def f():\n    from pyspark import TaskContext"),
        ("joins/interval/kernels/sweep.py", "from dovetail.engine.memory import MemoryBudget"),
        ("joins/interval/kernels/sweep.py", "from dovetail.joins.online.kernels import rows"),
        ("engine/storage/spill.py", "try:\n    import pyspark.sql\nexcept ImportError:\n    pass"),
        ("engine/storage/spill.py", "from dovetail.joins.interval.relation import Relation"),
        ("engine/storage/spill.py", "from ...spark import java"),
        ("engine/memory.py", "from dovetail.request import parse_size"),
        ("request/columns.py", "from pyspark.sql import Column"),
        ("request/choices.py", "from dovetail.joins.interval.relation import Relation"),
        ("joins/interval/operator.py", "from pyspark.sql import DataFrame"),
        ("joins/interval/operator.py", "from dovetail.spark.session import session"),
        ("joins/interval/api.py", "from dovetail.joins.online.diner import Diner"),
        ("joins/interval/plan/write.py", "from pyspark import TaskContext"),
        ("joins/semistream/plan/build.py", "def f():\n    import pyspark.accumulators"),
        ("workloads/zipf.py", "import pyspark"),
        ("spark/java.py", "from dovetail.joins.interval import api"),
        ("spark/java.py", "from dovetail import session"),
        ("spark/hosts/resident/service.py", "from dovetail.joins.online.operators.base import OnlineOperator"),
        ("rewrite/plan.py", "import dovetail.cli.main"),
        ("calibrate/measure.py", "from dovetail.cli import main"),
        ("cli/main.py", "from bench import harness"),
    ],
)
def test_an_import_that_points_up_is_found(file: str, text: str) -> None:
    assert len(complaints(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("engine/kernels/gather.py", "import math\nimport numpy as np\nfrom dovetail.errors import PlanError"),
        ("engine/kernels/gather.py", "from .arrays import I64"),
        ("joins/interval/kernels/sweep.py", "from dovetail.engine.kernels.arrays import I64"),
        ("engine/storage/spill.py", "import pyarrow as pa\nfrom dovetail.engine.kernels.arrays import I64"),
        ("joins/interval/api.py", "from pyspark.sql import DataFrame\nfrom dovetail.spark.task import MetricsSink"),
        ("joins/interval/plan/native.py", "import pyspark.sql.functions as F"),
        ("joins/interval/request.py", "from dovetail.request import parse_keys"),
        ("joins/interval/cost/model.py", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("workloads/source.py", "from pyspark.sql.datasource import DataSource"),
        ("cli/main.py", "from dovetail.calibrate import measure\nfrom dovetail import __version__"),
    ],
)
def test_an_import_that_points_down_is_not_held_against_anyone(file: str, text: str) -> None:
    assert complaints(ROOT / file, text) == []


def test_every_family_and_face_exists() -> None:
    found = {family: {path.stem for path in (ROOT / family.replace(".", "/")).iterdir()} for family in FAMILIES}
    assert all(set(FACES) <= names for names in found.values())
    assert (ROOT / "workloads" / "source.py").exists()
