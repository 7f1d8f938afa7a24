"""Columns of a scan as texts: one for each row, or a list of them, without a Python object a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, NO_BYTES, U8, Bool
from dovetail.xml.execute.columns import Path
from dovetail.xml.scan import count_name


def column_name(path: Path, many: bool) -> str:
    """The scan's column of a path."""
    return f"{'*' if many else ''}{'/'.join(path) or '.'}"


@dataclass(frozen=True, slots=True)
class Texts:
    """At most one text a row: whether there is one, and whether there are no more (else the text says nothing)."""

    array: pa.StringArray
    present: Bool
    known: Bool

    def buffers(self) -> tuple[I32, U8]:
        """Where each text starts and ends, and the bytes of all; a row without text has an empty one."""
        rows, (_, offsets, data) = len(self.array), self.array.buffers()
        first = self.array.offset
        places = np.frombuffer(offsets, np.int32)[first : first + rows + 1] if rows else np.zeros(1, np.int32)
        return places, NO_BYTES if data is None else np.frombuffer(data, np.uint8)


def texts_of(batch: pa.RecordBatch, name: str, many: bool) -> Texts:
    """The texts of a column for which a row has one or none."""
    if not many:
        counts = batch[count_name(name)].to_numpy()
        return Texts(batch[name], counts > 0, counts <= 1)
    lists = batch[name]
    offsets = lists.offsets.to_numpy()
    counts = np.diff(offsets)
    if np.all(counts == 1):
        return Texts(lists.flatten(), counts > 0, counts <= 1)
    places = pa.array(offsets[:-1], mask=counts == 0)
    return Texts(lists.values.take(places), counts > 0, counts <= 1)


def lists_of(batch: pa.RecordBatch, name: str, many: bool) -> pa.ListArray | None:
    """All texts of a column, a list for each row; None if some row has more texts than the column holds."""
    if many:
        return batch[name]
    counts = batch[count_name(name)].to_numpy()
    if np.any(counts > 1):
        return None
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), batch[name].drop_null())


def side_by_side(columns: list[pa.ListArray]) -> pa.Array:
    """All texts of all columns: row by row, in a row column by column."""
    if len(columns) == 1:
        return columns[0].flatten()
    offsets = np.stack([one.offsets.to_numpy().astype(np.int64) for one in columns], axis=1)
    counts = np.diff(offsets, axis=0).reshape(-1)
    base = np.cumsum([0, *(len(one.values) for one in columns[:-1])])
    sources = (offsets[:-1] + base).reshape(-1)
    targets = np.cumsum(counts) - counts
    places = np.repeat(sources - targets, counts) + np.arange(counts.sum())
    return pa.concat_arrays([one.values for one in columns]).take(pa.array(places))
