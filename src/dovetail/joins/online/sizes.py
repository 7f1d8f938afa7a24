"""How a budget is split between rows, index, answers and buffers; the smallest budget that works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dovetail.engine.buffers import fixed_width
from dovetail.engine.memory import format_bytes
from dovetail.errors import PlanError

_LEAST_ROWS = 8
_TEXT_BYTES = 24
_LARGEST_SHARE = 8 << 20
_MOST_PAIRS = 1 << 15
_MOST_CHUNK_ROWS = 1 << 14
_LOADED_BYTES = 80
ARRIVING_BYTES = 48
"""Bytes of each arriving row beside its columns: keys, ranges, sizes, slots."""
PAIR_BYTES = 16
"""Bytes of each collected pair: two slots while rows arrive, and two row numbers when blocks meet."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that a user may fix; those that are None follow from the budget.

    `memory_rows` bounds the rows in memory beside their bytes. `block_rows` is the unit of flushing and of reactive
    work; between 20 and 200 blocks should fit in memory. `partitions` is the number of hash buckets a side.
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
                raise PlanError(f"{name}={value} is too small; the least is {least}.")

    def __str__(self) -> str:
        rows = "rows by budget" if self.memory_rows is None else f"{self.memory_rows} rows"
        block = "by budget" if self.block_rows is None else str(self.block_rows)
        return f"{rows}, blocks of {block}"


FITTED = Sizes()


@dataclass(frozen=True, slots=True)
class Fitted:
    """A budget of `limit` bytes split: `slots` rows with those that leave, of which `rows` may stay, with `row_bytes`
    of columns; chunks of arrivals; pairs collected and bytes of an answer batch."""

    limit: int
    widths: tuple[int, int]
    slots: int
    rows: int
    row_bytes: int
    block_rows: int
    partitions: int
    chunk_rows: int
    chunk_bytes: int
    pairs: int
    answer_bytes: int
    sizes: Sizes


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


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an operator needs besides columns: bytes a slot, bytes a bucket, a fixed part, and bytes a block."""

    slot: int
    bucket: int = 0
    fixed: int = 0
    block: int = 1024


def widths_of(schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> tuple[int, int]:
    """Bytes of a row of each side: measured where rows were seen, else estimated, as wrongly as the seen side was."""
    guessed = [max(1, estimated_row_bytes(schema)) for schema in schemas]
    ratio = max((width / guessed[side] for side, width in seen.items()), default=1.0)
    fixed = [all(fixed_width(field.type) is not None for field in schema) for schema in schemas]
    found = [seen.get(side, guessed[side] if fixed[side] else int(guessed[side] * ratio) + 1) for side in (0, 1)]
    return max(1, found[0]), max(1, found[1])


def block_overhead(schema: pa.Schema) -> int:
    """Bytes of a block beside its rows: headers, and buffers rounded up."""
    return 512 + 192 * (len(schema) + 3)


def fit(sizes: Sizes, limit: int, widths: tuple[int, int], needs: Footprint) -> Fitted:
    """The split of `limit` bytes for rows that are so wide; `PlanError` with the smallest limit if it is too small."""
    fitted = _split(sizes, limit, widths, needs)
    if fitted is None:
        least = _least(sizes, limit, widths, needs)
        raise PlanError(
            f"a budget of {format_bytes(limit)} ({limit} bytes) is too small for rows of some {widths[0]} and "
            f"{widths[1]} bytes; the smallest for this join is {least} bytes ({format_bytes(least)}).",
            argument="memory",
        )
    return fitted


def _split(sizes: Sizes, limit: int, widths: tuple[int, int], needs: Footprint) -> Fitted | None:
    answer, chunk = min(limit // 8, _LARGEST_SHARE), min(limit // 16, _LARGEST_SHARE // 2)
    pairs = max(16, min(_MOST_PAIRS, answer // 64))
    width = max(1, (widths[0] + widths[1] + 1) // 2)
    partitions = sizes.partitions or max(1, min(50, limit // (16 * (width + needs.slot))))
    rest = limit - answer - 2 * chunk - PAIR_BYTES * pairs - needs.fixed - needs.bucket * partitions
    slots = rest // (width * 8 // 7 + needs.slot)
    if slots < _LEAST_ROWS or answer < 2 * sum(widths) or chunk < max(widths) + 256:
        return None
    rows = slots - max(1, slots // 16)
    if sizes.memory_rows is not None and sizes.memory_rows < rows:
        rows = sizes.memory_rows
        slots = rows + max(2, rows // 16)
    block = sizes.block_rows or max(1, min(8, rows // 4), rows // 40)
    columns = (rest - slots * needs.slot) * 7 // 8
    fits = ((limit - answer - PAIR_BYTES * pairs) // 4 - needs.block) // (max(widths) + _LOADED_BYTES)
    if fits < 1:
        return None  # blocks of both sides must fit once memory is empty
    block = min(block, fits)
    chunk_rows = max(1, min(_MOST_CHUNK_ROWS, chunk // (width + ARRIVING_BYTES)))
    return Fitted(
        limit,
        widths,
        slots,
        rows,
        columns,
        min(block, max(1, rows)),
        partitions,
        chunk_rows,
        chunk,
        pairs,
        answer,
        sizes,
    )


def _least(sizes: Sizes, limit: int, widths: tuple[int, int], needs: Footprint) -> int:
    high = max(64, limit)
    while _split(sizes, high, widths, needs) is None:
        high *= 2
    low = limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _split(sizes, middle, widths, needs) is not None else (middle, high)
    return high
