"""The modules that a figure depends on: those that the module of an experiment or case imports, and what these import.

Found in the sources, without importing anything. What an import inside a function brings is part of it in experiments,
and everywhere if a figure is measured by a clock or through Spark. A module that a text names, as in a command, counts
as imported, and so does the module of a public name that is taken from `dovetail` itself.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import dovetail

PACKAGE, BENCH = Path(dovetail.__file__).parent, Path(__file__).parent
COUNTED, MEASURED = "counted", "measured"
NO_FIGURE: Final = (
    "bench.__main__",
    "bench.page",
    "bench.report",
    "bench.reproduction",
    "bench.chart",
    "bench.machine",
    *(f"bench.{name}" for name in ("case", "catalogue", "experiment", "expression", "harness", "judge")),
)
"""Modules that show figures, say where they come from, or are the frame of every entry (`bench/experiment.py` names
those of them that judge)."""
NOT_COUNTED: Final = (
    "bench.context", "bench.rivals.postgres", "dovetail.spark", "dovetail.cli", "dovetail.engine.exchange",
    "dovetail.joins.online.api", "dovetail.joins.online.plan", "dovetail.joins.semistream.plan",
    *(f"dovetail.engine.storage.{name}" for name in ("files", "hdfs", "remote", "secrets")),
    *(f"dovetail.joins.semistream.master.{name}" for name in (
        "lake", "mysql", "page_file", "parquet", "postgres", "redis", "row_groups", "snapshots", "sqlite", "store")),
)  # fmt: skip
"""Modules that counted figures do not depend on: they are imported beside what counts, and neither count nor decide."""
_CALLS_ANY: Final = "dovetail.functions"
"""The module that calls every public function by its name."""
_NAMES_ALL: Final = ("dovetail", "dovetail.spark.daemon")
"""Modules that name what others may ask for: public names, and what workers load before their first task."""
_OURS = re.compile(r"(?<![\w.])(?:bench|dovetail)(?:\.\w+)+")


def imported(module: str, ground: str) -> tuple[str, ...]:
    """The module and all of ours that it imports, in order."""
    left_out = NO_FIGURE if ground == MEASURED else NO_FIGURE + NOT_COUNTED
    found, todo = set[str](), [module]
    while todo:
        name = todo.pop()
        if name in found or any(name == one or name.startswith(f"{one}.") for one in left_out):
            continue
        found.add(name)
        todo += _imports_of(name, ground == MEASURED or name.startswith("bench.experiments."))
    return tuple(sorted(found))


def code_digest(file: Path) -> str:
    """A digest of what a source file does: comments, docstrings and layout do not count."""
    return _code_digest(file, file.stat().st_mtime_ns)


@cache
def _code_digest(file: Path, _: int) -> str:
    if file.suffix != ".py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def file_of(module: str) -> Path | None:
    """The source of one of our modules; None for any other name."""
    root = {"bench": BENCH.parent, "dovetail": PACKAGE.parent}.get(module.partition(".")[0])
    if root is None:
        return None
    base = root.joinpath(*module.split("."))
    return next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)


def sources_of(module: str) -> tuple[Path, ...]:
    """The source of one of our modules, and for a package what it compiles for Spark."""
    file = file_of(module)
    if file is None:
        return ()
    return (file, *sorted(file.parent.glob("*.scala"))) if file.name == "__init__.py" else (file,)


@cache
def _imports_of(module: str, inside_functions: bool) -> tuple[str, ...]:
    file = file_of(module)
    if file is None:
        return ()
    inside = inside_functions and module not in _NAMES_ALL
    names = set(_named(ast.parse(file.read_bytes()), inside, module not in _NAMES_ALL))
    names |= set(dovetail._PUBLIC.values()) if module == _CALLS_ANY else set()
    public = {dovetail._PUBLIC.get(name.removeprefix("dovetail."), name) for name in names}
    whole = {name.rsplit(".", cut)[0] for name in public for cut in range(name.count(".") + 1)}
    return tuple(sorted(name for name in whole if file_of(name) is not None))


def _named(node: ast.AST, inside_functions: bool, texts: bool) -> Iterator[str]:
    """What a source imports or names in a text, and what it takes from there: this may be a module, too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dovetail":
        yield f"dovetail.{node.attr}"
    elif isinstance(node, ast.Constant):
        yield from _OURS.findall(node.value) if texts and isinstance(node.value, str) else ()
    elif (
        not (_is_function(node) and not inside_functions)
        and not _is_for_types(node)
        and not (isinstance(node, ast.stmt) and _is_text(node))
    ):
        for part in ast.iter_child_nodes(node):
            yield from _named(part, inside_functions, texts)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
