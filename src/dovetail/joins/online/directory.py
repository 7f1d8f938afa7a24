"""What is known of each block on disk, in memory while there is room, else in a file that the system may page out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import Reservation
from dovetail.engine.spill import spill_directory
from dovetail.errors import ConfigError


class Entry(NamedTuple):
    """A block: rows, departure tick, bucket, group (segment, run or generation), smallest and largest key, arrival
    ticks of its oldest and newest row, and whether it is dead: replaced by a merge, or all of its rows have left."""

    rows: int
    dts: int
    bucket: int
    group: int
    low: int
    high: int
    oldest: int
    newest: int
    dead: int = 0


FIELDS = Entry._fields
_DEAD = FIELDS.index("dead")
_GROUP = FIELDS.index("group")
_FIRST = 16


class Directory:
    """Lines of numbers, one a block, that can be appended and asked for by field.

    Memory is reserved as lines are added. Once the budget refuses, all lines are kept in a nameless file instead.
    """

    def __init__(self, reservation: Reservation, directory: Path | None = None) -> None:
        self._reservation, self._directory = reservation, directory
        self._lines: I64 = np.zeros((0, len(FIELDS)), np.int64)
        self._file: IO[bytes] | None = None
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._reservation.used

    @property
    def is_in_file(self) -> bool:
        """Whether the lines left memory."""
        return self._file is not None

    def append(self, entry: Entry) -> None:
        """One more block."""
        if self._n == len(self._lines):
            self._grow(max(_FIRST, 2 * self._n))
        self._lines[self._n] = entry
        self._n += 1

    def __getitem__(self, number: int) -> Entry:
        return Entry(*self._lines[number].tolist())

    def column(self, field: str) -> I64:
        """One field of all blocks; a view that must not be written."""
        return self._lines[: self._n, FIELDS.index(field)]

    def regroup(self, group: int, numbers: I64 | None = None) -> None:
        """These blocks, or all, belong to one group."""
        self._lines[: self._n, _GROUP][slice(None) if numbers is None else numbers] = group

    def bury(self, numbers: Sequence[int] | I64) -> None:
        """These blocks are dead."""
        self._lines[np.asarray(numbers, np.int64), _DEAD] = 1

    def _grow(self, lines: int) -> None:
        grown = self._in_memory(lines) if self._reserve(8 * len(FIELDS) * lines) else self._mapped(lines)
        grown[: self._n] = self._lines[: self._n]
        self._reservation.resize(0 if self.is_in_file else grown.nbytes)
        self._lines = grown

    def _reserve(self, size: int) -> bool:
        """Whether there is room for the new lines beside the old ones; they are to be no large part of the budget."""
        budget = self._reservation.budget
        small = 16 * size <= budget.limit and 2 * size < budget.available
        return small and not self.is_in_file and self._reservation.try_grow(size)

    def _in_memory(self, lines: int) -> I64:
        return np.zeros((lines, len(FIELDS)), np.int64)

    def _mapped(self, lines: int) -> I64:
        try:
            file = tempfile.TemporaryFile(dir=self._directory or spill_directory())  # noqa: SIM115  (open until `close`)
            file.truncate(8 * len(FIELDS) * lines)
        except OSError as error:
            raise ConfigError(f"cannot keep the list of spilled blocks on disk ({error}); free space there.") from error
        if self._file is not None:
            self._file.close()  # what is mapped stays mapped
        self._file = file
        mapped: I64 = np.memmap(file, np.int64, "r+", shape=(lines, len(FIELDS)))
        return mapped

    def clear(self) -> None:
        """Forget every line and remove the file."""
        self._lines, self._n = np.zeros((0, len(FIELDS)), np.int64), 0
        if self._file is not None:
            self._file.close()
            self._file = None
        self._reservation.close()

    def close(self) -> None:
        """As `clear`: nothing is left."""
        self.clear()
