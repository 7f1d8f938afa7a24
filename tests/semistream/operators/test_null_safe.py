"""Null as a key like others: every operator against the definition, and what tells a match from none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.semistream.operators.stream_cases import HOWS, KEYS, Case, random_case, run
from tests.semistream.operators.test_answers import random_spec

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.errors import PlanError
from dovetail.joins.semistream.master.store import with_nulls
from dovetail.joins.semistream.operators import ALGORITHMS, HybridJoin


def expected(case: Case, how: str) -> Any:
    """As the definition has it, where null equals null."""

    def match(a: Any, b: Any) -> bool:
        return all(oracle.same(a[k], b[k]) or (a[k] is None and b[k] is None) for k in case.on)

    pairs = oracle.join(case.stream.to_pylist(), case.master.to_pylist(), match, how)
    return oracle.bag(oracle.flat(pairs, case.stream.schema.names, ["r", "text"] if how in ("inner", "left") else []))


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_null_equals_null(name: str, kind: str) -> None:
    for seed, how in enumerate(HOWS):
        case, rng = random_case(300 + seed, kind), np.random.default_rng(seed)
        case = replace(case, pages=with_nulls(case.pages, "memory"))  # type: ignore[arg-type]  # runs like those it adds to
        spec = random_spec(rng, name, sized(case), how, null_safe=True)
        assert run(spec, case, pauses=seed % 3).bag == expected(case, how), spec


def sized(case: Case) -> Case:
    """The case with as many pages as `random_spec` must make room for."""
    if not hasattr(case.pages, "page_lists"):
        case.pages.page_lists = [[]] * (len(case.pages.starts) - 1)
    return case


def test_a_column_tells_whether_there_is_a_master_row() -> None:
    case = random_case(301)
    spec = HybridJoin(pages=with_nulls(case.pages, "memory"), on=("k",), how="left", null_safe=True, matched="met")
    got = run(spec, case)
    assert {(row[-1], row[-3] is not None) for row in got.rows} == {(True, True), (False, False)}
    assert any(row[1] is None and row[-1] for row in got.rows)
    with pytest.raises(PlanError, match="have a column of this name"):
        replace(spec, matched="word").open(MemoryBudget("1MB"), {"stream": case.stream.schema})


def test_a_null_and_the_value_that_shares_its_code_are_told_apart() -> None:
    codes = KeyCodes([pa.int64()], null_safe=True)
    keys = pa.array([None, 0x5A17_0C0D_E0F0, None, 7])
    found, valid = codes.encode([keys])
    assert found[0] == found[1] == found[2] != found[3]
    assert valid.all()
    assert not codes.exact
    assert codes.same([keys], [keys]).all()
    assert codes.same([keys], [keys.take(pa.array([1, 0, 2, 0]))]).tolist() == [False, False, True, False]
