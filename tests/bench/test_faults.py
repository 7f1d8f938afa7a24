"""Faults of statements: each has a condition on what was found, and names figures that there are."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from bench.catalogue import _whole
from bench.expression import filled
from bench.judge import _WORDS, Figures, Judge
from bench.machine import BENCH

from bench import expression

GIVEN = {"full", "cores", "divide", "reading"}
"""Names of where an experiment ran; `reading` is found there, the others say nothing of what was found."""
TABLES = {
    name: _whole(tables, name)
    for file in sorted((BENCH / "experiments").glob("*.toml"))
    for tables in [tomllib.loads(file.read_text())]
    for name in tables
}


def names_in(text: str) -> set[str]:
    """Names that an expression asks for, and not those that it binds itself."""
    found = [node for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.Name)]
    bound = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    return {node.id for node in found} - bound


def faults(table: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Condition, text, and loop of the statement, of every fault of an experiment."""
    general = table.get("fault", [])
    for some in general.values() if isinstance(general, dict) else [general]:
        assert not isinstance(some, str), "a fault without a condition explains any failure"
        yield from ((condition, text, "") for condition, text in some)
    for state in table.get("states", ()):
        if isinstance(state, list) and len(state) > 3:
            yield from ((condition, text, state[2]) for condition, text in state[3])


def texts(value: Any) -> Iterator[str]:
    """All texts of a table, and the keys of what it shows."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from (key, *texts(one))
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def looked_at(table: Mapping[str, Any]) -> set[str]:
    """Names that are used where an experiment is judged whatever it finds."""
    states = [
        part for state in table.get("states", ()) for part in texts(state[:3] if isinstance(state, list) else state)
    ]
    shows = [*texts(table.get("note", "")), *texts(table.get("shows", [])), *table.get("let", {}).values()]
    found = set(table.get("let", {}))
    for text in [*states, *shows]:
        for form in (text, filled(text), f"[0 {text}]"):
            try:
                tree = ast.parse(form.strip(), mode="eval")
            except SyntaxError:
                continue
            found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found


@pytest.mark.parametrize("name", TABLES)
def test_a_fault_has_a_condition_on_what_was_found(name: str) -> None:
    for condition, text, _ in faults(TABLES[name]):
        told = names_in(condition) - (GIVEN - {"reading"}) - set(expression._WORDS) - set(_WORDS)
        assert told, f"{name}: {condition!r} holds whatever is found, so that {text!r} would explain anything"


def named_in_code() -> set[str]:
    """Words of the code of experiments, which names figures in texts or as arguments."""
    return set(re.findall(r"\w+", " ".join(file.read_text() for file in sorted((BENCH / "experiments").rglob("*.py")))))


@pytest.mark.parametrize("name", TABLES)
def test_a_fault_names_figures_that_there_are(name: str) -> None:
    known = looked_at(TABLES[name]) | named_in_code() | GIVEN | set(expression._WORDS) | set(_WORDS)
    for condition, text, loop in faults(TABLES[name]):
        bound = (
            {node.id for node in ast.walk(ast.parse(f"[0 {loop}]")) if isinstance(node, ast.Name)} if loop else set()
        )
        unknown = (names_in(condition) | names_in(filled(text))) - known - bound
        assert not unknown, f"{name}: {unknown} of {condition!r} or {text!r} is named nowhere else"


def powers(*some: float) -> dict[str, np.ndarray[Any, Any]]:
    """Rows per iteration that go with each axis to these powers."""
    return {axis: SIZES**power for axis, power in zip(("rows", "memory_mb", "segment"), some, strict=True)}


SIZES = np.array([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("name", "figures", "fault"),
    [
        ("semistream-x-tuned-rate", {"gains": [1.05]}, "scale"),
        ("semistream-x-tuned-rate", {"gains": [0.5]}, ""),
        ("semistream-x-tuned-rate", {"gains": [1.05], "full": True}, ""),
        ("semistream-cache-tuning-by-equations", {"w": np.array([5.0])}, "source"),
        ("semistream-cache-tuning-by-equations", {"w": np.array([1.0])}, ""),
        ("semistream-x-tuning-by-equations", {"w": np.array([2.6]), "rate_by": np.array([0.28])}, "source"),
        ("semistream-x-tuning-by-equations", {"w": np.array([2.6]), "rate_by": np.array([0.1])}, ""),
        ("semistream-x-tuning-by-equations", {"w": np.array([1.2]), "rate_by": np.array([0.28])}, ""),
        ("semistream-hybrid-proportions", {"w": powers(-0.91, 0.99, 0.87)}, "source"),
        ("semistream-hybrid-proportions", {"w": powers(-0.91, 0.99, 0.7)}, ""),
        ("semistream-hybrid-proportions", {"w": powers(-0.91, 0.99, 1.15)}, ""),
        ("online-moving-mean", {"growth": lambda keys, rival: (1.85, 2.37)}, "source"),
        ("online-moving-mean", {"growth": lambda keys, rival: (1.85, 1.9)}, ""),
        ("online-moving-mean", {"growth": lambda keys, rival: (1.2, 1.5)}, ""),
        ("models-interval-routes", {"margins": {"native": 1.2}}, "ours"),
        ("models-interval-routes", {"margins": {"native": 0.2}}, ""),
    ],
)
def test_what_is_found_decides_whether_a_fault_is_said(name: str, figures: dict[str, Any], fault: str) -> None:
    """The same statement fails each time; its fault is said only for figures that it explains."""
    equations: dict[str, Any] = {
        "rate": np.array([1.0]), "rate_by": np.array([0.8]), "w": np.array([1.0]), "w_by": np.array([1.0]),
        "ours": np.array([1.0]), "best": [], "within": "2.5 %", "why": "w", "note": "",
    }  # fmt: skip
    given: dict[str, dict[str, Any]] = {
        "semistream-x-tuned-rate": {},
        "semistream-cache-tuning-by-equations": equations,
        "semistream-x-tuning-by-equations": equations,
        "semistream-hybrid-proportions": {"at": dict.fromkeys(("rows", "memory_mb", "segment"), SIZES)},
        "online-moving-mean": {
            "RIVALS": ["HMJ"], "shown": str, "keys": type("Keys", (), {"factors": lambda self, rival: [3]})(),
        },
        "models-interval-routes": {
            "good": 9, "n": 10, "what": "t", "wins": {"native": 0}, "lost": 0.1, "constants": {},
            "worst": type("Worst", (), {"ratio": 1.5, "chosen": "a", "best": "b", "setting": "s"})(),
        },
    }  # fmt: skip
    told = {key: TABLES[name][key] for key in ("let", "states", "fault") if key in TABLES[name]}
    if isinstance(told.get("fault"), dict):
        told["fault"] = told["fault"]["simulated"]
    judge = Judge(**told)
    names = judge.names(Figures({**given[name], **figures}))
    failing = [one for one in judge.statements(names) if one.verdict == "does not hold"]
    assert [one.fault for one in failing] == [fault]
