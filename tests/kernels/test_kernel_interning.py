"""Interning against dicts, and the spread of the hashes."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.engine.kernels import interning
from dovetail.engine.kernels.hashing import bytes_hash, pair_hash
from dovetail.engine.kernels.interning import ByteInterner, PairInterner

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def laid_out(values: list[bytes], dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, values)]).astype(dtype), np.frombuffer(b"".join(values), np.uint8)


def hostile_strings(rng: np.random.Generator, n: int) -> list[bytes]:
    """Short words that differ in one byte, in length only, in trailing zero bytes, and long common beginnings."""
    kinds = [
        lambda: b"\0" * int(rng.integers(0, 20)),
        lambda: b"key-%06d" % rng.integers(0, 300),
        lambda: b"a" * 40 + b"%d" % rng.integers(0, 300),
        lambda: rng.bytes(int(rng.integers(0, 3))),
        lambda: "größe".encode() * int(rng.integers(0, 4)),
    ]
    return [kinds[int(rng.integers(len(kinds)))]() for _ in range(n)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_byte_codes_are_those_of_a_dict(dtype):
    rng = np.random.default_rng(1)
    interner, model = ByteInterner(), {}
    for size in (0, 1, 5, 2_000, 300, 3_000):
        values = hostile_strings(rng, size)
        valid = rng.random(size) > 0.1
        unseen = interner.find(*laid_out(values, dtype), valid)
        assert unseen.tolist() == [model.get(value, -1) if ok else -1 for value, ok in zip(values, valid, strict=True)]
        codes = interner.intern(*laid_out(values, dtype), valid)
        expected = [model.setdefault(v, len(model)) if ok else -1 for v, ok in zip(values, valid, strict=True)]
        assert codes.tolist() == expected
    assert len(interner) == len(model)
    assert interner.find(*laid_out(list(model), dtype)).tolist() == list(range(len(model)))


def test_many_distinct_strings_grow_every_array():
    values = [b"%d" % number for number in range(60_000)]
    interner = ByteInterner()
    foretold = interner.nbytes_after(len(values), sum(map(len, values)))
    assert interner.intern(*laid_out(values)).tolist() == list(range(60_000))
    assert interner.nbytes <= foretold
    assert interner.find(*laid_out(values[::-1])).tolist() == list(range(60_000))[::-1]
    interner.clear()
    assert len(interner) == 0
    assert interner.find(*laid_out(values[:2])).tolist() == [-1, -1]


def test_pair_codes_are_those_of_a_dict():
    rng = np.random.default_rng(2)
    pool = np.array([LOW, HIGH, 0, -1, 1, *(1 << k for k in range(1, 63))])
    interner, model = PairInterner(), {}
    for size in (0, 1, 7, 4_000, 4_000):
        first, second = rng.choice(pool, (2, size))
        valid = rng.random(size) > 0.1
        foretold = interner.nbytes_after(size)
        codes = interner.intern(first, second, valid)
        rows = zip(first.tolist(), second.tolist(), valid, strict=True)
        assert codes.tolist() == [model.setdefault((a, b), len(model)) if ok else -1 for a, b, ok in rows]
        assert interner.nbytes <= foretold
    assert len(interner) == len(model)
    firsts, seconds = np.array(list(model)).T
    assert interner.find(firsts, seconds).tolist() == list(range(len(model)))
    assert interner.find(np.array([3]), np.array([3])).tolist() == [-1]


def test_grids_and_equal_pairs():
    side = np.arange(300)
    first, second = (part.ravel() for part in np.meshgrid(side << 20, side << 32))
    interner = PairInterner()
    assert np.array_equal(interner.intern(first, second), np.arange(90_000))
    assert np.array_equal(interner.find(first[::-1], second[::-1]), np.arange(90_000)[::-1])
    assert PairInterner().intern(np.zeros(1_000, np.int64), np.zeros(1_000, np.int64)).tolist() == [0] * 1_000


def test_equal_hashes_are_not_taken_for_equal_values():
    """Both kernels run as plain Python with a hash that says 7 of everything, so that only the comparison decides."""
    cells, ends, store = np.zeros((64, 2), np.int64), np.zeros(32, np.int64), np.zeros(99, np.uint8)
    offsets, data = laid_out([b"a", b"b", b"", b"a", b"ab", b"b"])
    codes = np.empty(6, np.int64)
    byte_codes = _with_hash(interning._byte_codes, "bytes_hash")
    byte_codes(cells, ends, store, 0, offsets, data, np.empty(0, np.bool_), codes, 0, True)
    assert codes.tolist() == [0, 1, 2, 0, 3, 1]
    cells, pairs = np.zeros((64, 2), np.int64), np.zeros((32, 2), np.int64)
    first, second = np.array([1, 2, 1, 2]), np.array([2, 1, 2, 2])
    pair_codes = _with_hash(interning._pair_codes, "pair_hash")
    pair_codes(cells, pairs, 0, first, second, np.empty(0, np.bool_), codes[:4], 0, True)
    assert codes[:4].tolist() == [0, 1, 0, 2]


def _with_hash(compiled, name):
    plain = compiled.py_func
    return type(plain)(plain.__code__, {**plain.__globals__, name: lambda *_: 7}, plain.__name__)


def test_hashes_of_near_values_spread():
    data = np.zeros(4_000, np.uint8)
    by_length = {bytes_hash(data, 0, length) & 0xFFFF for length in range(4_000)}
    assert len(by_length) > 3_700
    pairs = {pair_hash(a, b) & 0xFFFFF for a in range(64) for b in range(64)}
    assert len(pairs) > 4_050
    assert pair_hash(1, 2) != pair_hash(2, 1)


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="1 first but 2 second"):
        PairInterner().intern(np.array([1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="2 marks of validity for 1 rows"):
        PairInterner().intern(np.array([1]), np.array([1]), np.array([True, False]))
    with pytest.raises(IndexError, match="within the 1 bytes"):
        ByteInterner().intern(np.array([0, 2], np.int32), np.zeros(1, np.uint8))
