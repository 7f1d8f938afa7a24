"""Checks row numbers once for all columns of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def _survey(indices: I64, out: I64) -> None:
    """Fill in the smallest and the largest index, the number of -1, and whether each is its predecessor plus one."""
    smallest, largest, n_null, run = indices[0], indices[0], 0, 1
    for row in range(len(indices)):
        index = indices[row]
        smallest = min(smallest, index)
        largest = max(largest, index)
        n_null += index == -1
        run &= index == indices[0] + row
    out[0], out[1], out[2], out[3] = smallest, largest, n_null, run


@kernel
def _total_length(lengths: I64) -> int:
    total = 0
    for length in lengths:
        if length < 0:
            return -1
        total += length
    return total


@kernel
def _expand(starts: I64, lengths: I64, out: I64) -> None:
    at = 0
    for run in range(len(starts)):
        for ahead in range(lengths[run]):
            out[at + ahead] = starts[run] + ahead
        at += lengths[run]


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows to gather from `n_rows` rows; -1 stands for a null row. Built by `Selection.of`, which checks the bounds.

    `n_null` counts the -1; `start` is the first row if the rows are one ascending run, else -1.
    """

    indices: I64
    n_rows: int
    n_null: int
    start: int

    @classmethod
    def of(cls, indices: I64 | Selection, n_rows: int) -> Selection:
        """A checked selection; one that was checked against no more than `n_rows` rows is taken as it is."""
        if isinstance(indices, Selection):
            if indices.n_rows > n_rows:
                raise IndexError(f"selection made for {indices.n_rows} rows used on {n_rows}")
            return indices
        rows = int64s(indices)
        if not len(rows):
            return cls(rows, n_rows, 0, 0)
        found = np.empty(4, np.int64)
        _survey(rows, found)
        smallest, largest, n_null, run = (int(number) for number in found)
        if smallest < -1 or largest >= n_rows:
            raise IndexError(
                f"rows from {smallest} to {largest} of {n_rows}; allowed are 0 to {n_rows - 1}, -1 for null"
            )
        return cls(rows, n_rows, n_null, smallest if run and smallest >= 0 else -1)

    def __len__(self) -> int:
        return len(self.indices)


def expand_runs(starts: I64, lengths: I64) -> I64:
    """The numbers start, start + 1, ... of every run, `length` of them each, one run after the other."""
    starts, lengths = int64s(starts), int64s(lengths)
    out = np.empty(run_total(starts, lengths), np.int64)
    _expand(starts, lengths, out)
    return out


def run_total(starts: I64, lengths: I64) -> int:
    """The number of rows in all runs, which are checked to be pairs of a start and a length >= 0."""
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} starts but {len(lengths)} lengths; each run needs both")
    total = _total_length(lengths)
    if total < 0:
        raise ValueError(f"run lengths go down to {lengths.min()}; they must be 0 or more")
    return total


@register_warmup
def _warm() -> None:
    Selection.of(expand_runs(np.array([0]), np.array([2])), 2)
