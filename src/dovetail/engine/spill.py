"""Rows that did not fit in memory: Arrow batches on disk, appended in order, read back by number."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.engine.scratch import ProcessDirectory, borrow, give_back, spill_directory, sweep
from dovetail.errors import ConfigError

__all__ = ["SpillFile", "spill_directory", "sweep"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REMEDY = "point spark.local.dir (or SPARK_LOCAL_DIRS, or spill_dir) to a directory"


class SpillFile:
    """An append-only file of Arrow batches ("blocks") of one schema; every block can be read without the others.

    Counts are exact: `bytes_written` is the size of the file. Nothing touches the disk before the first append. Reading
    is allowed while appending goes on. The file is removed on close, on any error of the disk, when the object is
    garbage, when the program ends, and after a kill by the next process that spills in the same place. Appending holds
    one serialised copy of the batch for as long as it writes.

    A disk that is full or refuses is a `ConfigError`, after which the file is gone. For one thread at a time.
    """

    def __init__(self, schema: pa.Schema, directory: Path | None = None, name: str = "spill") -> None:
        self.schema, self.name = schema, name
        self.directory = directory
        self.rows = self.bytes_written = self.bytes_read = self.blocks_read = 0
        self._ends: list[int] = []
        # A block's bytes do not contain its dictionaries, so such blocks are whole streams of their own.
        self._whole_streams = any(_has_dictionary(field.type) for field in schema)
        self._fd = -1
        self._closed = False
        self._remove: weakref.finalize[[int, Path, ProcessDirectory], SpillFile] | None = None

    @property
    def blocks(self) -> int:
        """How many blocks the file has; they are numbered from 0."""
        return len(self._ends)

    @property
    def blocks_written(self) -> int:
        """How many blocks were written: as many as there are."""
        return len(self._ends)

    def append(self, batch: pa.RecordBatch) -> int:
        """Write one batch as a block and return the block's number."""
        if self._closed:
            raise ValueError(f"spill file {self.name!r} is closed; no block can be appended.")
        if not batch.schema.equals(self.schema):
            raise ValueError(f"spill file {self.name!r} holds {self.schema}; the batch has {batch.schema}.")
        try:
            self._write(self._serialised(batch))
        except OSError as error:
            where = self.directory or spill_directory()
            self.close()
            raise _disk_error(error, where, self.bytes_written) from error
        self.rows += batch.num_rows
        return len(self._ends) - 1

    def mark(self) -> int:
        """The position after everything appended so far; `replay(mark)` gives what comes later."""
        return len(self._ends)

    def size_of(self, block: int) -> int:
        """Bytes of one block on disk, which is also the memory that reading it takes."""
        if not 0 <= block < len(self._ends):
            raise IndexError(f"spill file {self.name!r} has {len(self._ends)} blocks, from 0; there is no {block}.")
        return self._ends[block] - (self._ends[block - 1] if block else 0)

    def read(self, block: int) -> pa.RecordBatch:
        """The block of that number; only its own bytes are read."""
        if self._closed:
            raise ValueError(f"spill file {self.name!r} is closed; block {block} cannot be read.")
        size = self.size_of(block)
        data = self._bytes_at(self._ends[block] - size, size)
        self.bytes_read += data.size
        self.blocks_read += 1
        if self._whole_streams:
            with pa.ipc.open_stream(data) as stream:
                return stream.read_next_batch()
        return pa.ipc.read_record_batch(data, self.schema)

    def replay(self, from_block: int = 0, to_block: int | None = None) -> Iterator[pa.RecordBatch]:
        """Blocks from a marked position on, in the order written, up to those that exist at the time of this call."""
        stop = len(self._ends) if to_block is None else min(to_block, len(self._ends))
        return map(self.read, range(from_block, stop))

    def close(self) -> None:
        """Remove the file; the counts stay readable."""
        self._closed = True
        if self._remove is not None:
            self._remove()

    def _serialised(self, batch: pa.RecordBatch) -> pa.Buffer:
        if not self._whole_streams:
            return batch.serialize()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(batch)
        return sink.getvalue()

    def _write(self, data: pa.Buffer) -> None:
        if self._fd < 0:
            self._create()
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], self.bytes_written + done)
        self.bytes_written += done
        self._ends.append(self.bytes_written)

    def _create(self) -> None:
        home = borrow(self.directory or spill_directory())
        path = home.new_file(self.name)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            give_back(home)
            raise
        self._remove = weakref.finalize(self, _remove_file, self._fd, path, home)

    def _bytes_at(self, offset: int, size: int) -> pa.Buffer:
        data = pa.allocate_buffer(size)
        view, done = memoryview(data), 0
        while done < size:
            got = os.preadv(self._fd, [view[done:]], offset + done)
            if got == 0:
                raise ConfigError(
                    f"spill file {self.name!r} ends at byte {offset + done} of {self.bytes_written}: something "
                    f"truncates the files of running jobs in {self.directory or spill_directory()}; stop it."
                )
            done += got
        return data

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SpillFile({self.name}: {self.blocks} blocks, {self.rows} rows, {self.bytes_written} bytes)"


def _remove_file(fd: int, path: Path, home: ProcessDirectory) -> None:
    os.close(fd)
    if home.pid == os.getpid():  # a forked child holds a copy of the object, but the file is its parent's
        path.unlink(missing_ok=True)
        give_back(home)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _disk_error(error: OSError, directory: Path, written: int) -> ConfigError:
    reason = os.strerror(error.errno or 0)
    if error.errno in _FULL:
        return ConfigError(
            f"no room to spill in {directory} ({reason}) after {format_bytes(written)}; free space there, {_REMEDY} "
            f"with more, or give the join more memory so that it spills less."
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ConfigError(f"too many open files to spill in {directory} ({reason}); raise the limit (ulimit -n).")
    return ConfigError(f"cannot spill to {directory} ({reason}); {_REMEDY} that exists and can be written.")
