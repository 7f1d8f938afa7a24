"""A page file by its path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.device import Device
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.page_file.generation import current_version, load_version, prune, versions
from dovetail.joins.semistream.master.page_file.reader import PageFile, page_table

_ATTEMPTS = 20  # to open the current version: it may be pruned between reading its name and opening its files


@dataclass(frozen=True, slots=True)
class PageFileSource:
    """The page file at a path that driver and workers share."""

    path: str
    part: tuple[str, ...] = ()
    """Columns of the key that rows are looked up by, if not by all of them."""

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> PageFileSource:
        """The same file looked up by part of its key: without an index, as pages are laid out by the whole key."""
        return replace(self, part=key)

    def version(self) -> str:
        """The current generation."""
        return current_version(Path(self.path))

    def versions(self) -> list[str]:
        """Generations that can be opened, oldest first."""
        return versions(Path(self.path))

    def open(self, version: str | None = None, device: Device | None = None) -> PageFile:
        """A generation, by default the current one."""
        for attempt in range(_ATTEMPTS):
            current = self.version()
            try:
                found = PageFile(Path(self.path), load_version(Path(self.path), version), device)
                return found.by(self.part) if self.part else found
            except ConfigError:
                if version is not None or attempt == _ATTEMPTS - 1 or self.version() == current:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of `new` that differ from the page of that number in `old`; None if that cannot be told cheaply."""
        path = Path(self.path)
        before, after = load_version(path, old), load_version(path, new)
        if before.order != after.order or before.key != after.key or not before.schema.equals(after.schema):
            return None
        return _differing(page_table(path, before), page_table(path, after))

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove all but the newest generations and those that streams need; the versions that are gone."""
        return prune(Path(self.path), keep, also_held)

    def explain(self) -> str:
        """The current generation in some lines."""
        found = load_version(Path(self.path))
        index = "fences" if found.index is None else f"dense index of {found.index.entries} keys"
        repeats = "unique" if found.unique else "may repeat"
        size = f"{found.rows} rows in {found.n_pages} pages of {format_bytes(found.page_bytes)}"
        return (
            f"page file {self.path}, version {found.version} of {found.created}\n"
            f"  key {list(found.key)}, order {found.order}, {index}, keys {repeats}\n"
            f"  {size}, {format_bytes(found.nbytes)} on disk in {len(found.parts)} parts; "
            f"{found.null_keys} rows without a key {'kept apart' if found.null_part else 'left out'}{self._by_part()}"
        )

    def _by_part(self) -> str:
        if not self.part:
            return ""
        return (
            f"\n  looked up by {list(self.part)}, part of the key: no index, so that every task reads all pages; "
            f"a page file with this key reads what is needed"
        )

    def __str__(self) -> str:
        return f"page file {self.path}"


def _differing(old: pa.Table, new: pa.Table) -> I64:
    """Pages of `new` whose rows, and with them the range of their keys, are not those of the same page of `old`."""
    shared = min(old.num_rows, new.num_rows)
    before, after = (table.column("digest").slice(0, shared) for table in (old, new))
    differs = np.asarray(pc.not_equal(before, after), np.bool_)
    return np.concatenate([np.flatnonzero(differs), np.arange(shared, new.num_rows)])
