"""Gathers over raw buffers against Python lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.kernels.arrays import NO_BYTES
from dovetail.engine.kernels.gather import (
    Selection,
    expand_runs,
    gather_bits,
    gather_bytes,
    gather_fixed,
    gather_fixed_lists,
    gather_lists,
    gather_validity,
    gathered_bytes,
)

many = settings(deadline=None, derandomize=True, max_examples=150)


def rows_of(n_rows: int, *, null: bool = True):
    """Random rows, one run, or nothing."""
    if n_rows == 0:
        return st.lists(st.just(-1), max_size=20 if null else 0)
    run = st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_rows)).map(
        lambda ends: list(range(ends[0], min(n_rows, sum(ends))))
    )
    return st.one_of(st.lists(st.integers(-1 if null else 0, n_rows - 1), max_size=40), run)


def runs_of(n_rows: int):
    return st.lists(
        st.integers(0, n_rows).flatmap(lambda start: st.tuples(st.just(start), st.integers(0, n_rows - start))),
        max_size=8,
    )


def columns_of(runs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([start for start, _ in runs], np.int64), np.array([length for _, length in runs], np.int64)


def laid_out(values: list[bytes], dtype: type, before: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and data of byte strings, with some bytes before the first, as a slice of an Arrow array has them."""
    ends = np.cumsum([before, *map(len, values)])
    return ends.astype(dtype), np.frombuffer(b"x" * before + b"".join(values), np.uint8)


def values_of(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    return [data[start:end].tobytes() for start, end in pairwise(offsets)]


def bitmap(bits: list[bool], before: int = 0) -> np.ndarray:
    return np.packbits(np.array([True] * before + bits, np.bool_), bitorder="little")


@many
@given(st.data(), st.sampled_from([1, 2, 3, 4, 8, 16, 24, 32]), st.integers(0, 30))
def test_fixed_width_rows(data, width, n_rows):
    memory = np.frombuffer(data.draw(st.binary(min_size=width * n_rows, max_size=width * n_rows)), np.uint8)
    rows = [memory[at * width : (at + 1) * width].tobytes() for at in range(n_rows)]
    indices = data.draw(rows_of(n_rows))
    expected = b"".join(rows[at] if at >= 0 else bytes(width) for at in indices)
    assert gather_fixed(memory, width, np.array(indices, np.int64)).tobytes() == expected


def test_fixed_width_takes_unaligned_memory():
    memory = np.arange(81, dtype=np.uint8)[1:]
    for width in (2, 4, 8, 16):
        assert gather_fixed(memory, width, np.array([1, 0])).tolist() == [
            *memory[width : 2 * width].tolist(),
            *memory[:width].tolist(),
        ]


@many
@given(st.data(), st.lists(st.booleans(), max_size=40), st.integers(0, 17))
def test_bits(data, bits, before):
    indices = data.draw(rows_of(len(bits)))
    found = gather_bits(bitmap(bits, before), before, np.array(indices, np.int64))
    chosen = [at >= 0 and bits[at] for at in indices]
    assert found.tobytes() == bitmap(chosen).tobytes()


@many
@given(st.data(), st.lists(st.booleans(), max_size=40), st.integers(0, 17), st.booleans())
def test_validity(data, bits, before, absent):
    bits = [True] * len(bits) if absent else bits
    indices = data.draw(rows_of(len(bits)))
    source = NO_BYTES if absent else bitmap(bits, before)
    found, n_null = gather_validity(source, before, np.array(indices, np.int64), len(bits))
    chosen = [at >= 0 and bits[at] for at in indices]
    assert n_null == chosen.count(False)
    assert found.tobytes() == (bitmap(chosen).tobytes() if n_null else b"")


@many
@given(
    st.data(), st.lists(st.binary(max_size=40), max_size=20), st.sampled_from([np.int32, np.int64]), st.integers(0, 9)
)
def test_byte_strings(data, values, dtype, before):
    offsets, memory = laid_out(values, dtype, before)
    indices = data.draw(rows_of(len(values)))
    rows = np.array(indices, np.int64)
    expected = [values[at] if at >= 0 else b"" for at in indices]
    found = gather_bytes(offsets, memory, rows)
    assert values_of(*found) == expected
    assert (found[0].dtype, found[0][0], len(found[1])) == (dtype, 0, found[0][-1])
    assert gathered_bytes(offsets, rows) == sum(map(len, expected))


@many
@given(st.data(), st.lists(st.integers(0, 5), max_size=20), st.sampled_from([np.int32, np.int64]), st.integers(0, 9))
def test_lists(data, sizes, dtype, before):
    offsets = np.cumsum([before, *sizes]).astype(dtype)
    indices = data.draw(rows_of(len(sizes)))
    new_offsets, children = gather_lists(offsets, np.array(indices, np.int64))
    expected = [list(range(offsets[at], offsets[at + 1])) if at >= 0 else [] for at in indices]
    assert children.tolist() == [child for item in expected for child in item]
    assert new_offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    assert new_offsets.dtype == dtype


@many
@given(st.data(), st.integers(0, 4), st.integers(0, 10))
def test_fixed_size_lists(data, list_size, n_rows):
    indices = data.draw(rows_of(n_rows))
    found = gather_fixed_lists(list_size, np.array(indices, np.int64), n_rows)
    assert found.tolist() == [at * list_size + item if at >= 0 else -1 for at in indices for item in range(list_size)]


@many
@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 9)), max_size=20))
def test_runs_expand_to_ranges(runs):
    assert expand_runs(*columns_of(runs)).tolist() == [at for start, n in runs for at in range(start, start + n)]


def test_a_selection_is_checked_once_and_knows_its_shape():
    run = Selection.of(np.array([3, 4, 5]), 6)
    assert (len(run), run.start, run.n_null) == (3, 3, 0)
    assert Selection.of(run, 10) is run
    assert Selection.of(np.array([-1, 0, 1]), 6).start == -1
    assert Selection.of(np.array([-1, 0, -1]), 6).n_null == 2
    assert Selection.of(np.array([1, 1]), 6).start == -1
    with pytest.raises(IndexError, match="made for 6 rows used on 5"):
        Selection.of(run, 5)


def test_read_only_and_narrow_indices_are_taken():
    memory = np.arange(4, dtype=np.int64)
    memory.flags.writeable = False
    assert gather_fixed(memory, 8, np.array([2, -1, 0], np.int32)).view(np.int64).tolist() == [2, 0, 0]


@pytest.mark.parametrize("rows", [[0, 4], [-2, 0], [2**62]])
def test_rows_out_of_range_are_refused(rows):
    indices = np.array(rows, np.int64)
    offsets = np.arange(5, dtype=np.int32)
    for gather in (
        lambda: gather_fixed(np.zeros(32, np.uint8), 8, indices),
        lambda: gather_validity(NO_BYTES, 0, indices, 4),
        lambda: gather_bytes(offsets, np.zeros(4, np.uint8), indices),
        lambda: gather_lists(offsets, indices),
        lambda: gather_fixed_lists(2, indices, 4),
        lambda: gather_bits(np.zeros(1, np.uint8), 4, indices),
    ):
        with pytest.raises(IndexError, match="rows from"):
            gather()


def test_wrong_shapes_are_refused():
    memory, offsets = np.zeros(8, np.uint8), np.array([0, 9], np.int32)
    with pytest.raises(IndexError, match="within the 8 bytes"):
        gather_bytes(offsets, memory, np.array([0]))
    with pytest.raises(TypeError, match="offsets are uint8"):
        gather_lists(memory, np.array([0]))
    with pytest.raises(ValueError, match="run lengths go down to -1"):
        expand_runs(np.array([0]), np.array([-1]))
    with pytest.raises(ValueError, match="2 starts but 1 lengths"):
        expand_runs(np.array([0, 1]), np.array([1]))
    with pytest.raises(IndexError, match="bitmap of 64 bits for 65 rows"):
        gather_validity(memory, 0, np.array([0]), 65)
    with pytest.raises(ValueError, match="width is 0"):
        gather_fixed(memory, 0, np.array([0]))


def test_int32_offsets_that_would_overflow_are_refused_before_anything_is_copied():
    offsets = np.array([0, 2**30], np.int32)
    with pytest.raises(OverflowError, match="4294967296 bytes or items"):
        gather_lists(offsets, np.zeros(4, np.int64))
