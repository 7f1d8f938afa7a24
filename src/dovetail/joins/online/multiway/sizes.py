"""How a budget is split between rows, indexes, combinations and blocks of a multiway join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.errors import PlanError
from dovetail.joins.online.sizes import Sizes, block_overhead, estimated_row_bytes

_LEAST_ROWS = 8
_LARGEST_SHARE = 8 << 20
_MOST_COMBOS = 1 << 15


@dataclass(frozen=True, slots=True)
class MultiFitted:
    """A budget split: `slots` rows with those that leave, of which `rows` may stay, with `row_bytes` of columns; blocks
    of `block_rows` with at most `block_bytes`; chunks of arrivals; combinations collected; bytes of an answer batch."""

    widths: tuple[int, ...]
    slots: int
    rows: int
    row_bytes: int
    block_rows: int
    block_bytes: int
    buckets: int
    chunk_rows: int
    chunk_bytes: int
    combos: int
    answer_bytes: int
    index_bytes: int


@dataclass(frozen=True, slots=True)
class MultiFootprint:
    """What an operator needs besides columns: bytes a slot, keys of the input that has the most, bytes of each loaded
    row, and a fixed part."""

    slot: int
    keys: int
    loaded: int
    fixed: int = 4096


def row_widths(schemas: Sequence[pa.Schema], seen: Mapping[int, int]) -> tuple[int, ...]:
    """Bytes of a row of each input: measured where rows were seen, else estimated."""
    return tuple(seen.get(r, max(1, estimated_row_bytes(schema))) for r, schema in enumerate(schemas))


def arriving_bytes(keys: int) -> int:
    """Bytes of each arriving row beside its columns: keys twice, sizes, slots."""
    return 16 * keys + 24


def fit_multi(
    sizes: Sizes, limit: int, widths: tuple[int, ...], schemas: Sequence[pa.Schema], needs: MultiFootprint
) -> MultiFitted:
    """The split of `limit` bytes; `PlanError` with the smallest limit if it is too small."""
    overhead = max(block_overhead(schema) + 64 * needs.keys for schema in schemas)
    fitted = _split(sizes, limit, widths, overhead, needs)
    if fitted is None:
        least = _least(sizes, limit, widths, overhead, needs)
        raise PlanError(
            f"a budget of {format_bytes(limit)} ({limit} bytes) is too small for {len(widths)} inputs with rows of "
            f"some {list(widths)} bytes; the smallest for this join is {least} bytes ({format_bytes(least)}).",
            argument="memory",
        )
    return fitted


def _split(
    sizes: Sizes, limit: int, widths: tuple[int, ...], overhead: int, needs: MultiFootprint
) -> MultiFitted | None:
    n, width = len(widths), -(-sum(widths) // len(widths))
    answer, chunk = min(limit // 8, _LARGEST_SHARE), min(limit // 16, _LARGEST_SHARE // 2)
    combos = max(16, min(_MOST_COMBOS, answer // (16 * n)))
    buckets = sizes.partitions or max(1, min(50, limit // (16 * n * (width + needs.slot))))
    buffer = limit // 8  # for blocks: where rows are narrow, those in memory could not make room for one of each input
    rest = limit - answer - 2 * chunk - buffer - 12 * n * combos - needs.fixed - 16 * buckets
    slots = rest // (width * 8 // 7 + needs.slot)
    if slots < _LEAST_ROWS or answer < 2 * sum(widths) or chunk < max(widths) + 256:
        return None
    columns = (rest - slots * needs.slot) * 7 // 8
    rows = slots - max(1, slots // 16)
    if sizes.memory_rows is not None and sizes.memory_rows < rows:
        rows = sizes.memory_rows
        slots = rows + max(2, rows // 16)
    block_bytes = (buffer + columns) // (2 * (n + 2))
    fits = (block_bytes - overhead) // (max(widths) + needs.loaded)
    if fits < 1:
        return None  # a block of each input, with what is read next, must fit once memory is empty
    block = min(sizes.block_rows or max(1, min(8, rows // 4), rows // 40), fits, max(1, rows))
    chunk_rows = max(1, min(1 << 14, chunk // (width + arriving_bytes(needs.keys))))
    index = needs.fixed + needs.slot * slots + 16 * buckets
    return MultiFitted(
        widths, slots, rows, columns, block, block_bytes - overhead, buckets, chunk_rows, chunk, combos, answer, index
    )


def _least(sizes: Sizes, limit: int, widths: tuple[int, ...], overhead: int, needs: MultiFootprint) -> int:
    high = max(64, limit)
    while _split(sizes, high, widths, overhead, needs) is None:
        high *= 2
    low = limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _split(sizes, middle, widths, overhead, needs) is not None else (middle, high)
    return high
