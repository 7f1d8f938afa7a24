"""What the rows of a scan give, as Arrow columns: keys of a join, variables for other tasks, items to give out.

A column of texts or of markup that is wanted as it is goes on as it is; only what must be computed, or checked because
a row has several items, is computed row by row.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.execute.columns import OnColumns, Path
from dovetail.xml.execute.keys import Key, key_cell
from dovetail.xml.execute.runner import Runner
from dovetail.xml.execute.scan_work import XML, Piece, Pieces
from dovetail.xml.execute.texts import Texts, lists_of, side_by_side, texts_of
from dovetail.xml.execute.vector import Computed
from dovetail.xml.execute.wire import ARROW, KEY_TYPES, Form, encoded
from dovetail.xml.xdm.serialise import serialise


class KeyColumn:
    """A key of a join as a column: a string, null where there is no item; or a list of strings, each of them once."""

    def __init__(self, runner: Runner, key: Key, given: OnColumns, many: dict[Path, bool]) -> None:
        self._computed, self._many = Computed(runner, given, many, partial(key_cell, key)), key.many
        self._plain = isinstance(given.expression, Variable) and key.form == "text"

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The key of each row."""
        if self._plain:
            name, many = self._computed.columns[0]
            texts = texts_of(batch, name, many)
            if texts.known.all():
                return lists_of(batch, name, many) if self._many else texts.array
        return pa.array(self._computed.of(batch), KEY_TYPES[self._many])


class Cells:
    """The items of one piece for each row: as texts to give out, or typed."""

    def __init__(self, runner: Runner, piece: Piece, many: dict[Path, bool], typed: bool = False) -> None:
        self.path = piece.nodes
        change = (lambda items: items) if typed else (lambda items: [serialise(item) for item in items])
        given = piece.computed
        self._computed = None if given is None else Computed(runner, given, many, change)
        self._plain = given is not None and isinstance(given.expression, Variable)

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """A list of items for each row."""
        if self._computed is not None:
            return self._computed.of(batch)
        if self.path == ():
            return [[markup] for markup in batch[XML].to_pylist()]
        return list(batch[f"<{'/'.join(self.path or ())}>"].to_pylist())

    def texts(self, batch: pa.RecordBatch) -> Texts | None:
        """The texts of the rows, if they are a column of the scan and no row has several."""
        if not self._plain or self._computed is None:
            return None
        found = texts_of(batch, *self._computed.columns[0])
        return found if found.known.all() else None

    def lists(self, batch: pa.RecordBatch) -> pa.ListArray:
        """A list of texts for each row; for pieces that are not typed."""
        if self.path == ():
            return pa.ListArray.from_arrays(pa.array(np.arange(batch.num_rows + 1, dtype=np.int32)), batch[XML])
        if self.path is not None:
            return batch[f"<{'/'.join(self.path)}>"]
        if self._plain and self._computed is not None:
            found = lists_of(batch, *self._computed.columns[0])
            if found is not None:
                return found
        return pa.array(self.of(batch), pa.list_(pa.string()))


class Value:
    """A variable as a column for other tasks."""

    def __init__(self, runner: Runner, pieces: Pieces, many: dict[Path, bool], form: Form) -> None:
        self._form = form
        self._cells = [Cells(runner, piece, many, typed=form == "items") for piece in pieces]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The variable of each row."""
        if self._form == "items":
            rows = zip(*(one.of(batch) for one in self._cells), strict=True)
            return pa.array([encoded("items", [i for cell in row for i in cell]) for row in rows], pa.binary())
        lists = [one.lists(batch) for one in self._cells]
        if len(lists) == 1:
            return lists[0].cast(ARROW[self._form])
        counts = np.sum([np.diff(one.offsets.to_numpy()) for one in lists], axis=0)
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(offsets), side_by_side(lists))


def given_out(pieces: list[Cells], batch: pa.RecordBatch) -> pa.Array:
    """The items of all rows, one after the other."""
    if len(pieces) == 1 and pieces[0].path == ():
        return batch[XML]
    return side_by_side([one.lists(batch) for one in pieces])
