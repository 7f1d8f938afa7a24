"""Normal keys sort, compare and search as the keys do, whatever the types and however the arrays are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.models import KINDS, column, keys_of

from dovetail.errors import PlanError
from dovetail.joins.semistream.keys import KeyForm, above, key_form, last_not_above

COMBINATIONS = [
    *((kind,) for kind in KINDS), ("int", "text"), ("text", "int"), ("bytes", "bytes", "text"),
    ("wide", "bool", "date"), ("decimal", "unsigned"), ("text", "time", "small"),
]  # fmt: skip


def comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


def random_columns(rng: np.random.Generator, kinds: tuple[str, ...], rows: int, nulls: float) -> list[pa.Array]:
    """Columns cut out of longer ones, so that nothing starts at the beginning of its memory."""
    found = []
    for kind in kinds:
        numbers = rng.integers(-40, 40, rows + 7).tolist()
        values = [None if rng.random() < nulls else n for n in numbers]
        found.append(column(kind, values).slice(int(rng.integers(0, 7)), rows))
    return found


@pytest.mark.parametrize("kinds", COMBINATIONS, ids="-".join)
def test_order_and_search(kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(7)
    names = tuple(f"k{at}" for at in range(len(kinds)))
    form = KeyForm(names, tuple(KINDS[kind] for kind in kinds))
    for rows in (0, 1, 2, 9, 300):
        columns = random_columns(rng, kinds, rows, 0.0)
        keys = [comparable(key) for key in keys_of(pa.table(columns, list(names)), names)]
        normal, valid = form.normal(columns)
        assert valid.all()
        order = normal.sorted_rows().tolist()
        assert order == sorted(range(rows), key=lambda row: keys[row])
        ascending = normal.take(np.array(order, np.int64))
        steps = [(a < b) - (a > b) for a, b in pairwise(sorted(keys))]
        assert ascending.steps().tolist() == steps
        distinct = np.array([at for at in range(rows) if at == 0 or steps[at - 1]], np.int64)
        fences = ascending.take(distinct)
        fence_keys = sorted(set(keys))
        assert len(set(fences.codes().tolist())) == len(fence_keys)
        probe = random_columns(rng, kinds, 50, 0.2)
        wanted, known = form.normal(probe)
        probe_keys = keys_of(pa.table(probe, list(names)), names)
        assert known.tolist() == [None not in key for key in probe_keys]
        places = last_not_above(wanted, fences)
        for row in np.flatnonzero(known).tolist():
            key = comparable(probe_keys[row])
            assert places[row] == sum(fence <= key for fence in fence_keys) - 1
        if rows:
            picked = rng.integers(0, len(fence_keys), 50)
            higher = above(wanted, fences, picked)
            for row in np.flatnonzero(known).tolist():
                assert higher[row] == (comparable(probe_keys[row]) > fence_keys[picked[row]])


def test_what_cannot_be_a_key_is_refused() -> None:
    schema = pa.schema({"a": pa.int64(), "l": pa.list_(pa.int8()), "h": pa.float16(), "s": pa.struct({"x": pa.int8()})})
    for name in ("l", "h", "s"):
        with pytest.raises(PlanError, match="cannot be a key"):
            key_form(schema, name)
    for key in ("x", ["a", "a"], []):
        with pytest.raises(PlanError):
            key_form(schema, key)
    form = KeyForm(("d",), (pa.decimal128(10, 2),))
    for other in (pa.decimal128(10, 3), pa.decimal128(30, 2), pa.int64()):
        with pytest.raises(PlanError, match="cast them to these types"):
            form.normal([pa.nulls(1, other)])


def test_chunks_dictionaries_and_widths_are_the_same_keys() -> None:
    form = KeyForm(("a", "b"), (pa.int64(), pa.string()))
    plain = form.normal([pa.array([1, 2, 3]), pa.array(["x", None, "zz"])])
    others = form.normal(
        [
            pa.chunked_array([pa.array([1], pa.int32()), pa.array([2, 3], pa.int32())]),
            pa.array(["x", None, "zz"]).dictionary_encode().cast(pa.dictionary(pa.int16(), pa.large_string())),
        ]
    )
    assert plain[1].tolist() == others[1].tolist() == [True, False, True]
    assert plain[0].column().take([0, 2]).equals(others[0].column().take([0, 2]))
