"""Codes compare as the bounds do, for every type of bound and every way to close an interval."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.rows.keys import bound_codes, bound_numbers
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.relation import (
    EMPTY,
    EQUAL,
    GREATER,
    INVERTED,
    LESS,
    NULL_BOUND,
    USABLE,
    Relation,
    classify,
    encode_sides,
    encode_stream,
)
from dovetail.request import CLOSED

EDGE = 2**63 - 1
ASCENDING = {
    pa.int8(): [-128, -1, 0, 127],
    pa.int16(): [-(2**15), 0, 2**15 - 1],
    pa.int32(): [-(2**31), -7, 2**31 - 1],
    pa.int64(): [-EDGE - 1, -EDGE, -1, 0, 1, EDGE - 1, EDGE],
    pa.uint32(): [0, 1, 2**32 - 1],
    pa.float32(): [-np.inf, -3.0e38, -1.5, -1e-45, 0.0, 1e-45, 2.0, np.inf],
    pa.float64(): [-np.inf, -1e308, -2.0, -5e-324, 0.0, 5e-324, 1.0, 1.0000000000000002, np.inf],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    pa.timestamp("us", "UTC"): [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2030, 1, 1, tzinfo=dt.UTC)],
    pa.time64("ns"): [dt.time(0), dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999_999)],
    pa.duration("us"): [dt.timedelta(days=-3), dt.timedelta(0), dt.timedelta(microseconds=1)],
    pa.decimal128(18, 3): [Decimal("-999999999999999.999"), Decimal("-0.001"), Decimal(0), Decimal("0.002")],
    pa.decimal128(5, 2): [Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")],
}
WIDE = [Decimal(-(10**37)), Decimal(-(2**64) - 1), Decimal(-(2**64)), Decimal(-1), Decimal(0), Decimal(2**63)]
WIDE += [Decimal(2**64 - 1), Decimal(2**64), Decimal(10**37)]


def sign(a, b):
    return LESS if a < b else EQUAL if a == b else GREATER


@pytest.mark.parametrize("kind", ASCENDING, ids=str)
def test_codes_rise_with_the_bounds(kind):
    codes = bound_codes(pa.array(ASCENDING[kind], kind))
    assert codes.dtype == np.int64
    assert (np.diff(codes.astype(object)) > 0).all()


@pytest.mark.parametrize("kind", ASCENDING, ids=str)
def test_chunks_slices_and_nulls_do_not_move_codes(kind):
    values = ASCENDING[kind]
    expected = bound_codes(pa.array(values, kind)).tolist()
    holes = pa.array([None, *values, None], kind)
    assert bound_codes(holes)[1:-1].tolist() == expected
    assert bound_codes(holes.slice(1, len(values))).tolist() == expected
    assert bound_codes(pa.chunked_array([holes.slice(1, 1), holes.slice(2, len(values) - 1)])).tolist() == expected
    assert bound_codes(pa.array([], kind)).tolist() == []


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_negative_zero_is_zero_and_nan_above_all(kind):
    numbers = np.array([-0.0, 0.0, np.inf, np.nan], kind.to_pandas_dtype())
    zero, other, infinite, nan = bound_codes(pa.array(numbers)).tolist()
    assert zero == other < infinite < nan < EDGE


def test_numbers_differ_by_the_length_between_them():
    assert bound_numbers(pa.array([1.5, None, -0.5])).tolist() == [1.5, 0.0, -0.5]
    assert bound_numbers(pa.array([1.5], pa.float32())).dtype == np.float32
    assert bound_numbers(pa.array(np.array([2.5], np.float16))).tolist() == [2.5]
    days = bound_numbers(pa.chunked_array([[dt.date(2024, 3, 1)], [dt.date(2024, 2, 28)]]))
    assert days[0] - days[1] == 2
    cents = bound_numbers(pa.array([Decimal("1.25"), Decimal("-1.00")], pa.decimal128(9, 2)))
    assert cents[0] - cents[1] == 225


def test_types_that_cannot_bound_an_interval_are_named():
    with pytest.raises(PlanError, match="string cannot bound"):
        bound_codes(pa.array(["a"]))
    with pytest.raises(PlanError, match="uint64"):
        bound_codes(pa.array([1], pa.uint64()))
    with pytest.raises(UnsupportedError, match="at most 18 digits"):
        bound_codes(pa.array(WIDE, pa.decimal128(38, 0)))
    with pytest.raises(PlanError, match=r"date32.*int64"):
        encode_sides((pa.array([1]), pa.array([2])), (pa.array([1], pa.date32()), pa.array([2], pa.date32())))


def test_rows_are_told_apart_by_their_bounds():
    start = pa.array([1.0, 2.0, 3.0, None, 1.0, np.nan, 1.0, np.nan, -0.0])
    end = pa.array([2.0, 2.0, 2.0, 2.0, None, 1.0, np.nan, None, 0.0])
    usual = [USABLE, EMPTY, INVERTED, NULL_BOUND, NULL_BOUND, INVERTED, INVERTED, NULL_BOUND, EMPTY]
    for closed in ("left", "right", "neither"):
        assert classify(start, end, closed).tolist() == usual
    points = [USABLE if kind == EMPTY else kind for kind in usual]
    assert classify(pa.chunked_array([start]), pa.chunked_array([end]), "both").tolist() == points
    assert classify(pa.array([], pa.date32()), pa.array([], pa.date32()), "left").tolist() == []


INTERVALS = [*ASCENDING.items(), (pa.decimal128(38, 0), WIDE)]


@pytest.mark.parametrize(
    ("kind", "values"), INTERVALS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_encoded_sides_keep_every_comparison(kind, values):
    for left_closed, right_closed in product(CLOSED, CLOSED):
        left, right = (
            [(a, b) for a in values for b in values if a < b or (a == b and closed == "both")]
            for closed in (left_closed, right_closed)
        )
        columns = [tuple(pa.array([row[at] for row in rows], kind) for at in (0, 1)) for rows in (left, right)]
        codes = encode_sides(*columns, left_closed, right_closed)
        assert (codes.left_start < codes.left_end).all()
        assert (codes.right_start < codes.right_end).all()
        check_comparisons(codes, left, right, Relation.parse("overlapping", closed=(left_closed, right_closed)))


def check_comparisons(codes, left, right, overlapping):
    half_open = (codes.left_start[:, None] < codes.right_end) & (codes.right_start < codes.left_end[:, None])
    written = [
        (start >> codes.h, (end - codes.shift) >> codes.h)
        for start, end in ((codes.left_start, codes.left_end), (codes.right_start, codes.right_end))
    ]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            signs = [sign(a, b) for a, b in product(one, other)]
            coded = [sign(a, b) for a, b in product((x[i] for x in written[0]), [x[j] for x in written[1]])]
            assert coded == signs
            assert half_open[i, j] == overlapping.holds(*signs)


def test_unusable_rows_do_not_disturb_the_others():
    start, end = pa.array([1.0, np.nan, None, 4.0]), pa.array([3.0, 2.0, 5.0, np.inf])
    codes = encode_sides((start, end), (start, end), "left", "both")
    usable = classify(start, end, "left") == USABLE
    alone = encode_sides((start.filter(pa.array(usable)), end.filter(pa.array(usable))), (start, end), "left", "both")
    assert (np.argsort(codes.left_start[usable]) == np.argsort(alone.left_start)).all()
    assert (codes.left_start < codes.left_end)[usable].all()


@pytest.mark.parametrize("closed", [("left", "left"), ("neither", "neither"), ("both", "both"), ("left", "both")])
def test_a_stream_is_encoded_as_the_whole_would_be(closed):
    left, right = (pa.array([1, 5, 2**40]), pa.array([4, 5, 2**41])), (pa.array([-3, 4]), pa.array([4, 6]))
    whole = encode_sides(left, right, *closed)
    one, other = encode_stream(*left, *closed), encode_stream(*right, *reversed(closed))
    assert (one.h, one.shift) == (other.h, other.shift) == (whole.h, whole.shift)
    assert [one.start.tolist(), one.end.tolist()] == [whole.left_start.tolist(), whole.left_end.tolist()]
    assert [other.start.tolist(), other.end.tolist()] == [whole.right_start.tolist(), whole.right_end.tolist()]


def test_a_stream_refuses_what_only_ranks_could_encode():
    with pytest.raises(UnsupportedError, match="closed 'both'"):
        encode_stream(pa.array([1]), pa.array([EDGE]), "both", "both")
    with pytest.raises(UnsupportedError, match="same `closed`"):
        encode_stream(pa.array([1.0]), pa.array([2.0]), "left", "right")
    with pytest.raises(UnsupportedError, match="18 digits"):
        encode_stream(pa.array(WIDE, pa.decimal128(38, 0)), pa.array(WIDE, pa.decimal128(38, 0)))
