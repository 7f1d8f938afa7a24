"""Parquet files as pages: which row groups make a page, and whether their statistics can serve as an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dovetail.engine.kernels.arrays import I64
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.index import Fences
from dovetail.joins.semistream.master.key_form import KeyForm, key_form
from dovetail.joins.semistream.master.normal import Normal, above


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: its file, its number there, its rows with a key, all its rows, and what its footer says."""

    file: int
    number: int
    rows: int
    total: int
    nbytes: int
    low: object
    high: object


@dataclass(frozen=True, slots=True)
class ParquetLayout:
    """One version of Parquet files as pages: row groups by the lowest key, those that share a key in one page.

    `fences` are of the first key column. Without them pages are row groups as they come, `reason` says why, and rows
    of one key may lie in several pages.
    """

    schema: pa.Schema
    fragments: tuple[ds.ParquetFileFragment, ...]
    pages: tuple[tuple[RowGroup, ...], ...]
    fences: Fences | None
    reason: str
    null_groups: tuple[RowGroup, ...]  # row groups that have rows with a null in the key

    @property
    def null_keys(self) -> int:
        """Rows with a null in the key."""
        return sum(group.total - group.rows for group in self.null_groups)

    @property
    def starts(self) -> I64:
        """The number of the first row of each page, and of all rows."""
        rows = [sum(group.rows for group in page) for page in self.pages]
        return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)

    @property
    def page_bytes(self) -> I64:
        """Bytes of each page in its file."""
        return np.array([sum(group.nbytes for group in page) for page in self.pages], np.int64)


def lay_out(dataset: ds.Dataset, schema: pa.Schema, key: tuple[str, ...]) -> ParquetLayout:
    """Pages of the dataset, by the footers of its files."""
    form = key_form(schema, key)
    fragments = tuple(dataset.get_fragments())
    found = list[RowGroup]()
    for number, fragment in enumerate(fragments):
        fragment.ensure_complete_metadata()
        _check_columns(fragment, dataset.schema)
        found += _groups(number, fragment, schema, form)
    pages, fences, reason = _paged([group for group in found if group.rows], schema.field(key[0]))
    nulls = tuple(group for group in found if group.rows < group.total)
    return ParquetLayout(schema, fragments, pages, fences, reason, nulls)


def _check_columns(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> None:
    """A file without a column, or with another type, would be read as nulls: refuse it."""
    partitioned = set(ds.get_partition_keys(fragment.partition_expression))
    for field in schema:
        at = fragment.physical_schema.get_field_index(field.name)
        if field.name not in partitioned and (at < 0 or fragment.physical_schema.field(at).type != field.type):
            found = "no such column" if at < 0 else str(fragment.physical_schema.field(at).type)
            raise ConfigError(
                f"{fragment.path}: column {field.name!r} is {field.type} in other files, here {found}; write the files "
                f"with one schema."
            )


def _groups(file: int, fragment: ds.ParquetFileFragment, schema: pa.Schema, form: KeyForm) -> list[RowGroup]:
    """The row groups of a file."""
    found, metadata = list[RowGroup](), fragment.metadata
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = [group.column(places[name]).statistics if name in places else None for name in form.names]
        rows = _keyed_rows(fragment, number, group.num_rows, statistics, schema, form)
        low, high = _range(statistics[0])
        nbytes = sum(group.column(at).total_compressed_size for at in range(metadata.num_columns))
        found.append(RowGroup(file, number, rows, group.num_rows, nbytes, low, high))
    return found


def _range(statistics: pq.Statistics | None) -> tuple[object, object]:
    if statistics is None or not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except ValueError:  # text that its writer cut in the middle of a character
        return None, None


def _keyed_rows(
    fragment: ds.ParquetFileFragment, number: int, rows: int, statistics: Sequence[pq.Statistics | None],
    schema: pa.Schema, form: KeyForm,
) -> int:  # fmt: skip
    """Rows without a null in the key: by the footer if it tells, else by reading the key."""
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    some = [n for n in nulls if n != 0]
    if len(some) <= 1 and None not in some:
        return int(rows - sum(n for n in some if n is not None))
    keys = fragment.subset(row_group_ids=[number]).to_table(schema=schema, columns=list(form.names))
    return int(form.normal([keys.column(name) for name in form.names])[1].sum())


def _paged(groups: list[RowGroup], first: pa.Field) -> tuple[tuple[tuple[RowGroup, ...], ...], Fences | None, str]:
    """Pages, their fences, and if there are none the reason."""
    as_they_come = tuple((group,) for group in groups)
    if pa.types.is_floating(first.type):
        return as_they_come, None, f"statistics of {first.name!r}, a float, do not cover NaN"
    if any(group.low is None for group in groups):
        return as_they_come, None, f"some row groups have no statistics of {first.name!r}"
    form = KeyForm((first.name,), (first.type,))
    lows, highs = (form.normal([pa.array([getattr(g, end) for g in groups], first.type)])[0] for end in ("low", "high"))
    order = lows.sorted_rows()
    lows, highs = lows.take(order), highs.take(order)
    before = np.arange(max(len(groups) - 1, 0))
    later_lows, earlier_highs = lows.take(before + 1), highs.take(before)
    if above(earlier_highs, later_lows, before).any():
        at = int(np.flatnonzero(above(earlier_highs, later_lows, before))[0])
        one, other = groups[order[at]], groups[order[at + 1]]
        reason = (
            f"row groups overlap in {first.name!r}: {one.low!r} to {one.high!r}, and {other.low!r} to {other.high!r}"
        )
        return as_they_come, None, reason
    apart = above(later_lows, earlier_highs, before)
    return _merged([groups[at] for at in order], lows, highs, apart)


def _merged(
    groups: list[RowGroup], lows: Normal, highs: Normal, apart: np.ndarray
) -> tuple[tuple[tuple[RowGroup, ...], ...], Fences, str]:
    """Row groups in order, those in one page that touch: one key may lie in both."""
    starts = np.concatenate([np.zeros(min(len(groups), 1), np.int64), np.flatnonzero(apart) + 1]).astype(np.int64)
    stops = np.append(starts[1:], len(groups)).astype(np.int64)[: len(starts)]
    pages = tuple(tuple(groups[start:stop]) for start, stop in zip(starts, stops, strict=True))
    return pages, Fences(lows.take(starts), highs.take(stops - 1)), ""
