"""Rounds: several segments read in one call and met in one pass, inside the disk buffer's share of the budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.kernels.waiting_round import Round, chain_rows, empty_met, resolve_round
from dovetail.joins.semistream.operators.answers import SHIFT
from dovetail.joins.semistream.operators.base import Loaded
from dovetail.joins.semistream.operators.round_read import Read, RoundReader
from dovetail.joins.semistream.operators.short_reads import pages_needed
from dovetail.joins.semistream.operators.waiting import Limits
from dovetail.joins.semistream.sizes import ROUND_ROW_BYTES

if TYPE_CHECKING:
    from dovetail.joins.semistream.operators.index_driven import IndexDriven

_COPIES = 3.3  # of a round's rows, at most: as read, as decoded, and in answers
_MOST_TIMES = 3  # more would not fit the processor's caches, and save little


class Rounds:
    """What an index-driven join needs to serve several segments in one round; `most` is 1 if it serves them singly."""

    def __init__(self, join: IndexDriven) -> None:
        self._join, self._reader = join, RoundReader(join)
        self._room = join.budget.reserve("round")
        self.reshape()

    def reshape(self) -> None:
        """Fit the round to the join's segments and budget."""
        join, cost = self._join, self._join.footprint()
        self.most = min(cost.round_segments, max(1, cost.round_rows))
        self._room.resize(cost.round)
        self._usual, self._row_bytes = cost.round, cost.round_row
        self._keyed = cost.keyed
        rows = np.empty(0, np.int64) if self._keyed else join.segments.rows
        n = self.most if self.most > 1 else 0
        self.limits = Limits(int64s(rows), cost.round_rows, np.empty(n, np.int64), np.empty(n, np.int64))
        noted = (cost.noted_keys, cost.noted_rows) if n and join.notes_keys else (0, 0)
        self.met = empty_met(*noted)

    def roomy(self, enough: int) -> Limits:
        """The limits of the next round: larger than planned for by what nobody uses, but not many times as large."""
        join, usual = self._join, self.limits.most_rows
        unused = max(0, join.budget.available - join.floor) / (_COPIES * self._row_bytes)
        more = int(min(unused, (_MOST_TIMES - 1) * usual))
        self._room.resize(self._usual + ROUND_ROW_BYTES * more)
        return self.limits._replace(enough=enough, most_rows=usual + more)

    def serve(self, picked: I64, counts: I64) -> Iterator[pa.RecordBatch]:
        """Read the segments and answer every row that waits for them; after a failure all that is not, waits again."""
        join, asked = self._join, counts.copy()
        try:
            found = self._read_keys(picked, int(counts.sum())) if self._keyed else None
            if found is None:
                n = self._reader.affordable(picked)
                join.waiting.put_back(picked[n:], counts[n:])
                picked, counts, asked = picked[:n], counts[:n], asked[:n]
                found = self._reader.segments(picked, pages_needed(join, picked, counts))
            yield from join.make_room(int(np.diff(found.offsets).max(initial=0)))
            yield from self._resolve(picked, counts, self._reader.hold(found.batch), found)
            join.served_together(picked, asked, found.offsets if found.whole else None)
        except BaseException:
            join.waiting.put_back(picked, counts)
            raise
        finally:
            self._room.resize(self._usual)

    def _read_keys(self, picked: I64, waiting: int) -> Read | None:
        def asked() -> tuple[I64, I64]:
            codes, refs = np.empty(waiting, np.int64), np.empty(waiting, np.int64)
            chain_rows(self._join.waiting.pool, picked, codes, refs)
            return codes, refs

        return self._reader.keys(picked, asked)

    def _resolve(self, picked: I64, counts: I64, loaded: Loaded, found: Read) -> Iterator[pa.RecordBatch]:
        join, at, these = self._join, 0, Round(picked, counts, int64s(found.offsets))
        answers, pool = join.answers, join.waiting.pool
        while at < len(picked):
            start, now = answers.n, join.now_ns()
            state = pool, these, at, loaded.codes, loaded.chunk << SHIFT, join.scratch
            output = answers.written_how, answers.out, start, now, join.remembers
            at, answers.n, done, missed, keys, rows = resolve_round(*state, *output, self.met, join.notes_from)
            missed += answers.wrong(start)
            join.counts["misses"] += missed
            join.counts["answered_by_page"] += done - missed
            if keys:
                join.met_together(loaded.batch, keys, rows, found.page_of)
            if at < len(picked):
                yield from join.flush()

    def close(self) -> None:
        """Give back the memory."""
        self._room.close()
