"""Rows without a match as Parquet files, one for each step, micro-batch and partition, whole or not at all.

letters/
    <query id>-17-<run>-<step>-3.parquet  of micro-batch 17 of a query, from partition 3 of the step's input
    <step>-3.parquet                      of a batch DataFrame
    _...                                  not committed; readers skip it

A step is one call of `enrich`. Spark repeats a micro-batch only in another run of its query, and then as a whole: the
first task of a run that commits removes what earlier runs left of this micro-batch.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dovetail.errors import ConfigError

_RUNS = 64  # runs that a worker remembers to have cleared up for
_CLEARED: OrderedDict[tuple[str, str, str], None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class LetterFile:
    """Whose letters a file has: a step's, from one part of its input, in a micro-batch of one run of a query."""

    step: str
    part: str
    query: str | None = None
    number: int = 0
    run: str = ""

    def __str__(self) -> str:
        batch = "" if self.query is None else f"{self.query}-{self.number}-{self.run}-"
        return f"{batch}{self.step}-{self.part}"

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

    def __init__(self, path: str, file: LetterFile, schema: pa.Schema) -> None:
        self._filesystem, self._directory = _place(path)
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

    def commit(self) -> None:
        """Make the rows the only ones of this step, micro-batch and partition."""
        try:
            self._clear_up()
            if self._writer is None:
                self._remove(self._final)
                return
            self._writer.close()
            self._filesystem.move(self._temporary, self._final)
            self._writer = None
        except OSError as error:
            raise self._unwritable(error) from error

    def _clear_up(self) -> None:
        """Remove what earlier runs left of a micro-batch that is repeated: the first one that a worker has of a run.

        A file that is newer than this attempt is none of theirs: then this attempt is one that outlived its run.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
                self._remove(self._temporary)


def _place(path: str) -> tuple[fs.FileSystem, str]:
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        filesystem, inside = fs.FileSystem.from_uri(path)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise ConfigError(f"{path} cannot be reached: {error}.") from error
    return filesystem, inside
