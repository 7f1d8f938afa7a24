"""Writes rows without a match to Parquet files, one per step, micro-batch and partition, each atomically.

letters/
    <query id>-17-<run>-<step>-3.parquet  of micro-batch 17 of a query, from partition 3 of the step's input
    <step>-42-3-1000.parquet              of a batch DataFrame: action 42, partition 3, which has 1,000 rows
    _...                                  not committed; readers skip it

A step is one call of `enrich`. Spark repeats a micro-batch only in another run of its query, and then as a whole: the
first task of a run that commits removes what earlier runs left of this micro-batch.

Every action on a batch DataFrame evaluates it again. Its partitions may differ, and `show` reads only some of them. So
the dead letters of an action stay hidden until it has read as many rows as the action whose dead letters are visible;
then they replace those atomically.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dovetail.engine.storage.files import system_at
from dovetail.engine.storage.remote import Access
from dovetail.errors import ConfigError

_RUNS = 64  # runs for which a worker has cleaned up
_STAGED, _NONE = ".staged", ".none"  # suffixes of hidden files, and of the mark of a partition without dead letters
_CLEARED: OrderedDict[tuple[str, str, str], None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class LetterFile:
    """The origin of the rows of a file: a step, a partition of its input, and a micro-batch of a run or an action."""

    step: str
    part: str
    query: str | None = None
    number: int = 0
    run: str = ""
    action: str | None = None

    @property
    def family(self) -> str:
        """The prefix of the names of all files of the step."""
        batch = "" if self.query is None else f"{self.query}-{self.number}-{self.run}-"
        return f"{batch}{self.step}-"

    def __str__(self) -> str:
        return f"{self.family}{'' if self.action is None else f'{self.action}-'}{self.part}"

    def replaces(self, name: str) -> bool:
        """Whether an earlier run of the query left the file for this micro-batch, which is repeated."""
        if self.query is None or not name.startswith(f"{self.query}-"):
            return False
        number, _, rest = name.removeprefix(f"{self.query}-").partition("-")
        return number.isdigit() and int(number) >= self.number and not rest.startswith(f"{self.run}-")


class DeadLetters:
    """The file of one task attempt: nothing is visible until `commit`, which replaces what an earlier attempt left.

    A context manager that removes its traces unless it was committed.
    """

    def __init__(self, path: str, file: LetterFile, schema: pa.Schema, access: Access | None = None) -> None:
        try:
            self._filesystem, self._directory = system_at(path, access)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be reached: {error}.") from error
        self._final = f"{self._directory}/{file}.parquet"
        self._temporary = f"{self._directory}/_{file}-{uuid.uuid4().hex[:8]}"
        self._schema, self._path, self._file = schema, path, file
        self._began = time.time()
        self._writer: Any = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep these rows."""
        if not batch.num_rows:
            return
        try:
            if self._writer is None:
                self._filesystem.create_dir(self._directory, recursive=True)
                self._writer = pq.ParquetWriter(self._temporary, self._schema, filesystem=self._filesystem)
            self._writer.write_batch(batch)
        except OSError as error:
            raise self._unwritable(error) from error
        self.rows += batch.num_rows

    def commit(self, n_rows: int = 0) -> None:
        """Make these rows the only ones of this step, micro-batch and partition; an action has read `n_rows` rows."""
        try:
            self._clear_up()
            if self._file.action is not None:
                self._stage(n_rows)
            elif self._writer is None:
                self._remove(self._final)
            else:
                self._move(self._final)
        except OSError as error:
            raise self._unwritable(error) from error

    def _move(self, place: str) -> None:
        self._writer.close()
        self._filesystem.move(self._temporary, place)
        self._writer = None

    def _stage(self, n_rows: int) -> None:
        """Keep the file of this partition hidden, and show those of the action once it has read enough rows."""
        hidden = f"{self._directory}/_{self._file}-{n_rows}"
        if self._writer is None:
            self._filesystem.create_dir(self._directory, recursive=True)
            self._filesystem.open_output_stream(f"{hidden}{_NONE}").close()
        else:
            self._move(f"{hidden}{_STAGED}")
        while self._show(n_rows):  # also shows what other tasks have staged meanwhile
            pass

    def _show(self, n_rows: int) -> bool:
        """Whether files of this action were shown: it has read as many rows as the actions whose files are visible."""
        actions = self._actions()
        mine = actions.pop(str(self._file.action), [])
        for entry in [entry for entry in mine if entry.part == self._file.part and entry.n_rows != n_rows]:
            self._remove(entry.path)  # of an attempt that was given other rows
            mine.remove(entry)
        shown = [entries for entries in actions.values() if any(entry.is_shown for entry in entries)]
        if any(_rows(entries) > _rows(mine) for entries in shown):
            return False
        staged = [entry for entry in mine if entry.path.endswith(_STAGED)]
        for entry in staged:
            name = entry.path.rpartition("/_")[2].removesuffix(_STAGED)
            try:
                self._filesystem.move(entry.path, f"{self._directory}/{name}.parquet")
            except OSError:
                if self._filesystem.get_file_info(entry.path).type != fs.FileType.NotFound:
                    raise  # otherwise another task was faster
        for entry in (entry for entries in actions.values() for entry in entries):
            self._remove(entry.path)
        return bool(staged)

    def _actions(self) -> dict[str, list[_Entry]]:
        """The entries of each action on the DataFrame."""
        found: dict[str, list[_Entry]] = {}
        for info in self._filesystem.get_file_info(fs.FileSelector(self._directory)):
            entry = _Entry.of(info.path, info.base_name, self._file.family)
            if entry is not None:
                found.setdefault(entry.action, []).append(entry)
        return found

    def _clear_up(self) -> None:
        """Remove what earlier runs left of a micro-batch that is repeated: the first one that a worker has of a run.

        A file newer than this attempt belongs to a later run: then this attempt has outlived its own run.
        """
        if self._file.query is None or (self._path, self._file.query, self._file.run) in _CLEARED:
            return
        for found in self._filesystem.get_file_info(fs.FileSelector(self._directory, allow_not_found=True)):
            stale = self._file.replaces(found.base_name.removeprefix("_"))
            if stale and found.mtime.timestamp() < self._began:
                self._remove(found.path)
        _CLEARED[self._path, self._file.query, self._file.run] = None
        while len(_CLEARED) > _RUNS:
            _CLEARED.popitem(last=False)

    def _remove(self, place: str) -> None:
        if self._filesystem.get_file_info(place).type == fs.FileType.File:
            with contextlib.suppress(FileNotFoundError):  # another task was faster
                self._filesystem.delete_file(place)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"rows without a match cannot be kept in {self._path} ({error}); check place and rights.")

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
                self._remove(self._temporary)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The result of one partition in one action: a file, hidden or shown, or the mark of a partition without any."""

    path: str
    action: str
    part: str
    n_rows: int

    @classmethod
    def of(cls, path: str, name: str, family: str) -> _Entry | None:
        """The entry of that name; None if it is no entry of the step."""
        stem, dot, kind = name.removeprefix("_").rpartition(".")
        if dot + kind not in (_STAGED, _NONE, ".parquet") or not stem.startswith(family):
            return None
        action, _, rest = stem.removeprefix(family).partition("-")
        part, _, n_rows = rest.rpartition("-")
        return cls(path, action, part, int(n_rows))

    @property
    def is_shown(self) -> bool:
        return self.path.endswith(".parquet")


def _rows(entries: list[_Entry]) -> int:
    """Rows that an action has read."""
    return sum({entry.part: entry.n_rows for entry in entries}.values())
