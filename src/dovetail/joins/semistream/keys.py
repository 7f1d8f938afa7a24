"""Keys of the stream and of master data.

Stores sort and search keys in a normal form that is the same for every type, and find the page of a key by an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I32, I64, U8, Bool
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.engine.rows.columns import fixed_values, fixed_width, memory_of, offsets_of, valid_rows
from dovetail.engine.rows.keys import NARROW_DIGITS, ordered_numbers, whole
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels import byte_keys
from dovetail.joins.semistream.kernels.byte_keys import count_below, escaped_lengths, put_numbers, put_text


@dataclass(frozen=True, slots=True)
class Numbers:
    """Keys of one column whose values are numbers of at most 64 bits."""

    values: I64

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: I64) -> Numbers:
        """The keys of these rows."""
        return Numbers(self.values[rows])

    def sorted_rows(self) -> I64:
        """Row numbers in the order of the keys; equal keys keep theirs."""
        return np.argsort(self.values, kind="stable")

    def steps(self) -> I64:
        """For each row but the first 1, 0 or -1: its key is above, equal to or below the one before."""
        return (self.values[1:] > self.values[:-1]).astype(np.int64) - (self.values[1:] < self.values[:-1])

    def codes(self) -> I64:
        """The keys as int64: exactly as many codes as keys."""
        return self.values

    def column(self) -> pa.Array:
        """The keys as an Arrow column, for storing."""
        return pa.array(self.values)


@dataclass(frozen=True, slots=True)
class Texts:
    """Keys as bytes that sort like the keys, of text, wide decimals and several columns."""

    offsets: I64
    data: U8

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: I64) -> Texts:
        """The keys of these rows."""
        return normal_of(self.column().take(pa.array(rows)))  # type: ignore[return-value]  # bytes in, bytes out

    def sorted_rows(self) -> I64:
        """Row numbers in the order of the keys; equal keys keep theirs."""
        return np.asarray(pc.array_sort_indices(self.column()), np.int64)

    def steps(self) -> I64:
        """For each row but the first 1, 0 or -1: its key is above, equal to or below the one before."""
        return byte_keys.order_of_neighbours(self.offsets, self.data)

    def codes(self) -> I64:
        """A 64-bit hash of each key: different keys may, very rarely, share one."""
        return text_hashes(self.offsets, self.data)

    def column(self) -> pa.Array:
        """The keys as an Arrow column, for storing."""
        buffers = [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


Normal = Numbers | Texts


def normal_of(column: pa.Array) -> Normal:
    """The keys that `column()` converted to a column."""
    if column.type == pa.int64():
        return Numbers(column.to_numpy())
    if len(column) == 0:
        return Texts(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return Texts(np.asarray(offsets_of(column), np.int64), memory_of(column, 2))


def last_not_above(keys: Normal, fences: Normal) -> I64:
    """For each key the number of the last of the sorted fences that is not above it, or -1 if all are."""
    if isinstance(keys, Numbers) and isinstance(fences, Numbers):
        return count_below(fences.values, keys.values, or_equal=True) - 1
    if isinstance(keys, Texts) and isinstance(fences, Texts):
        return byte_keys.last_not_above(fences.offsets, fences.data, keys.offsets, keys.data)
    raise TypeError("keys and fences are of different forms")


def above(keys: Normal, fences: Normal, picked: I64) -> Bool:
    """For each key whether it is above the fence of the number picked for it."""
    if isinstance(keys, Numbers) and isinstance(fences, Numbers):
        return keys.values > fences.values[picked]
    if isinstance(keys, Texts) and isinstance(fences, Texts):
        return byte_keys.above(picked, fences.offsets, fences.data, keys.offsets, keys.data)
    raise TypeError("keys and fences are of different forms")


@dataclass(frozen=True, slots=True)
class KeyForm:
    """How the key columns of one store become normal keys. Equal keys have equal forms, and lesser keys lesser forms.

    Columns may come in another width or layout of the same kind (int32 for int64, large text, dictionaries): what
    counts is the value. Another kind, or another scale of a decimal or unit of a time, is a `PlanError`. NaN equals
    NaN and is above every number, 0.0 equals -0.0, text is ordered by its bytes: as in Spark.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise PlanError(f"the key is {list(self.names)}; name one or more different columns.", argument="key")
        for kind in self.types:
            _kind(kind)

    @property
    def exact(self) -> bool:
        """Whether normal keys are numbers, so that codes stand for keys."""
        return len(self.types) == 1 and is_number(self.types[0])

    def normal(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Normal, Bool]:
        """The normal key of each row, and whether it has one; a key with a null part has an undefined form."""
        plain = [_plain(column) for column in columns]
        self._check(plain)
        valid = np.logical_and.reduce([valid_rows(column) for column in plain])
        if self.exact:
            return Numbers(np.ascontiguousarray(ordered_numbers(plain[0]))), valid
        if len(plain) == 1 and fixed_width(plain[0].type) is None:
            column = plain[0].cast(_wide(plain[0].type))
            if column.null_count:
                column = column.fill_null(b"" if column.type == pa.large_binary() else "")
            return normal_of(column), valid
        return _joined(plain), valid

    def _check(self, columns: Sequence[pa.Array]) -> None:
        given, wanted = [_kind(c.type) for c in columns], [_kind(kind) for kind in self.types]
        if given != wanted:
            raise PlanError(
                f"keys of types {[str(c.type) for c in columns]} were given for {list(self.names)} of types "
                f"{[str(kind) for kind in self.types]}; cast them to these types first.",
                argument="on",
            )


def key_form(schema: pa.Schema, key: str | Sequence[str]) -> KeyForm:
    """The form of these columns' keys; a `PlanError` if a column is not there or cannot be a key."""
    names = (key,) if isinstance(key, str) else tuple(key)
    missing = [name for name in names if schema.names.count(name) != 1]
    if missing:
        raise PlanError(f"key column {missing} is not one of the columns {schema.names}.", argument="key")
    return KeyForm(names, tuple(schema.field(name).type for name in names))


def _kind(kind: pa.DataType) -> tuple[object, ...]:
    """The property that two key types must share to be compared by value."""
    types = pa.types
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return ("uint64",)
    if types.is_integer(kind):
        return ("integer",)
    if types.is_boolean(kind):
        return ("boolean",)
    if types.is_floating(kind) and kind.bit_width >= 32:
        return ("float",)
    if types.is_decimal(kind):
        return ("decimal", kind.scale, kind.precision <= NARROW_DIGITS)
    if types.is_timestamp(kind):
        return ("timestamp", kind.unit, kind.tz is None)
    if types.is_time(kind) or types.is_duration(kind) or types.is_date(kind) or types.is_fixed_size_binary(kind):
        return (str(kind),)
    if is_text(kind):
        return ("text",)
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return ("binary",)
    raise PlanError(
        f"a column of type {kind} cannot be a key; use its parts, or cast it to text, a number or a time.",
        argument="key",
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def is_number(kind: pa.DataType) -> bool:
    """Whether values have int64 numbers that sort like them."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= NARROW_DIGITS)
    return (fixed_width(kind) is not None and not pa.types.is_fixed_size_binary(kind)) or pa.types.is_boolean(kind)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = whole(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if is_text(kind) else pa.large_binary()


def _joined(columns: Sequence[pa.Array]) -> Texts:
    """The parts of each key one after the other, in bytes that sort like the parts."""
    parts = [_part(column, last) for column, last in zip(columns, [False] * (len(columns) - 1) + [True], strict=True)]
    lengths = np.sum([part.lengths for part in parts], axis=0, dtype=np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    data, at = np.empty(int(offsets[-1]), np.uint8), offsets[:-1].copy()
    for part in parts:
        part.put(at, data)
        at += part.lengths
    return Texts(offsets, data)


@dataclass(frozen=True, slots=True)
class _Part:
    lengths: I64
    numbers: I64 | None = None
    offsets: I64 | None = None
    data: U8 | None = None
    escape: bool = False

    def put(self, at: I64, out: U8) -> None:
        if self.numbers is not None:
            put_numbers(self.numbers, at, out)
        elif self.offsets is not None and self.data is not None:
            put_text(self.offsets, self.data, self.escape, at, out)


def _part(column: pa.Array, last: bool) -> _Part:
    if is_number(column.type):
        return _Part(np.full(len(column), 8, np.int64), numbers=ordered_numbers(column))
    width = fixed_width(column.type)
    if width is not None:
        data = _big_endian(column, width) if pa.types.is_decimal(column.type) else fixed_values(column, width)
        offsets = np.arange(len(column) + 1, dtype=np.int64) * width
        return _Part(np.full(len(column), width, np.int64), offsets=offsets, data=data)
    wide = column.cast(_wide(column.type)).fill_null(b"" if _kind(column.type) == ("binary",) else "")
    texts = normal_of(wide.cast(pa.large_binary()))
    assert isinstance(texts, Texts)  # noqa: S101  (what normal_of gives for binary columns; tells the type checker)
    lengths = np.diff(texts.offsets) if last else escaped_lengths(texts.offsets, texts.data)
    return _Part(lengths, offsets=texts.offsets, data=texts.data, escape=not last)


def _big_endian(column: pa.Array, width: int) -> U8:
    rows = fixed_values(column, width).reshape(-1, width)[:, ::-1].copy()
    rows[:, 0] ^= 0x80
    return rows.reshape(-1)


@dataclass(frozen=True, slots=True)
class Fences:
    """The first and the last key of every page, of pages in key order: some bytes a page."""

    first: Normal
    last: Normal

    def home(self, keys: Normal, valid: Bool) -> I64:
        """The page in whose range a key lies; -1 for keys between pages, beyond them, or null."""
        pages = last_not_above(keys, self.first)
        if len(self.first) == 0:
            return np.full(len(keys), -1, np.int64)
        beyond = above(keys, self.last, np.maximum(pages, 0))
        pages[beyond | ~valid] = -1
        return pages


@dataclass(frozen=True, slots=True)
class Dense:
    """The page of every single key, by a sorted array of codes: 12 bytes a key, usually mapped from a file.

    For numbers the code is the key. For other keys it is a hash, good for finding a page but not for equality; the
    few keys of different pages that share a hash are kept whole, in order, in `clashes`.
    """

    codes: I64
    pages: I32
    clashes: tuple[Normal, I64] | None = None

    def home(self, keys: Normal, valid: Bool) -> I64:
        """The page of each key; -1 where there is certainly none."""
        codes = keys.codes()
        if len(self.codes) == 0:
            return np.full(len(codes), -1, np.int64)
        at = np.minimum(count_below(self.codes, codes), len(self.codes) - 1)
        pages = np.where((self.codes[at] == codes) & valid, self.pages[at], -1).astype(np.int64)
        if self.clashes is not None:
            suspect = np.flatnonzero(np.isin(codes, self.clashes[0].codes()) & valid)
            pages[suspect] = _exactly(keys.take(suspect), *self.clashes)
        return pages


def _exactly(keys: Normal, known: Normal, known_pages: I64) -> I64:
    """The pages of keys whose hash stands for several, by the keys themselves."""
    at = last_not_above(keys, known)
    picked = np.maximum(at, 0)
    found = (at >= 0) & ~above(keys, known, picked)
    return np.where(found, known_pages[picked], -1)


def dense_index(codes: I64, pages: I64) -> tuple[I64, I32, I64]:
    """Codes in order, the page of each, and the codes that occur with several pages."""
    order = np.argsort(codes, kind="stable")
    codes, pages = codes[order], pages[order]
    clashes = codes[1:][(codes[1:] == codes[:-1]) & (pages[1:] != pages[:-1])]
    return codes, pages.astype(np.int32), np.unique(clashes)


def hashes_of(keys: Normal) -> Numbers:
    """A hash of each key, spread over all 64 bits whatever the keys are; equal keys have equal ones."""
    codes = keys.codes()
    return Numbers(folded(np.zeros(len(codes), np.int64), codes))


@dataclass(frozen=True, slots=True)
class Buckets:
    """The first and the last hash of every page, of pages in the order of hashes: 16 bytes a page, however wide keys
    are. Keys of one hash are in one page."""

    fences: Fences

    def home(self, keys: Normal, valid: Bool) -> I64:
        """The page in whose range of hashes a key lies; -1 for hashes between pages, beyond them, or null."""
        return self.fences.home(hashes_of(keys), valid)


Index = Fences | Dense | Buckets


_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())


def comparable(stream: pa.DataType, master: pa.DataType) -> bool:
    """Whether every value of the stream's type is also one of the master's type, so that keys can be cast."""
    if pa.types.is_dictionary(stream):
        stream = stream.value_type
    if stream == master or (stream in _TEXT and master in _TEXT) or (stream in _BINARY and master in _BINARY):
        return True
    if not (pa.types.is_integer(stream) and pa.types.is_signed_integer(master)):
        return False
    room = master.bit_width - (not pa.types.is_signed_integer(stream))
    return bool(stream.bit_width <= room)


def order_kind(kind: pa.DataType) -> tuple[object, ...] | None:
    """The property that two types must share to be compared by order; None for types without one here."""
    if pa.types.is_dictionary(kind):
        return order_kind(kind.value_type)
    if pa.types.is_timestamp(kind):
        return ("timestamp", kind.tz is None)
    if is_text(kind):
        return ("text",)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return ("binary",)
    if pa.types.is_boolean(kind) or not is_number(kind):
        return None
    if pa.types.is_decimal(kind):
        return ("decimal", kind.scale)
    if pa.types.is_integer(kind):
        return ("integer", pa.types.is_uint64(kind))
    return ("float",) if pa.types.is_floating(kind) else (str(kind),)


def key_columns(batch: pa.RecordBatch, names: Sequence[str], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The key columns of stream rows in the types that the master data has them in."""
    found = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return [a if a.type == kind else a.cast(kind) for a, kind in zip(found, types, strict=True)]


def check_keys(
    stream: pa.Schema, on: Sequence[str], master: pa.Schema, key: Sequence[str], ranged: bool = False
) -> None:
    """`PlanError` unless the stream has these columns, as many as the master's key, and of types that compare.

    With `ranged` the last one is a value that lies in a range: it need only have the order of the bounds.
    """
    missing = [name for name in on if name not in stream.names]
    if missing:
        raise PlanError(f"the stream has no column {missing}; it has {stream.names}.", argument="on")
    if len(on) != len(key):
        raise PlanError(
            f"on={list(on)} names {len(on)} columns; the master data has the key {list(key)}.", argument="on"
        )
    for name, other in zip(on, key, strict=True):
        mine, theirs = stream.field(name).type, master.field(other).type
        in_order = ranged and other == key[-1] and order_kind(mine) == order_kind(theirs)
        if not (in_order or comparable(mine, theirs)):
            raise PlanError(
                f"stream column {name!r} is {mine}, master key {other!r} is {theirs}; cast the former to {theirs}.",
                argument="on",
            )
