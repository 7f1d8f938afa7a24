"""Expressions over Arrow columns: by array functions where texts are plain, else by the evaluator, once a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.xml.execute.columns import OnColumns, Path
from dovetail.xml.execute.plain import Arrays, Test
from dovetail.xml.execute.runner import Runner
from dovetail.xml.execute.texts import column_name
from dovetail.xml.scan import count_name
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.values import boolean

KEPT = 1 << 17
"""So many answers are remembered; then remembering starts anew."""


class Computed:
    """One expression over columns; `change` is applied to the items it gives for a row."""

    def __init__(
        self, runner: Runner, given: OnColumns, many: dict[Path, bool], change: Callable[[list[Any]], Any]
    ) -> None:
        self._value, self._change = runner.function(given.expression, given.variables), change
        self.columns = [(column_name(use.path, many[use.path]), many[use.path]) for use in given.uses]
        self._known: dict[Any, Any] = {}

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """What each row gives."""
        if not self.columns:
            return [self._answer([])] * batch.num_rows
        if len(self.columns) == 1 and not self.columns[0][1]:
            return self._single(batch, self.columns[0][0])
        rows = zip(*(_cells(batch, name, many) for name, many in self.columns), strict=True)
        return [self._remembered(row) for row in rows]

    def _answer(self, items: list[list[Any]]) -> Any:
        return self._change(self._value(items))

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


class Condition(Computed):
    """A condition over columns: computed by array functions for rows with plain texts, else by the evaluator."""

    def __init__(self, runner: Runner, given: OnColumns, many: dict[Path, bool]) -> None:
        super().__init__(runner, given, many, boolean)
        self._arrays = Arrays(runner, dict(zip(given.variables, self.columns, strict=True)))
        self._expression, self._asked = given.expression, False
        self._test: Test | None = None

    def true(self, batch: pa.RecordBatch) -> pa.Array:
        """For which rows it is true."""
        if not self._asked:  # with a row in hand: a constant that is an error is none where there are no rows
            self._test, self._asked = self._arrays.test(self._expression), True
        if self._test is None:
            return pa.array(self.of(batch), pa.bool_())
        known, true = self._test(batch)
        if not known.all():
            true[~known] = self.of(batch.filter(pa.array(~known)))
        return pa.array(true)


def _cells(batch: pa.RecordBatch, name: str, many: bool) -> Iterator[tuple[str, ...]]:
    if many:
        return (tuple(cell) for cell in batch[name].to_pylist())
    counts = batch[count_name(name)].to_pylist()
    return ((text,) * n for text, n in zip(batch[name].to_pylist(), counts, strict=True))
