"""Splits a budget between rows, index, answers and buffers; finds the smallest budget that works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.engine.rows.columns import fixed_width
from dovetail.errors import PlanError

_LEAST_ROWS = 8
_TEXT_BYTES = 24
_LARGEST_SHARE = 8 << 20
_MOST_COMBINATIONS = 1 << 15
_MOST_CHUNK_ROWS = 1 << 14
_BESIDE, _LEAST_BESIDE = 16, 8 << 10


def beside_bytes(limit: int) -> int:
    """The part of a budget that a caller has beside the operator, if it needs one."""
    return max(limit // _BESIDE, _LEAST_BESIDE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that a user may fix; those that are None follow from the budget.

    `memory_rows` bounds the rows in memory beside their bytes. `block_rows` is the unit of flushing and of reactive
    work; between 20 and 200 blocks should fit in memory. `partitions` is the number of hash buckets an input.
    `outer_blocks` is how many blocks the reactive nested loop holds against one (printed 19). `fan_in` is how many
    segments a merge takes at once (printed 10).
    """

    memory_rows: int | None = None
    block_rows: int | None = None
    partitions: int | None = None
    outer_blocks: int = 19
    fan_in: int = 10

    def __post_init__(self) -> None:
        for name in ("memory_rows", "block_rows", "partitions", "outer_blocks", "fan_in"):
            value = getattr(self, name)
            least = 2 if name in ("memory_rows", "fan_in") else 1
            if value is not None and value < least:
                raise PlanError(f"{name}={value} is too small; the least is {least}.", argument=name)

    def __str__(self) -> str:
        rows = "rows by budget" if self.memory_rows is None else f"{self.memory_rows} rows"
        block = "by budget" if self.block_rows is None else str(self.block_rows)
        return f"{rows}, blocks of {block}"


FITTED = Sizes()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that an operator needs besides the columns of rows.

    Of each slot (`kept` bytes of it stay to the end), of each bucket, and a fixed part; of each arriving row and each
    loaded row; of each collected combination, and how much of an answer each one stands for; of each block beside its
    rows, and of each row that is written. `buffer` is the part of the budget (8 for an eighth) that is kept free for
    blocks, 0 if rows make room for them; `bucket_rows` are those that a bucket should be able to hold. `beside` says
    that the caller has a part of the budget.
    """

    slot: int
    kept: int = 0
    bucket: int = 0
    fixed: int = 0
    arriving: int = 48
    loaded: int = 80
    combination: int = 16
    answer: int = 64
    block: int = 1024
    written: int = 0
    buffer: int = 0
    bucket_rows: int = 16
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A budget of `limit` bytes split: `slots` rows with those that leave, `rows` of them may stay, with `row_bytes`
    of columns; blocks of `block_rows` with at most `block_bytes`; chunks of arrivals; combinations collected and bytes
    of an answer batch; bytes of rows and index besides columns."""

    needs: Footprint
    limit: int
    widths: tuple[int, ...]
    slots: int
    rows: int
    row_bytes: int
    block_rows: int
    block_bytes: int
    partitions: int
    chunk_rows: int
    chunk_bytes: int
    combinations: int
    answer_bytes: int

    @property
    def index_bytes(self) -> int:
        """Bytes of slots, index and buckets."""
        return self.needs.fixed + self.needs.slot * self.slots + self.needs.bucket * self.partitions

    def rows_of_a_block(self, width: int) -> int:
        """Rows of a block where rows are as wide as this: fewer where they are wide, so that blocks fit in memory."""
        return max(1, min(self.block_rows, self.block_bytes // (max(1, width) + self.needs.written)))


def estimated_row_bytes(schema: pa.Schema) -> int:
    """Bytes of a row: exact for fixed-width columns, a guess for the others."""
    return sum(_estimated(field.type) for field in schema)


def _estimated(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return 1
    if pa.types.is_struct(kind):
        return sum(_estimated(kind.field(i).type) for i in range(kind.num_fields)) + 1
    width = fixed_width(kind)
    return _TEXT_BYTES if width is None else width


def widths_of(schemas: Sequence[pa.Schema], seen: Mapping[int, int], alike: bool = True) -> tuple[int, ...]:
    """Bytes of a row of each input: measured where rows were seen, else estimated.

    Where all columns have a fixed width, few rows, whose validity takes whole bytes, count as no wider than rows can
    be; before any rows are seen, that width is expected. If inputs are `alike`, the estimate is corrected by the error
    of an input that was seen.
    """
    guessed = [max(1, estimated_row_bytes(schema)) for schema in schemas]
    fixed = [all(fixed_width(field.type) is not None for field in schema) for schema in schemas]
    most = [n + _validity_bytes(schema) for n, schema in zip(guessed, schemas, strict=True)]
    known = {r: max(1, min(width, most[r]) if fixed[r] else width) for r, width in seen.items()}
    ratio = max((width / guessed[r] for r, width in known.items()), default=1.0)
    expected = [
        (n if seen else most[r]) if fixed[r] else int(n * ratio) + 1 if alike else n for r, n in enumerate(guessed)
    ]
    return tuple(known.get(r, n) for r, n in enumerate(expected))


def _validity_bytes(schema: pa.Schema) -> int:
    return -(-sum(1 for field in schema if field.nullable) // 8)


def block_overhead(schema: pa.Schema) -> int:
    """Bytes of a block beside its rows: headers, and buffers rounded up."""
    return 512 + 192 * (len(schema) + 3)


def fit(
    sizes: Sizes,
    limit: int,
    schemas: Sequence[pa.Schema],
    seen: Mapping[int, int],
    needs: Footprint,
    alike: bool = True,
) -> Fitted:
    """The split of `limit` bytes for rows as wide as `widths_of` says; `PlanError` with the smallest limit if it fails.

    A limit that is enough before rows are seen is enough for narrower ones, which would have more slots and partitions.
    """
    widths, expected = widths_of(schemas, seen, alike), widths_of(schemas, {}, alike)
    widest = tuple(map(max, zip(widths, expected, strict=True)))
    fitted = _split(sizes, limit, widths, needs) or _split(sizes, limit, widest, needs)
    if fitted is None:
        least = _least(sizes, limit, widths, needs)
        rows = f"rows of some {widths[0]} and {widths[1]} bytes"
        if len(widths) > 2:
            rows = f"{len(widths)} inputs with rows of some {list(widths)} bytes"
        raise PlanError(
            f"a budget of {format_bytes(limit)} ({limit} bytes) is too small for {rows}; the smallest for this join is "
            f"{least} bytes ({format_bytes(least)}).",
            argument="memory",
        )
    return fitted


def _split(sizes: Sizes, limit: int, widths: tuple[int, ...], needs: Footprint) -> Fitted | None:
    n, width = len(widths), -(-sum(widths) // len(widths))
    limit -= beside_bytes(limit) if needs.beside else 0
    answer, chunk = min(limit // 8, _LARGEST_SHARE), min(limit // 16, _LARGEST_SHARE // 2)
    combinations = max(16, min(_MOST_COMBINATIONS, answer // needs.answer))
    partitions = sizes.partitions or max(1, min(50, limit // (needs.bucket_rows * (width + needs.slot))))
    buffer = limit // needs.buffer if needs.buffer else 0
    rest = limit - answer - 2 * chunk - buffer - needs.combination * combinations - needs.fixed
    rest -= needs.bucket * partitions
    slots = rest // (width * 8 // 7 + needs.slot)
    if slots < _LEAST_ROWS or answer < 2 * sum(widths) or chunk < max(widths) + 256:
        return None
    rows = slots - max(1, slots // 16)
    if sizes.memory_rows is not None and sizes.memory_rows < rows:
        rows = sizes.memory_rows
        slots = rows + max(2, rows // 16)
    columns = (rest - slots * needs.slot) * 7 // 8
    if needs.buffer:  # a block of each input, with what is read next, must fit once memory is empty
        block_bytes = (buffer + columns) // (2 * (n + 2)) - needs.block
        most = block_bytes // (max(widths) + needs.loaded)
    else:  # blocks of both sides must
        block_bytes = limit // 8
        most = ((limit - answer - needs.combination * combinations) // 4 - needs.block) // (max(widths) + needs.loaded)
    if most < 1:
        return None
    block = min(sizes.block_rows or max(1, min(8, rows // 4), rows // 40), most, max(1, rows))
    chunk_rows = max(1, min(_MOST_CHUNK_ROWS, chunk // (width + needs.arriving)))
    return Fitted(
        needs, limit, widths, slots, rows, columns, block, block_bytes, partitions, chunk_rows, chunk, combinations,
        answer,
    )  # fmt: skip


def _least(sizes: Sizes, limit: int, widths: tuple[int, ...], needs: Footprint) -> int:
    high = max(64, limit)
    while _split(sizes, high, widths, needs) is None:
        high *= 2
    low = limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _split(sizes, middle, widths, needs) is not None else (middle, high)
    return high
