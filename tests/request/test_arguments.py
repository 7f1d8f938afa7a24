"""Every `PlanError` and `UnsupportedError` that a user can meet names the argument it is about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dovetail

SOURCE = Path(dovetail.__file__).parent
NAMED = ("PlanError", "UnsupportedError")
INTERNAL = (
    "engine/",  # is given what families have checked
    "joins/interval/cell_join.py",  # tasks and their operators: their options come from a checked request
    "joins/interval/cost/",  # prices of plans; a `PlanError` there leaves a join without prices
    "joins/interval/index/",
    "joins/interval/operators/",
    "joins/interval/relation.py",
    "joins/nearest/operator.py",
    "joins/online/operators/",
    "joins/semistream/cost/",
    "joins/semistream/operators/",
    "pipeline/record/",
    "xml/algebra/",
    "xml/evaluate/",
    "xml/rules/",
    "xml/scan/",
    "rewrite/",  # `dovetail.sql` names its query for all of them
    "workloads/blocks.py",  # `require` and what reads a value such as 'fixed(10)' do not know which option has it
    "workloads/interval_sets.py",
    "workloads/options.py",
)
NO_ARGUMENT = {
    "joins/online/bucket_join.py": "the columns of an input, whatever it is called",
    "joins/semistream/master/lake/data_files.py": "a method that this store does not have",
    "joins/semistream/master/pages.py": "a method that this store does not have",
    "joins/semistream/master/row_groups.py": "a method that this store does not have",
    "pipeline/start.py": "the session",
    "spark/frames.py": "the session",
    "spark/task.py": "the session",
}


def unnamed(source: Path) -> Iterator[str]:
    """Places where an error is made without `argument=`."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMED
            if made and not any(word.arg == "argument" for word in node.keywords):
                yield f"{path.relative_to(source).as_posix()}:{node.lineno}"


def test_errors_that_users_meet_name_their_argument() -> None:
    places = [place for place in unnamed(SOURCE) if not place.startswith(INTERNAL)]
    assert [place for place in places if place.partition(":")[0] not in NO_ARGUMENT] == []


def test_every_exception_is_needed() -> None:
    places = list(unnamed(SOURCE))
    files = {place.partition(":")[0] for place in places}
    assert [allowed for allowed in INTERNAL if not any(place.startswith(allowed) for place in places)] == []
    assert set(NO_ARGUMENT) <= files


def test_an_error_without_an_argument_is_found(tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text('raise PlanError("no")\nraise PlanError("no", argument="k")\n')
    assert list(unnamed(tmp_path)) == ["plan.py:1"]
