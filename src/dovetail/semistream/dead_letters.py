"""Rows without a match as Parquet files, one for each micro-batch and partition, whole or not at all."""

from __future__ import annotations

import contextlib
import uuid
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dovetail.errors import ConfigError


class DeadLetters:
    """The file of one task attempt: nothing is visible until `commit`, which replaces what an earlier attempt left.

    A context manager that removes its traces unless it was committed.
    """

    def __init__(self, path: str, name: str, schema: pa.Schema) -> None:
        self._filesystem, self._directory = _place(path)
        self._final = f"{self._directory}/{name}.parquet"
        self._temporary = f"{self._directory}/_{name}-{uuid.uuid4().hex[:8]}"
        self._schema, self._path = schema, path
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
        """Make the rows the only ones of this batch and partition."""
        try:
            if self._writer is None:
                self._remove(self._final)
                return
            self._writer.close()
            self._filesystem.move(self._temporary, self._final)
            self._writer = None
        except OSError as error:
            raise self._unwritable(error) from error

    def _remove(self, place: str) -> None:
        if self._filesystem.get_file_info(place).type == fs.FileType.File:
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
