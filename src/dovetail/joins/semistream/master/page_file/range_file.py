"""Ranges in a page file: each part is laid out in cells, which are the key of its pages, and has a file of them."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place
from dovetail.errors import PlanError
from dovetail.joins.semistream.cells import (
    CELL,
    CellIndex,
    Ranged,
    RangeForm,
    laid_out,
)
from dovetail.joins.semistream.keys import KeyForm, normal_of
from dovetail.joins.semistream.master.page_file.generation import (
    Generation,
    PartFile,
    directory,
)
from dovetail.joins.semistream.master.page_file.tables import checked
from dovetail.joins.semistream.master.page_file.writer import PartWriter, part_name, store_part

_STEP = 65_536


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The parameters with which parts of ranges are written; part n begins at row n - 1 of `splits`."""

    work: Place
    schema: pa.Schema
    ranged: Ranged
    page_bytes: int
    unique: bool
    splits: pa.RecordBatch
    touching: bool = False  # whether ranges that share a bound overlap

    @property
    def form(self) -> RangeForm:
        """How rows become normal keys."""
        return RangeForm(self.schema, self.ranged)

    @property
    def stored(self) -> pa.Schema:
        """The columns of pages."""
        return self.schema.append(pa.field(CELL, pa.int64(), False))

    def write(self, rows: pa.Table, number: int) -> PartFile:
        """The part of this number, of the ranges that begin in it or reach into it."""
        work = self.work
        split = self.splits.slice(number - 1, 1) if number else None
        table, fences = laid_out(rows.cast(self.schema), self.form, number, split, self.unique, self.touching)
        form = KeyForm((CELL,), (pa.int64(),))
        writer = PartWriter(work / part_name(number), self.stored, form, self.page_bytes, True, False)
        try:
            for batch in table.cast(self.stored).to_batches(max_chunksize=_STEP):
                writer.append(batch)
            part = store_part(work, writer.finish())
        except BaseException:
            writer.abort()
            raise
        name, crc = _store_cells(work, part, fences)
        return replace(part, number=number, cells_file=name, cells_crc=crc)

    def generation(self, parts: Sequence[PartFile], null_keys: int) -> Generation:
        """The description of the whole file."""
        return Generation(
            uuid.uuid4().hex[:8], self.stored, (CELL,), "key", self.unique, self.page_bytes, null_keys, tuple(parts),
            None, ranged=self.ranged,
        )  # fmt: skip


def _store_cells(work: Place, part: PartFile, fences: pa.Array) -> tuple[str, int]:
    sink = pa.BufferOutputStream()
    table = pa.table({"key": fences})
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table, max_chunksize=max(1, len(fences)))
    data = sink.getvalue()
    name = part.rows_file.removesuffix(".rows") + ".cells"
    files.write(work / name, data)
    return name, zlib.crc32(data)


def open_cells(home: Place, generation: Generation, ranged: Ranged) -> CellIndex:
    """The cells of all parts, mapped, after their checksums were compared."""
    form = RangeForm(generation.schema, ranged)
    parts = [normal_of(_cell_keys(home / part.cells_file, part.cells_crc)) for part in generation.parts]
    return CellIndex(form, parts, [part.number for part in generation.parts])


def _cell_keys(path: Place, crc: int) -> pa.Array:
    table = pa.ipc.open_file(checked(files.mapped, path, crc)).read_all()
    return table.column(0).chunk(0) if table.num_rows else pa.array([], table.schema.field(0).type)


def explain_ranges(path: Place, found: Generation, ranged: Ranged) -> str:
    """The page file in some lines."""
    cells = len(open_cells(directory(path, found.number), found, ranged))
    key = f", key {list(ranged.key)}" if ranged.key else ""
    overlap = "refused" if found.unique else "in all cells that they reach into"
    return (
        f"page file {path}, version {found.version} of {found.created}\n"
        f"  ranges {ranged.start} to {ranged.end}{key}, in {cells} cells; overlapping ones are {overlap}\n"
        f"  {found.rows} rows in {found.n_pages} pages of {format_bytes(found.page_bytes)}, "
        f"{format_bytes(found.nbytes)} on disk in {len(found.parts)} parts; "
        f"{found.null_keys} rows without a key left out"
    )


def overlap_at_bounds(closed: str | None, kind: pa.DataType) -> bool:
    """Whether ranges that share a bound overlap: if both belong to a range, as they do unless these are times."""
    if closed not in (None, "left", "right", "both", "neither"):
        raise PlanError(f"closed={closed!r}; it is one of 'left', 'right', 'both', 'neither'.", argument="closed")
    return closed == "both" if closed else not (pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def check_options(order: str, keep_nulls: bool) -> None:
    """`PlanError` for options of a page file that ranges do not have."""
    if order != "key" or keep_nulls:
        raise PlanError(
            f"order={order!r}, keep_nulls={keep_nulls} with bounds: ranges are stored in their own order, without rows "
            f"that have a null in the key; leave both out.",
            argument="order" if order != "key" else "keep_nulls",
        )
