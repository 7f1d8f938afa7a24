"""The modules that a figure depends on: those that the module of an experiment imports, and what these import.

Found in the sources, without importing anything. What an import inside a function brings is part of it in experiments,
and everywhere if a figure is measured by a clock or through Spark.
"""

from __future__ import annotations

import ast
import hashlib
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
)
"""Modules that show figures, or say where they come from."""
NOT_COUNTED: Final = (
    "bench.context", "bench.postgres", "dovetail.spark", "dovetail.cli", "dovetail.engine.exchange",
    *(f"dovetail.engine.storage.{name}" for name in ("files", "hdfs", "remote", "secrets")),
    *(f"dovetail.joins.semistream.master.{name}" for name in (
        "lake", "mysql", "page_file", "parquet", "postgres", "redis", "row_groups", "snapshots", "sqlite", "store")),
)  # fmt: skip
"""Modules that counted figures do not depend on: they are imported beside what counts, and neither count nor decide."""


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


@cache
def _imports_of(module: str, inside_functions: bool) -> tuple[str, ...]:
    file = file_of(module)
    names = _named(ast.parse(file.read_bytes()), inside_functions) if file else ()
    whole = {name.rsplit(".", cut)[0] for name in names for cut in range(name.count(".") + 1)}
    return tuple(sorted(name for name in whole if file_of(name) is not None))


def _named(node: ast.AST, inside_functions: bool) -> Iterator[str]:
    """What a source imports, and what it takes from there: this may be a module, too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif not (_is_function(node) and not inside_functions) and not _is_for_types(node):
        for part in ast.iter_child_nodes(node):
            yield from _named(part, inside_functions)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
