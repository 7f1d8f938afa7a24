"""What a multiway join holds: rows in memory, blocks on disk, and room made for either inside the budget."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.joining import JoiningOperator
from dovetail.joins.online.kernels.multi_rows import (
    CLOCK,
    GONE,
    H_GROUP,
    H_MARK,
    H_RELATION,
    H_ROWS,
    H_TICK,
    HEADS,
    ROWS,
    MultiRows,
    empty_multi_outcome,
    empty_multi_rows,
    empty_stack,
    release_slots,
)
from dovetail.joins.online.multiway.answers import MultiAnswers
from dovetail.joins.online.multiway.blocks import LeavingRows, MultiBlocks, loaded_bytes
from dovetail.joins.online.multiway.keys import MultiKeys
from dovetail.joins.online.multiway.sizes import MultiFitted
from dovetail.joins.online.row_pages import RowPages, mean_row_bytes

if TYPE_CHECKING:
    from dovetail.joins.online.multiway.spec import MultiJoin

FLUSHES = 32


class MultiHolding(JoiningOperator[MultiBlocks]):
    """A multiway join's memory and disk. Rows leave memory by the flush policy of the algorithm, and only so."""

    rows: MultiRows
    fitted: MultiFitted

    def __init__(
        self,
        spec: MultiJoin,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        schema: pa.Schema,
        spill_dir: Path | None,
    ) -> None:
        super().__init__(spec.inputs, schemas, schema, budget)
        self.spec, self._given = spec, dict(schemas)
        self.keys = MultiKeys(spec.graph, schemas, spec.hash_bits)
        self.blocks = [
            self.own(MultiBlocks(schema, int(n), loaded_bytes(spec.graph, r), budget, spill_dir, f"multi-{r}"))
            for r, (schema, n) in enumerate(zip(self.schemas, self.keys.widths, strict=True))
        ]

    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by input; nothing is in memory before."""
        if not self._begun:
            self.allocate(self.spec.fit(self._limit, self._given, seen))
            self._begun = True

    def allocate(self, fitted: MultiFitted) -> None:
        """Reserve and make everything that the split gives room for."""
        self.fitted, n = fitted, len(self.names)
        self._index.grow(fitted.index_bytes)
        self.rows = self._no_rows(fitted.slots, fitted.rows, fitted.row_bytes)
        self.out = empty_multi_outcome(fitted.combos, n, fitted.slots, FLUSHES)
        self.stack = empty_stack(n)
        self.pages = [self._pages_of(r) for r in range(n)]
        room = self.own(self.budget.reserve("answers"))
        room.grow(fitted.answer_bytes)
        phased = self.spec.with_phase
        self.answers = MultiAnswers(self.schema, self.keys, room, sum(fitted.widths), self.progress, phased)
        self._combos = self.own(self.budget.reserve("combinations"))
        self._combos.grow(12 * n * fitted.combos)
        self.index_rows()

    @abstractmethod
    def index_rows(self) -> None:
        """Make the algorithm's own arrays; `fitted.index_bytes` are reserved for them and the rows."""

    def _pages_of(self, r: int) -> RowPages:
        reservation = self.budget.reserve(f"rows of {self.names[r]}")
        return self.own(RowPages(self.schemas[r], reservation, self.rows.ref, self.fitted.chunk_bytes))

    @property
    def clock(self) -> int:
        """The last tick."""
        return int(self.rows.meta[CLOCK])

    def rows_held(self) -> int:
        """Rows in memory."""
        return int(self.rows.meta[ROWS])

    def _no_rows(self, slots: int, rows: int, row_bytes: int) -> MultiRows:
        return empty_multi_rows(slots, len(self.names), rows, row_bytes, self.keys.order, int(self.keys.widths.max()))

    def keys_at(self, r: int, slots: I32) -> I64:
        """Keys of rows in memory or on their way out."""
        return self.rows.key[: self.keys.widths[r], slots]

    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""
        heads, gone = self.out.heads[: self.out.n[HEADS]].copy(), self.out.gone[: self.out.n[GONE]].copy()
        self.out.n[GONE] = self.out.n[HEADS] = 0
        at = 0
        for head in heads.tolist():
            slots = gone[at : at + head[H_ROWS]]
            at += len(slots)
            self._write(head[H_RELATION], slots, head[H_TICK], head[H_MARK], head[H_GROUP])
        release_slots(self.rows, gone)

    def _write(self, r: int, slots: I32, tick: int, mark: int, group: int) -> None:
        """The rows of one flush, sorted by the attribute that they left by, in blocks that can be loaded again."""
        key = self.keys_at(r, slots)
        slots = slots[np.argsort(key[mark if mark < len(key) else 0], kind="stable")]
        window = max(self.fitted.block_rows, self.fitted.chunk_bytes // self.fitted.widths[r])
        for start in range(0, len(slots), window):
            some = slots[start : start + window]
            batch = self.pages[r].gather(self.rows.ref[some], distinct=True)
            rows = LeavingRows(batch, self.keys_at(r, some), self.rows.ats[some])
            most = max(1, self.fitted.block_bytes // (mean_row_bytes(batch) + 64))
            self.blocks[r].append_cut(rows, min(self.fitted.block_rows, most), tick, mark, group)
        self.metrics.add("rows_flushed", len(slots), self.names[r])
        self.pages[r].forget(self.rows.ref[slots])

    def forget_gone(self, r: int) -> None:
        """Rows of one input that left are not written; their slots are free."""
        gone = self.out.gone[: self.out.n[GONE]].copy()
        self.out.n[GONE] = self.out.n[HEADS] = 0
        self.pages[r].forget(self.rows.ref[gone])
        release_slots(self.rows, gone)

    def empty_memory(self) -> None:
        """Every row leaves memory, and the indexes with them: all the budget but row names is for blocks."""
        self.flush_all()
        clock, n = self.clock, len(self.names)
        self.rows, self.out = self._no_rows(0, 0, 0), empty_multi_outcome(0, n, 0, 0)
        self.rows.meta[CLOCK] = clock
        self.drop_index()
        self._index.resize(8 * self.fitted.slots)

    @abstractmethod
    def drop_index(self) -> None:
        """Forget arrays that only rows in memory need."""

    @property
    def can_react(self) -> bool:
        """Whether a block of each input fits beside the index; else all work on disk waits for the end of input."""
        return self.block_room > 2 * sum(store.largest for store in self.blocks) + 1024
