"""Reads the data files of one version of a table: rows that are not deleted, with the columns that the table has now.

Files are immutable, so that a footer is read once in a process however many versions list its file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.storage.device import Device
from dovetail.engine.storage.remote import overlapped
from dovetail.engine.storage.secrets import hidden
from dovetail.errors import ConfigError, UnsupportedError
from dovetail.joins.semistream.keys import key_form
from dovetail.joins.semistream.master.row_groups import (
    Column,
    Layout,
    RowGroup,
    RowGroupPages,
    by_file,
    column_places,
    decoded,
    known_keyed,
    laid_out,
    statistics_range,
)

Open = Callable[[str], Any]
"""Opens a file as Arrow reads it."""
Match = Callable[[pa.Schema], Sequence[str | None]]
"""For each column of the table, its name in a file of this schema; None where the file does not have it."""
_COUNTED = 65_536  # keys that are counted at a time
_KEPT = 4  # layouts of versions that this process caches
_layouts: dict[tuple[object, ...], DataFiles] = {}


class TableHistory(ABC):
    """A source whose versions are those of a table, which others write and clean up; `remedy` keeps old ones longer."""

    keeps_versions = True
    key: tuple[str, ...]
    remedy: ClassVar[str]

    @abstractmethod
    def files(self, version: str | None) -> tuple[str, DataFiles]:
        """The name of a version, by default of the newest, and its files."""

    def reading(self, version: str) -> TableVersion:
        """A version as its pages name it."""
        return TableVersion(str(self), self.key, version, self.remedy)

    def open(self, version: str | None = None, device: Device | None = None) -> RowGroupPages:
        """A version of the table; a `ConfigError` if it is gone, or a file of it is."""
        name, files = self.files(version)
        return RowGroupPages(self.reading(name), name, files.layout, files.scan, files.footers, device)

    def explain(self) -> str:
        """The table in some lines, with the reason if there is no index."""
        name, files = self.files(None)
        return f"{self}, version {name}\n{files.layout.explain(self.key, len(files.files))}"

    def changed(self, old: str, new: str) -> I64 | None:
        """Not known."""
        return None

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Refused: the table removes its old versions."""
        raise UnsupportedError(f"{self} has its own old versions; remove them with VACUUM or expire_snapshots.")


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version as its pages name it, with errors that say what became of it."""

    source: str
    key: tuple[str, ...]
    version: str
    remedy: str

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the file system and of the files become `ConfigError`."""
        try:
            yield
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.source}: version {self.version} is gone, its file {error.filename} was removed; {self.remedy}, "
                f"or start the query from the current version."
            ) from error
        except (OSError, pa.ArrowException) as error:
            reason = hidden(error.strerror if isinstance(error, OSError) and error.strerror else str(error))
            raise ConfigError(f"cannot read {self.source}: {reason}; check permissions and the file.") from error

    def __str__(self) -> str:
        return self.source


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as a version lists it: its place, values of columns that are not in it, and which rows are not deleted.

    Rows behind the end of `kept` are not deleted.
    """

    path: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    kept: Bool | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with its footer."""

    listed: Listed
    footer: pq.FileMetaData
    names: tuple[str | None, ...]

    def kept(self, numbers: Sequence[int]) -> Bool | None:
        """Which rows of these row groups are not deleted; None for all."""
        if self.listed.kept is None:
            return None
        sizes = [self.footer.row_group(at).num_rows for at in range(self.footer.num_row_groups)]
        starts, rows = np.cumsum([0, *sizes]), self.listed.kept
        whole = np.append(rows, np.ones(max(0, int(starts[-1]) - len(rows)), np.bool_))
        return np.concatenate([whole[starts[at] : starts[at + 1]] for at in numbers])


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files of one version in pages."""

    files: tuple[DataFile, ...]
    schema: pa.Schema
    opener: Open
    layout: Layout

    @property
    def footers(self) -> list[pq.FileMetaData]:
        """The footers of all files, which stay in memory."""
        return [file.footer for file in self.files]

    def scan(self, groups: Sequence[RowGroup], step: int | None) -> Iterator[pa.Table]:
        """All rows of these row groups that are not deleted."""
        for file, numbers in by_file(groups):
            yield from _read(self.opener, self.files[file], numbers, self.schema, range(len(self.schema)), step)


def opened(
    name: tuple[object, ...], listed: Callable[[], Sequence[Listed]], schema: pa.Schema, key: tuple[str, ...],
    match: Match, opener: Open,
) -> DataFiles:  # fmt: skip
    """The files of a version, in pages; found once in this process. The name begins with that of the table."""
    if name not in _layouts:
        others = [files for other, files in _layouts.items() if other[0] == name[0]]
        known = {file.listed.path: file.footer for files in others for file in files.files}
        found = _laid_out(listed(), known, schema, key, match, opener)
        while len(_layouts) >= _KEPT:
            _layouts.pop(next(iter(_layouts)))
        _layouts[name] = found
    return _layouts[name]


def _laid_out(
    listed: Sequence[Listed], known: Mapping[str, pq.FileMetaData], schema: pa.Schema, key: tuple[str, ...],
    match: Match, opener: Open,
) -> DataFiles:  # fmt: skip
    new = [file.path for file in listed if file.path not in known]
    footers = {**known, **dict(zip(new, overlapped([partial(_footer, opener, path) for path in new]), strict=True))}
    files, groups = list[DataFile](), list[RowGroup]()
    for number, one in enumerate(listed):
        footer = footers[one.path]
        with naming(one.path):
            file = DataFile(one, footer, _matched(one, footer.schema.to_arrow_schema(), schema, match))
            groups += _groups(number, file, schema, key, opener)
        files.append(file)
    return DataFiles(tuple(files), schema, opener, laid_out(groups, schema, key))


def _footer(opener: Open, path: str) -> pq.FileMetaData:
    with naming(path), opener(path) as source:
        return pq.read_metadata(source)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of reading a file with its name."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"{path} does not exist", path) from error
    except (OSError, pa.ArrowException) as error:
        raise OSError(None, f"{path}: {error}") from error


def _matched(listed: Listed, found: pa.Schema, schema: pa.Schema, match: Match) -> tuple[str | None, ...]:
    """The names of the table's columns in a file; types that cannot have become those of the table are refused."""
    names = match(found)
    for column, name in zip(schema, names, strict=True):
        kind = column.type if name is None else found.field(name).type
        if not widens(kind, column.type):
            raise ConfigError(
                f"{listed.path}: column {column.name!r} is {kind} in this file, and {column.type} in the table; write "
                f"the file again with the table's schema (OPTIMIZE, or rewrite_data_files)."
            )
    return tuple(names)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether values of one type are values of the other, which it may have become by schema evolution."""
    types = pa.types
    old, new = _storage(old), _storage(new)
    if types.is_integer(old):
        return bool(types.is_integer(new) or types.is_decimal(new) or types.is_floating(new))
    if types.is_date(old) or types.is_timestamp(old):
        return bool(types.is_timestamp(new) or (types.is_date(old) and types.is_date(new)))
    if old.num_fields or new.num_fields:
        return _same_shape(old, new)
    alike = (types.is_floating, types.is_decimal, is_text, is_bytes)
    return old == new or any(kind(old) and kind(new) for kind in alike)


def fits(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    types = pa.types
    for kind in (types.is_integer, types.is_floating):
        if kind(old) and kind(new):
            return bool(old.bit_width <= new.bit_width)
    if types.is_decimal(old) and types.is_decimal(new):
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    return widens(old, new)


def _same_shape(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether nested types have the same names in the same order, with values that widen."""
    kinds = (pa.types.is_struct, pa.types.is_map, is_list)
    if old.num_fields != new.num_fields or not any(kind(old) and kind(new) for kind in kinds):
        return False
    fields = [(old.field(at), new.field(at)) for at in range(old.num_fields)]
    named = not pa.types.is_struct(new) or all(a.name == b.name for a, b in fields)
    return named and all(widens(a.type, b.type) for a, b in fields)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is bytes of any layout."""
    fixed = pa.types.is_fixed_size_binary(kind)
    return bool(fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view())


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is a list of any layout."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _groups(number: int, file: DataFile, schema: pa.Schema, key: tuple[str, ...], opener: Open) -> list[RowGroup]:
    """The row groups of a file that have rows."""
    footer, found = file.footer, list[RowGroup]()
    places = column_places(footer)
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        kept = file.kept([at])
        total = group.num_rows if kept is None else int(kept.sum())
        rows = _keyed(file, at, total, schema, key, opener, places)
        low, high = _range(file, group, schema.get_field_index(key[0]), schema, places)
        nbytes = sum(group.column(column).total_compressed_size for column in range(footer.num_columns))
        if total:
            found.append(RowGroup(number, at, rows, total, nbytes, low, high))
    return found


def _keyed(
    file: DataFile, at: int, total: int, schema: pa.Schema, key: tuple[str, ...], opener: Open,
    places: Mapping[str, int],
) -> int:  # fmt: skip
    """Rows of a row group that have a key and are not deleted: by the footer if that tells, else by reading the key."""
    indexes = [schema.get_field_index(name) for name in key]
    if any(file.names[i] is None and file.listed.constants.get(schema.names[i]) is None for i in indexes):
        return 0
    group = file.footer.row_group(at)
    stored = [file.names[i] for i in indexes if file.names[i] is not None]
    statistics = [group.column(places[name]).statistics if name in places else None for name in stored]
    known = known_keyed(group.num_rows, statistics)
    if known is not None and (known == group.num_rows or total == group.num_rows):
        return min(known, total)
    form = key_form(schema, key)
    tables = _read(opener, file, [at], schema, indexes, _COUNTED)
    return sum(int(form.normal([keys.column(name) for name in key])[1].sum()) for keys in tables)


def _range(
    file: DataFile, group: pq.RowGroupMetaData, at: int, schema: pa.Schema, places: Mapping[str, int]
) -> tuple[object, object]:
    """The lowest and the highest value of a column in a row group, of a partition column its only one."""
    name = file.names[at]
    if name is None:
        constant = file.listed.constants.get(schema.names[at])
        return constant, constant
    low, high = statistics_range(group.column(places[name]).statistics if name in places else None)
    try:  # values of a narrower type, as the table's type has them
        low, high = (pa.array([end], schema.field(at).type)[0].as_py() for end in (low, high))
    except (pa.ArrowException, TypeError, ValueError):
        return None, None
    return low, high


def _read(
    opener: Open, file: DataFile, numbers: list[int], schema: pa.Schema, wanted: Sequence[int], step: int | None
) -> Iterator[pa.Table]:
    """Columns of row groups without rows that were deleted, in the table's types."""
    fields = [schema.field(at) for at in wanted]
    constants = file.listed.constants
    columns = [Column(f, file.names[at], constants.get(f.name)) for at, f in zip(wanted, fields, strict=True)]
    kept, start = file.kept(numbers), 0
    with naming(file.listed.path), opener(file.listed.path) as source:
        for table in decoded(source, file.footer, numbers, columns, step):
            here = None if kept is None else kept[start : start + table.num_rows]
            start += table.num_rows
            yield table if here is None or here.all() else table.filter(pa.array(here))
