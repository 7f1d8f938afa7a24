"""Between models and operators: what a store and a budget mean for a setting, and tuned sizes as those take them."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa

from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.joins.semistream.cost.distribution import Distribution
from dovetail.joins.semistream.cost.models import model_of
from dovetail.joins.semistream.cost.prediction import Sizes
from dovetail.joins.semistream.cost.setting import EntryBytes, Policy, ReadCosts, Setting, UnitCosts
from dovetail.joins.semistream.kernels.segment_match import scratch_bytes
from dovetail.joins.semistream.kernels.waiting_pool import SEGMENT_BYTES
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.sizes import GARBAGE, PAIR_BYTES, Footprint, asks_for_keys, footprint
from dovetail.joins.semistream.sizes import Sizes as OperatorSizes

_RING_BYTES = 33  # of a row in MESHJOIN's ring, beside its entry in the hash table
_MANY_ROWS = 4096


def setting_of(
    pages: Pages,
    stream: pa.Schema,
    limit: int,
    distribution: Distribution,
    costs: UnitCosts,
    *,
    policy: Policy | None = None,
    arrival: float | None = None,
    batch_rows: int | None = None,
) -> Setting:
    """What joins of a stream with these columns over this store can expect inside a budget of `limit` bytes.

    Reads of a simulated device are priced as it prices them. The index counts as the store's own memory.
    """
    model = pages.device.model
    if model.simulated:
        costs = replace(costs, read=ReadCosts.of_device(model))
    rows, n_pages = int(pages.starts[-1]), max(1, len(pages.starts) - 1)
    cost = footprint(pages, stream, 1, 0, limit)
    keyed = asks_for_keys(pages, ())
    return Setting(
        memory=limit,
        distribution=distribution,
        row_bytes=cost.master_row,
        stream_bytes=max(1.0, cost.stream_row),
        page_bytes=max(1, math.ceil(-(-rows // n_pages) * cost.master_row)),
        costs=costs,
        entries=real_entries(cost),
        order=pages.order,
        indexed=pages.indexed,
        policy=policy or Policy(),
        stored_row_bytes=pages.stored_bytes(0, n_pages) / rows if rows else None,
        arrival=arrival,
        batch_rows=batch_rows,
        keyed=real_entries(replace(cost, keyed=True)) if keyed else None,
    )


def real_entries(cost: Footprint) -> EntryBytes:
    """The bytes that our operators reserve, as the models count them."""
    per_row = 0.1 * cost.master_row + (scratch_bytes(_MANY_ROWS) / _MANY_ROWS) + 16 + PAIR_BYTES
    here = cost.segments.most_rows
    chains = SEGMENT_BYTES * cost.segments.n
    return EntryBytes(
        waiting=cost.waiting_row,
        chunked=_RING_BYTES + HashMultimap(1000).nbytes / 1000 * 2 + GARBAGE * (cost.stream_row + 1),
        chunk_spare=1.0,
        cached_extra=cost.cached_key - cost.master_row,
        # The pinned rows are a segment too: held once to be read, once to be answered from.
        pinned=cost.cached_key + 2.2 * cost.master_row + per_row,
        resident=1.1 * cost.master_row,
        resident_segment=2048.0,
        buffer_extra=per_row,
        fixed=max(0.0, cost.fixed - chains - here * (cost.master_row + per_row)),
        held=cost.hold / 1.1,
        per_segment=float(SEGMENT_BYTES),
    )


def operator_sizes(algorithm: str, sizes: Sizes, setting: Setting) -> OperatorSizes:
    """Tuned sizes as the operator takes them; waiting rows are left to fill what the others leave."""
    pages = sizes.pages(setting.page_rows)
    model = model_of(algorithm)
    if not model.axes:
        return OperatorSizes(per_segment=1)
    if "parts" in model.axes:
        return OperatorSizes(per_segment=pages, parts=min(sizes.parts, pages))
    if model.whole_segments:
        return OperatorSizes(per_segment=pages, resident=sizes.cached_rows // sizes.segment_rows)
    if model.needs_frequency_order:
        return OperatorSizes(per_segment=pages, pinned=round(sizes.cached_rows / setting.page_rows))
    if "cached_rows" in model.axes:
        return OperatorSizes(per_segment=pages, cached=sizes.cached_rows)
    return OperatorSizes(per_segment=pages)
