"""The state of a bucket: a header that describes its pieces of events, and when their rows leave.

Settled pieces come first. All answers of their rows were given, so that a join loads these rows without joining them
again. The other pieces are the tail, whose events are replayed in order. A join is deterministic: the same pieces
restore the same join. Rows leave when their retention is over, or when watermarks and time bands rule out further
matches.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from dovetail.errors import ConfigError
from dovetail.joins.online.lateness import Lateness

EPOCH = 7
"""Incremented whenever a join gives other answers, or the same in another order, to the same pieces and events.

A tail of another epoch is not replayed. `tests/online/frame/golden_log.py` says when to increment it.
"""


FORMAT = 6
NEVER_MATCHES = -(2**63)
"""The expiry of no rows at all."""
_MOST_SPANS = 128  # so that a span is about a hundredth of the state
_RETAINED_LATER = 8  # rows stay at most an eighth longer than they must, so that few steps retire rows
_SPAN_OF_A_TAIL = 64  # of the retention: longer spans would retire rows late
_OPEN = 64 << 10  # bytes up to which a piece takes more events, so that pieces are few and little is rewritten
_FEW = 32  # pieces that may be small, so that few rows leave late
_WORTH = 4  # a quarter of the bytes, so that restoring the rest costs at most three times the new rows
_LONG_TAIL = 2  # half of the bytes: a restart joins the tail again, so it must not grow longer
_SHORT_TAIL = 1 << 20  # bytes of a tail that is never too long


class How(NamedTuple):
    """How a bucket is joined, which may change from run to run; `owed` says when owed results are given."""

    algorithm: str
    memory: int
    owed: str

    def joins_as(self, other: How) -> bool:
        """Whether both give the same answers in the same order to the same events."""
        return (self.algorithm, self.memory) == (other.algorithm, other.memory)


class Bounds(NamedTuple):
    """The bounds of the state, which may change from run to run: the retention of rows, and their lateness."""

    retain_ms: int | None
    lateness: Lateness | None


class Span(NamedTuple):
    """Pieces that leave together: those from the end of the previous span to piece `end`.

    All their `rows` arrived from `since` to `came`, in milliseconds, and match nothing once the watermark is later than
    `expiry`; None if unknown. The first of those that come alone does not once it is later than `first_expiry`.
    """

    end: int
    bytes: int
    since: int
    came: int
    expiry: int | None
    rows: int
    first_expiry: int | None = None

    def joined(self, later: Span) -> Span:
        """This span and the next one merged; it leaves when both may leave."""
        known = self.expiry is not None and later.expiry is not None
        expiry = max(self.expiry, later.expiry) if known else None  # type: ignore[type-var]  # both are known
        since, came = min(self.since, later.since), max(self.came, later.came)
        first = min((at for at in (self.first_expiry, later.first_expiry) if at is not None), default=None)
        return Span(later.end, self.bytes + later.bytes, since, came, expiry, self.rows + later.rows, first)


@dataclass(slots=True)
class Header:
    """A bucket's state without its events, which are pieces numbered from `first` to the end of the last of `spans`.

    `meaning` has the schemas and predicates, `spread` the rule of buckets: neither can change. `how` is how the events
    were joined, `coming` how the next micro-batch is joined, if different; `bounds` are those of the run that stored
    the state. Pieces before `base` are settled: only their rows count. `nonce` is that of the resident join, and new
    whenever the state is stored; if it is empty, the next micro-batch rebuilds the join. `tail` are the bytes of pieces
    from `base` on, `last` those of the last piece. `settled` says that nothing is owed. `pauses` counts the pauses
    since the last rows, `rows` all rows so far, `newest` has event times by side, `watermark` is the latest one that
    was applied, and `timed` are the columns of the last run that had watermarks. Of joins that preserve rows,
    `numbered` counts these, and unmatched ones have come out of the pieces before `answered`, which are those of
    numbers below `answered_rows`.
    """

    meaning: dict[str, Any]
    how: How
    ended: list[bool]
    newest: list[int | None]
    epoch: int = EPOCH
    spread: str | None = None
    coming: How | None = None
    bounds: Bounds | None = None
    nonce: str = ""
    first: int = 0
    base: int = 0
    tail: int = 0
    last: int = 0
    rows: int = 0
    pauses: int = 0
    settled: bool = True
    finished: bool = False
    watermark: int | None = None
    timed: list[list[str]] | None = None
    numbered: int = 0
    answered: int = 0
    answered_rows: int = 0
    spans: list[Span] = field(default_factory=list)

    @classmethod
    def new(cls, meaning: dict[str, Any], how: How, inputs: int) -> Header:
        """The header of an empty bucket."""
        return cls(meaning, how, [False] * inputs, [None] * inputs)

    @classmethod
    def load(cls, stored: dict[str, Any] | None, meaning: dict[str, Any], how: How, inputs: int) -> Header:
        """The stored header, or a new one; `ConfigError` if it belongs to another join."""
        if stored is None:
            return cls.new(meaning, how, inputs)
        coming, bounds, spans = stored.pop("coming"), stored.pop("bounds", None), stored.pop("spans")
        found = cls(**stored | {"how": How(*stored["how"])})
        found.coming, found.spans = How(*coming) if coming else None, [Span(*span) for span in spans]
        if bounds is not None:
            retain_ms, late = bounds
            found.bounds = Bounds(retain_ms, late and Lateness(**{name: tuple(some) for name, some in late.items()}))
        found._check_meaning(json.loads(json.dumps(meaning)))
        return found

    def _check_meaning(self, now: dict[str, Any]) -> None:
        names = [name for name in self.meaning | now if self.meaning.get(name) != now.get(name)]
        if names:
            shown = "; ".join(f"{name}: {self.meaning.get(name)} there, {now.get(name)} here" for name in names)
            raise ConfigError(
                f"the checkpoint holds the state of another online join: {shown}. Inputs, their columns and what is "
                f"joined must stay as they were: make them so, or start from a new checkpoint."
            )

    def check_spread(self, now: str) -> None:
        """`ConfigError` if rows would go to other buckets than before, and so miss matches."""
        if self.spread is None:
            self.spread = now
        if self.spread != now:
            was, is_now = json.loads(self.spread), json.loads(now)
            names = [name for name in was | is_now if was.get(name) != is_now.get(name)]
            shown = "; ".join(f"{name}: {was.get(name)} there, {is_now.get(name)} here" for name in names)
            raise ConfigError(
                f"the checkpoint has its rows in other buckets than this query: {shown}. Rows would not find each "
                f"other: give partitions={was['buckets']}, and hot= or rows= as they were, or start from a new "
                f"checkpoint."
            )

    def as_json(self) -> dict[str, Any]:
        """The header as it is stored; without what earlier versions of this format do not have, if it is not used."""
        return {name: value for name, value in asdict(self).items() if name != "timed" or value is not None}

    @staticmethod
    def new_nonce() -> str:
        """A unique number for a stored state."""
        return uuid.uuid4().hex

    # ------------------------------------------------------------------ pieces

    @property
    def next(self) -> int:
        """The number of the next piece."""
        return self.spans[-1].end if self.spans else self.first

    @property
    def bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(span.bytes for span in self.spans)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever stored."""
        return self.next == 0

    def takes_more(self, now_ms: int, retain_ms: int | None, settled: bool) -> bool:
        """Whether there are many pieces, and the last one is small, recent and as `settled` as new events."""
        if self.next - self.first < _FEW or not 0 < self.last < _OPEN or settled != (self.base == self.next):
            return False
        if self.answered == self.next:
            return False
        return retain_ms is None or now_ms - self.spans[-1].since < retain_ms // _SPAN_OF_A_TAIL

    def drop_last(self) -> int:
        """Remove the last piece, which will be rewritten, and return its number; its span continues."""
        span = self.spans[-1]
        self.spans[-1] = span._replace(end=span.end - 1, bytes=span.bytes - self.last)
        if self.base > self.next:
            self.base = self.next
        else:
            self.tail -= self.last
        self.last = 0
        return span.end - 1

    def add_pieces(self, sizes: list[int], rows: int, now_ms: int, expiry: int | None, goes_on: bool) -> None:
        """Add pieces of these sizes, whose rows arrived now; they belong to the last span if `goes_on`."""
        span = Span(self.next + len(sizes), sum(sizes), now_ms, now_ms, expiry, rows)
        self.spans.append(self.spans.pop().joined(span) if goes_on else span)
        self._has_more(sizes)
        self._join_spans()

    def note_first_expiry(self, at: int | None) -> None:
        """Note when the first of the rows that were added last comes alone; None if none of them does."""
        if at is not None and self.spans:
            self.spans[-1] = self.spans[-1].joined(self.spans[-1]._replace(bytes=0, rows=0, first_expiry=at))

    def add_pieces_without_rows(self, sizes: list[int], now_ms: int) -> None:
        """Add pieces without rows, which do not change when the last span leaves."""
        if self.spans:
            last = self.spans[-1]
            self.spans[-1] = last._replace(end=last.end + len(sizes), bytes=last.bytes + sum(sizes))
            self._has_more(sizes)
        else:
            self.add_pieces(sizes, 0, now_ms, NEVER_MATCHES, goes_on=False)

    def _has_more(self, sizes: list[int]) -> None:
        self.tail, self.last = self.tail + sum(sizes), sizes[-1]

    @property
    def has_long_tail(self) -> bool:
        """Whether the tail is so large a part of the state that the join should settle."""
        return self.tail > max(_SHORT_TAIL, self.bytes // _LONG_TAIL)

    def _join_spans(self) -> None:
        """Merge the two adjacent spans of the shortest total time, while there are too many."""
        while len(self.spans) > _MOST_SPANS:
            at = min(range(_MOST_SPANS), key=lambda n: self.spans[n + 1].came - self.spans[n].since)
            self.spans[at : at + 2] = [self.spans[at].joined(self.spans[at + 1])]

    def rows_before(self, piece: int) -> int:
        """Rows of the pieces before this one, the end of a span."""
        return sum(span.rows for span in self.spans if span.end <= piece)

    def drop_before(self, piece: int) -> None:
        """Drop the pieces before this one, the end of a span; all are settled."""
        self.first, self.spans = piece, [span for span in self.spans if span.end > piece]

    def settle(self) -> None:
        """Mark all stored pieces as settled: from now on only their rows count."""
        self.base, self.tail, self.settled = self.next, 0, True

    def clear(self) -> None:
        """Drop all pieces."""
        self.first = self.base = self.next
        self.spans, self.tail, self.last = [], 0, 0

    # ------------------------------------------------------------------ rows that leave

    def raise_watermark(self, now: int | None) -> int | None:
        """The watermark of this micro-batch. It never decreases, even if delays change, as rows have left by it."""
        self.watermark = max((at for at in (self.watermark, now) if at is not None), default=None)
        return self.watermark

    def expired(self, watermark: int | None) -> int:
        """The piece before which no row can match a later one."""
        if watermark is None:
            return self.first
        return self._end_of_those(lambda span: span.expiry is not None and span.expiry < watermark)

    def next_expiry(self) -> int | None:
        """The watermark that must be passed for rows to come out alone: where all is settled, the next one; else so
        many that it is worth to settle."""
        if self.settled:
            left = [span for span in self.spans if span.end > self.answered]
            firsts = (span.expiry if span.first_expiry is None else span.first_expiry for span in left)
            return min((at for at in firsts if at is not None), default=None)
        expiry, freed = NEVER_MATCHES, 0
        for span in self.spans:
            if span.expiry is None:
                return None
            expiry, freed = max(expiry, span.expiry), freed + span.bytes
            if span.end > self.answered and _WORTH * freed >= self.bytes:
                return expiry
        return None

    def leaving(self, now_ms: int, retain_ms: int | None, watermark: int | None) -> int:
        """The piece before which rows leave: their retention is over, or no later row can match them."""
        return max(self._outdated(now_ms, retain_ms), self._unmatched(watermark))

    def _outdated(self, now_ms: int, retain_ms: int | None) -> int:
        if retain_ms is None or not self.spans:
            return self.first
        if self.spans[0].since > now_ms - retain_ms - retain_ms // _RETAINED_LATER:
            return self.first
        return self._end_of_those(lambda span: span.came <= now_ms - retain_ms)

    def _unmatched(self, watermark: int | None) -> int:
        end = self.expired(watermark)
        freed = sum(span.bytes for span in self.spans if span.end <= end)
        return end if _WORTH * freed >= self.bytes else self.first

    def _end_of_those(self, may_leave: Callable[[Span], bool]) -> int:
        """The end of the leading spans that may all leave."""
        end = self.first
        for span in self.spans:
            if not may_leave(span):
                break
            end = span.end
        return end

    # ------------------------------------------------------------------ the next micro-batch

    @property
    def planned(self) -> How:
        """How this micro-batch is joined in every attempt, whatever this run requests."""
        return self.coming or self.how

    @property
    def free_to_change(self) -> bool:
        """Whether every join gives the same answers in this micro-batch: nothing is owed before or after it."""
        return self.settled and (self.planned.owed == "batch" or self.is_new)

    def bounded_by(self, wanted: Bounds) -> Bounds:
        """The bounds of the state in this micro-batch, in every attempt; the requested ones hold from the next one on.

        All owed results of rows are given before they leave, unmatched rows come when they leave, and late rows are
        dropped, so all attempts must retire and drop the same rows.
        """
        bounds, self.bounds = self.bounds or wanted, wanted
        return bounds

    def check_watermarks(self, wanted: Lateness | None) -> None:
        """`ConfigError` for watermarks on other columns than those of the last run that had any: rows left by them."""
        late = self.bounds.lateness if self.bounds else None
        was = self.timed or (late.timed if late else None)
        if was and wanted and was != wanted.timed:
            raise ConfigError(
                f"the checkpoint has watermarks on {was[0]} of its inputs, and this query on "
                f"{list(wanted.columns)}. Rows would leave before their partners come: give withWatermark on those "
                f"columns as before, or start from a new checkpoint."
            )
        self.timed = wanted.timed if wanted else was

    def check_unchanged(self, wanted: How, bounds: Bounds) -> None:
        """`ConfigError` for options other than those of the stored state, where attempts may start from two states.

        Without owed results, algorithm and budget change nothing.
        """
        how = self.planned
        free = how.owed == wanted.owed == "batch"
        was, now = ([None if free else how, self.bounds], [None if free else wanted, bounds])
        if self.bounds is not None and was != now:
            shown = "; ".join(f"{a} there, {b} here" for a, b in zip(was, now, strict=True) if a != b)
            raise ConfigError(
                f"the checkpoint began with Spark's state format 1, in which a micro-batch that is repeated after two "
                f"kills may start from another state than before, and options have changed: {shown}. Give them as they "
                f"were, or start from a new checkpoint, which gets format 2."
            )

    def check_epoch(self) -> None:
        """`ConfigError` if answers are owed that only the version which wrote the state can reproduce."""
        if self.epoch != EPOCH and not self.free_to_change:
            raise ConfigError(
                f"the checkpoint was written by a version of Dovetail that gives answers in another order (epoch "
                f"{self.epoch}, this version has {EPOCH}), and some are still owed, as always with owed='idle'. Run "
                f"the version that wrote it until the input ends, or start from a new checkpoint."
            )

    def goes_on_as(self, how: How, wanted: How) -> None:
        """Record how the micro-batch was joined, and how the next ones will be."""
        self.how, self.epoch, self.coming = how, EPOCH, None if wanted == how else wanted
