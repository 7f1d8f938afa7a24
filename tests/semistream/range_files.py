"""Page files of ranges whose rows are all in memory, as a build with Spark would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.storage.files import Place, located
from dovetail.joins.semistream.cells import RangeForm, check_ranged, kept_splits, parts_reached, split_points
from dovetail.joins.semistream.master.page_file.generation import Generation, building, commit
from dovetail.joins.semistream.master.page_file.range_file import RangePlan, overlap_at_bounds
from dovetail.joins.semistream.master.page_file.writer import as_table, page_size


def write_range_pages(
    path: str | Place,
    rows: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    key: str | Sequence[str],
    bounds: Sequence[str],
    page: int | str | None = None,
    unique: bool = False,
    parts: int = 1,
    closed: str | None = None,
) -> Generation:
    """Writes these ranges, all in memory, as a new generation of a page file in as many parts, and returns it."""
    place, table = located(path), as_table(rows)
    ranged = check_ranged(table.schema, (key,) if isinstance(key, str) else tuple(key), bounds)
    keyed = table
    for name in ranged.key:
        keyed = keyed.filter(pc.is_valid(keyed[name]))
    form = RangeForm(table.schema, ranged)
    with building(place) as work:
        splits = split_points(keyed, form, parts if keyed.num_rows else 1)
        batch = pa.Table.combine_chunks(keyed).to_batches()
        if batch:
            first, last = parts_reached(batch[0], form, splits)
            kept = kept_splits(first, last, np.ones(len(first), np.int64), splits.num_rows + 1)
            splits = splits.take(pa.array(kept))
        touching = overlap_at_bounds(closed, form.kind)
        plan = RangePlan(work, table.schema, ranged, page_size(page, place), unique, splits, touching)
        first, last = parts_reached(batch[0], form, splits) if batch else (np.empty(0, np.int64),) * 2
        chosen = [keyed.filter(pa.array((first <= n) & (last >= n))) for n in range(splits.num_rows + 1)]
        written = [plan.write(part, n) for n, part in enumerate(chosen)]
        return commit(place, work, plan.generation(written, table.num_rows - keyed.num_rows))
