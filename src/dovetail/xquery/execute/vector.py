"""Expressions over Arrow columns: each is computed once for every distinct text, by the evaluator itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.xquery.algebra.run_expressions import Compiler, Items
from dovetail.xquery.execute.columns import OnColumns, Path
from dovetail.xquery.scan import count_name
from dovetail.xquery.xdm.atomic import UntypedAtomic

KEPT = 1 << 17
"""So many answers are remembered; then remembering starts anew."""


def column_name(path: Path, many: bool) -> str:
    """The scan's column of a path."""
    return f"{'*' if many else ''}{'/'.join(path) or '.'}"


class Computed:
    """One expression over columns; `change` is applied to the items it gives for a row."""

    def __init__(
        self, compiler: Compiler, given: OnColumns, many: dict[Path, bool], change: Callable[[Items], Any]
    ) -> None:
        self._value, self._variables, self._change = compiler.closure(given.expression), given.variables, change
        self._columns = [(column_name(use.path, many[use.path]), many[use.path]) for use in given.uses]
        self._known: dict[Any, Any] = {}

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """What each row gives."""
        if not self._columns:
            return [self._answer([])] * batch.num_rows
        if len(self._columns) == 1 and not self._columns[0][1]:
            return self._single(batch, self._columns[0][0])
        rows = zip(*(_cells(batch, name, many) for name, many in self._columns), strict=True)
        return [self._remembered(row) for row in rows]

    def _answer(self, items: list[Items]) -> Any:
        return self._change(self._value(dict(zip(self._variables, items, strict=True))))

    def true(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows give a true value."""
        return pa.array(self.of(batch), pa.bool_())

    def _single(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        counts = batch[count_name(name)].to_numpy()
        encoded = pc.dictionary_encode(batch[name], null_encoding="encode")
        answers = np.empty(len(encoded.dictionary) + 1, dtype=object)
        firsts = np.flatnonzero(counts > 1)
        # Where there are several items, the first of them says nothing: only rows with one or none share an answer.
        used = np.unique(encoded.indices.to_numpy()[counts <= 1])
        for number, text in zip(used.tolist(), encoded.dictionary.take(pa.array(used)).to_pylist(), strict=True):
            answers[number] = self._remembered((() if text is None else (text,),))
        found: list[Any] = answers[encoded.indices.to_numpy()].tolist()
        for row in firsts.tolist():
            found[row] = self._remembered(((batch[name][row].as_py(),) * int(counts[row]),))
        return found

    def _remembered(self, row: tuple[tuple[str, ...], ...]) -> Any:
        if row not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[row] = self._answer([[UntypedAtomic(text) for text in cell] for cell in row])
        return self._known[row]


def _cells(batch: pa.RecordBatch, name: str, many: bool) -> Iterator[tuple[str, ...]]:
    if many:
        return (tuple(cell) for cell in batch[name].to_pylist())
    counts = batch[count_name(name)].to_pylist()
    return ((text,) * n for text, n in zip(batch[name].to_pylist(), counts, strict=True))
