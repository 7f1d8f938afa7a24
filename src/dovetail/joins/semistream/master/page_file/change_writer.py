"""Writes changes of a page file: the pages that they touch again, and a generation that has all others where they are.

A task gets the changes of some pages in order, merges them with the rows of these pages and writes the new pages to a
file of its own. The driver puts the table of all pages together: the cost is that of the touched pages, and some 80
bytes for every page. Files of earlier changes are merged, so that they stay few and most of their pages in use; a page
is copied a logarithmic number of times.
Reference: docs/algorithms/semistream.md, 6.20.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.keys import last_not_above
from dovetail.joins.semistream.master.page_file.changes import PAGE, ChangeForm
from dovetail.joins.semistream.master.page_file.generation import (
    Applied,
    Generation,
    Layout,
    PartFile,
    commit,
    load_version,
)
from dovetail.joins.semistream.master.page_file.reader import PageFile
from dovetail.joins.semistream.master.page_file.tables import page_table, part_table, placed
from dovetail.joins.semistream.master.page_file.writer import PartWriter, part_name, store_part, store_table

LAYOUT = "pages.table"
_ROWS, _BYTES = 4096, 8 << 20  # of changes that are merged at a time
_PAGES_BYTES = 16 << 20  # of pages that are read at a time
_FILES = 64  # of changes that a generation may have


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The parameters with which tasks apply changes to a version of a page file."""

    path: str
    version: str
    work: str
    form: ChangeForm

    def opened(self) -> PageFile:
        """The version that is changed."""
        return PageFile(Path(self.path), load_version(Path(self.path), self.version))


def write_changes(plan: ChangePlan, number: int, batches: Iterable[pa.RecordBatch]) -> dict[str, Any] | None:
    """The pages that these changes touch written again, as a report for `commit_changes`; None without changes.

    Changes come in the order of pages, keys and their own; changes of one page are all here. Memory is some megabytes
    of changes and pages, and the changes of one key.
    """
    given = _changes(plan.form, batches)
    first = next(given, None)
    if first is None:
        return None
    pages = plan.opened()
    try:
        writer = _Rewriter(plan, pages, number)
        try:
            writer.take(*first)
            for changes, open_ended in given:
                writer.take(changes, open_ended)
            return writer.finish()
        except BaseException:
            writer.abort()
            raise
    finally:
        pages.close()


def _changes(form: ChangeForm, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, bool]]:
    """The changes that count, in pieces that end after a key; with each whether its last page goes on in the next."""
    waiting, enough = form.columns.empty_table(), _ROWS
    for batch in batches:
        piece = form.checked(pa.Table.from_batches([batch]).cast(form.columns))
        waiting = pa.concat_tables([waiting, piece])
        if waiting.num_rows < enough and waiting.nbytes < max(_BYTES, _BYTES * enough // _ROWS):
            continue
        steps = np.flatnonzero(form.keys(waiting).steps())
        cut = int(steps[-1]) + 1 if len(steps) else 0
        if cut:
            page = waiting.column(PAGE)
            yield form.newest(waiting.slice(0, cut)), page[cut - 1].as_py() == page[cut].as_py()
        waiting = form.newest(waiting.slice(cut))
        enough = max(_ROWS, 2 * waiting.num_rows)
    if waiting.num_rows:
        yield form.newest(waiting), False


class _Rewriter:
    """The touched pages of one task, merged with their changes and written, and which page each came from."""

    def __init__(self, plan: ChangePlan, pages: PageFile, number: int) -> None:
        self._form, self._pages, self._work = plan.form, pages, Path(plan.work)
        generation, form = pages.generation, plan.form.form
        place = self._work / part_name(number)
        self._writer = PartWriter(place, pages.schema, form, generation.page_bytes, True, generation.unique)
        self._n_pages = generation.n_pages
        self._rest: pa.Table | None = None  # rows of a page whose changes are not all here
        self._from: list[int] = []  # the old page of each new one
        self._touched: list[int] = []

    def take(self, changes: pa.Table, open_ended: bool) -> None:
        """Apply these changes; with `open_ended` more of the last page will come."""
        page = np.asarray(changes.column(PAGE), np.int64)
        pages = np.unique(page)
        known = np.minimum(pages, max(self._n_pages - 1, 0))
        sizes = self._pages.stored_many(known, np.ones(len(known), np.int64)) if self._n_pages else pages * 0
        heads = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // _PAGES_BYTES, prepend=-1)).tolist()
        for head, tail in zip(heads, [*heads[1:], len(pages)], strict=True):
            some = pages[head:tail]
            start, stop = np.searchsorted(page, [some[0], some[-1] + 1]).tolist()
            self._merge(some, changes.slice(start, stop - start), page[start:stop], open_ended and tail == len(pages))

    def _merge(self, pages: I64, changes: pa.Table, homes: I64, open_ended: bool) -> None:
        old, old_homes = self._old_rows(pages)
        if open_ended:  # rows behind the last change wait for the next ones
            last = self._form.keys(changes.slice(changes.num_rows - 1))
            n = int(last_not_above(last, self._form.keys(old))[0]) + 1 if old.num_rows else 0
            old, old_homes, self._rest = old.slice(0, n), old_homes[:n], old.slice(n)
        rows, homes = self._form.merged(old, changes, np.concatenate([old_homes, homes]))
        starts = np.searchsorted(homes, pages).tolist()
        for page, start, stop in zip(pages.tolist(), starts, [*starts[1:], rows.num_rows], strict=True):
            for batch in rows.slice(start, stop - start).to_batches():
                self._writer.append(batch)
            if not (open_ended and page == pages[-1]):
                self._touched.append(page)
                self._from += [page] * (self._writer.cut() - len(self._from))

    def _old_rows(self, pages: I64) -> tuple[pa.Table, I64]:
        """The rows of these pages, of the first one those that are left, and the page of each."""
        tables, homes = [self._pages.schema.empty_table()], [np.empty(0, np.int64)]
        if self._rest is not None:
            tables.append(self._rest)
            homes.append(np.full(self._rest.num_rows, pages[0], np.int64))
            pages, self._rest = pages[1:], None
        if len(pages) and self._n_pages:
            rows, starts = self._pages.read_many(int64s(pages), np.ones(len(pages), np.int64))
            tables.append(pa.Table.from_batches([rows]))
            homes.append(np.repeat(pages, np.diff(starts)))
        return pa.concat_tables(tables), np.concatenate(homes)

    def finish(self) -> dict[str, Any]:
        """The report: the new part, with a table that has the old page of each new one, and all touched pages."""
        part = self._writer.finish()
        touched = pa.array(self._touched, pa.int64())
        name = part.rows_file.removesuffix(".rows") + ".touched"
        crc = store_table(self._work / name, pa.table({"page": touched}))
        table = part.table.append_column("page", pa.array(self._from, pa.int64()))
        listed = store_part(self._work, replace(part, table=table))
        return {"part": asdict(listed), "touched": name, "crc": crc}

    def abort(self) -> None:
        """Remove what was written."""
        self._writer.abort()


def commit_changes(plan: ChangePlan, reports: Sequence[dict[str, Any]], applied: Applied | None) -> Generation | None:
    """Make the pages that tasks wrote a new generation; None if no row changed and its query is known.

    A `ConfigError` if the page file has another version by now.
    """
    path, work = Path(plan.path), Path(plan.work)
    base = load_version(path, plan.version)
    before = page_table(path, base)
    parts = [_of(part, base.number) for part in base.parts]
    tables, touched = [], [np.empty(0, np.int64)]
    for report in reports:
        part = PartFile(**report["part"])
        tables.append(placed(part_table(work / part.table_file, part.table_crc), len(parts)))
        touched.append(part_table(work / report["touched"], report["crc"]).column("page").to_numpy())
        parts.append(replace(part, table_file="", table_crc=0))
    table = _relaid(before, tables, np.concatenate(touched))
    if table is None:
        if applied is None or (base.applied is not None and base.applied.query == applied.query):
            return None
        table = before  # the same rows, in the hands of another query
    table, parts = _compacted(path, work, table, parts)
    table, parts = _in_use(table, parts)
    crc = store_table(work / LAYOUT, table)
    sums = [int(table.column(name).to_numpy().sum()) for name in ("rows", "size")]
    null_part = None if base.null_part is None else replace(base.null_part, home=base.null_part.home or base.number)
    final = replace(
        base, id=uuid.uuid4().hex[:8], number=0, created="", parts=tuple(parts), null_part=null_part,
        layout=Layout(LAYOUT, crc, table.num_rows, *sums), applied=applied or base.applied,
    )  # fmt: skip
    return commit(path, work, final, plan.version)


def _of(part: PartFile, number: int) -> PartFile:
    """The part as a later generation lists it."""
    return replace(part, table_file="", table_crc=0, home=part.home or number)


def _relaid(before: pa.Table, tables: list[pa.Table], touched: I64) -> pa.Table | None:
    """The table of all pages with new ones for those that were touched; None if all are as before."""
    after = pa.concat_tables([before.slice(0, 0), *(table.drop_columns(["page"]) for table in tables)])
    pages = np.concatenate([np.empty(0, np.int64), *(table.column("page").to_numpy() for table in tables)])
    inside = touched[touched < before.num_rows]  # an empty file has no page for its first rows
    if after.num_rows == len(inside) and (np.sort(inside) == np.sort(pages)).all():
        order = np.argsort(pages, kind="stable")
        digests = before.column("digest").take(pa.array(np.sort(inside)))
        if after.column("digest").take(pa.array(order)).equals(digests):
            return None
    kept = np.setdiff1d(np.arange(before.num_rows), inside)
    whole = pa.concat_tables([before.take(pa.array(kept)), after])
    return whole.take(pa.array(np.argsort(np.concatenate([kept, pages]), kind="stable"))).combine_chunks()


def _compacted(path: Path, work: Path, table: pa.Table, parts: list[PartFile]) -> tuple[pa.Table, list[PartFile]]:
    """The same pages, those of some of the newest files copied to one.

    Files that one generation wrote count together. The new ones take in those before them, as long as these have at
    most twice their bytes in use, or there are too many files.
    """
    used = np.bincount(table.column("part").to_numpy(), table.column("size").to_numpy(), len(parts))
    homes = np.array([part.home or np.iinfo(np.int64).max for part in parts])
    units = np.unique(homes)[::-1].tolist()
    taken, held, files = units[:1], used[homes == units[0]].sum(), int((homes > units[-1]).sum())
    for unit in units[1:]:
        mine = used[homes == unit].sum()
        if mine > 2 * held and (files <= _FILES or unit == units[-1]):
            break
        taken, held = [*taken, unit], held + mine
    if len(taken) == 1 and files <= _FILES:
        return table, parts
    return _copied(path, work, table, parts, np.isin(homes, taken))


def _copied(
    path: Path, work: Path, table: pa.Table, parts: list[PartFile], chosen: Any
) -> tuple[pa.Table, list[PartFile]]:
    """The pages of the chosen parts in one new file, in key order."""
    part, offset = (table.column(name).to_numpy().copy() for name in ("part", "offset"))
    size, rows, name = table.column("size").to_numpy(), np.flatnonzero(chosen[part]), part_name(0)
    files = {at: _place(path, work, parts[at]).open("rb") for at in np.unique(part[rows]).tolist()}
    try:
        with (work / name).open("xb") as out:
            for at, start, length in zip(part[rows].tolist(), offset[rows].tolist(), size[rows].tolist(), strict=True):
                files[at].seek(start)
                out.write(files[at].read(length))
            out.flush()
            os.fsync(out.fileno())
    finally:
        for file in files.values():
            file.close()
    moved = size[rows]
    part[rows], offset[rows] = len(parts), np.cumsum(moved) - moved
    found = table.set_column(table.schema.get_field_index("part"), "part", pa.array(part))
    found = found.set_column(table.schema.get_field_index("offset"), "offset", pa.array(offset))
    count = int(table.column("rows").to_numpy()[rows].sum())
    return found, [*parts, PartFile(name, "", 0, len(rows), count, int(moved.sum()))]


def _place(path: Path, work: Path, part: PartFile) -> Path:
    return (path / f"generation-{part.home}" if part.home else work) / part.rows_file


def _in_use(table: pa.Table, parts: list[PartFile]) -> tuple[pa.Table, list[PartFile]]:
    """Without the parts that have no page in use."""
    part = table.column("part").to_numpy()
    used, numbers = np.unique(part, return_inverse=True)
    column = pa.array(numbers.astype(np.int32))
    return table.set_column(table.schema.get_field_index("part"), "part", column), [parts[at] for at in used.tolist()]
