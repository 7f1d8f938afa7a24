"""Page files of every order whose rows are all in memory, as a build with Spark would write them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.storage.files import Place, located
from dovetail.joins.semistream.keys import Normal, hashes_of, key_form
from dovetail.joins.semistream.master.page_file.generation import Generation, building, commit
from dovetail.joins.semistream.master.page_file.writer import as_table, page_size
from dovetail.joins.semistream.master.pages import FOUND_BY_PAGE, PageOrder
from dovetail.joins.semistream.plan.build import BuildPlan, _index, _parts, _written


def write_ordered_pages(
    path: str | Place,
    rows: pa.Table,
    key: str | Sequence[str],
    order: PageOrder,
    page: int | str | None = None,
    frequency: str | None = None,
    unique: bool = False,
    keep_nulls: bool = False,
) -> Generation:
    """Writes these rows in one part as a new generation of a page file; by order "none" keys lie as in the input."""
    place, table = located(path), as_table(rows)
    form = key_form(table.schema, key)
    keys, valid = form.normal([table.column(name) for name in form.names])
    kept = np.flatnonzero(valid)
    weights = None if frequency is None else table[frequency].fill_null(0).to_numpy()[kept]
    keyed = table.take(kept[_laid_out(keys.take(kept), order, weights)]).combine_chunks()
    missing = table.filter(~valid).combine_chunks()
    with building(place) as work:
        plan = BuildPlan(work, table.schema, form.names, order, page_size(page, place), unique)
        parts, index_parts = _parts([_written(plan, 0, iter(keyed.to_batches()))] if len(keyed) else [], plan)
        index = None if order in FOUND_BY_PAGE else _index(None, plan, parts, index_parts)  # type: ignore[arg-type]
        null_part = None
        if keep_nulls and len(missing):
            unkeyed = replace(plan, keyed=False)
            ((null_part,), _) = _parts([_written(unkeyed, 0, iter(missing.to_batches()))], unkeyed)
        found = Generation(
            uuid.uuid4().hex[:8], table.schema, form.names, order, unique, plan.page_bytes,
            len(missing), parts, index, null_part=null_part,
        )  # fmt: skip
        return commit(place, work, found)


def _laid_out(keys: Normal, order: PageOrder, weights: I64 | None) -> I64:
    """Row numbers in storage order."""
    by_key = keys.sorted_rows()
    if order == "key" or len(by_key) == 0:
        return by_key
    if order == "hash":
        return by_key[np.argsort(hashes_of(keys).values[by_key], kind="stable")]
    starts = np.concatenate([[0], np.flatnonzero(keys.take(by_key).steps()) + 1])
    # Keys by the first row of each, or by the highest weight.
    rank = np.minimum.reduceat(by_key, starts) if weights is None else -np.maximum.reduceat(weights[by_key], starts)
    lengths = np.diff([*starts, len(by_key)])
    return by_key[np.argsort(np.repeat(rank, lengths), kind="stable")]
