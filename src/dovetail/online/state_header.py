"""The small part of a bucket's state: where its events are, who may take them up, and what is pending."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field

from dovetail.errors import ConfigError

FORMAT = 3
_MARKS = 8
_MOST_EXPIRIES = 256
_OPEN = 64 << 10  # bytes up to which a piece takes more events: so pieces are few, and little is written twice
_FEW = 32  # pieces that may be small, so that little leaves late
_WORTH = 4  # a quarter of the pieces, so that rebuilding costs no more than some three times what came


@dataclass(slots=True)
class Header:
    """A bucket's state but for its events, which are pieces numbered from `first` to before `next`.

    `nonce` is new whenever the state is stored. `bytes` are those of all pieces, `tail` those of the last one. `pauses`
    counts the pauses since rows came, `rows` all rows that came.
    `marks` are (milliseconds, piece) pairs: pieces from there on came then or later. `newest` are event times by side,
    `expiries` (event time, piece) pairs: what lies before that piece matches nothing once the watermark is later.
    """

    digest: str
    ended: list[bool]
    newest: list[int | None]
    nonce: str = ""
    first: int = 0
    next: int = 0
    bytes: int = 0
    tail: int = 0
    rows: int = 0
    pauses: int = 0
    finished: bool = False
    timer: int | None = None
    marks: list[list[int]] = field(default_factory=list)
    expiries: list[list[int]] = field(default_factory=list)

    @classmethod
    def new(cls, digest: str, inputs: int) -> Header:
        """The header of a bucket to which nothing has come yet."""
        return cls(digest, [False] * inputs, [None] * inputs)

    @classmethod
    def load(cls, text: str | None, digest: str, inputs: int) -> Header:
        """The stored header, or a new one; `ConfigError` if it is of another join."""
        if text is None:
            return cls.new(digest, inputs)
        stored = json.loads(text)
        if stored.pop("format") != FORMAT or stored["digest"] != digest:
            raise ConfigError(
                "the checkpoint holds the state of another online join: algorithm, keys, memory, buckets (by default "
                "spark.sql.shuffle.partitions) and columns must stay as they were. Use them, or a new checkpoint."
            )
        return cls(**stored)

    def dump(self) -> str:
        """The header as it is stored."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @staticmethod
    def new_nonce() -> str:
        """A number that no stored state has had."""
        return uuid.uuid4().hex

    def mark(self, now_ms: int, retain_ms: int) -> None:
        """Note when the next piece comes, not more often than an eighth of what is retained."""
        if not self.marks or now_ms - self.marks[-1][0] >= retain_ms // _MARKS:
            self.marks.append([now_ms, self.next])

    def expired(self, now_ms: int, retain_ms: int) -> int:
        """The piece before which all came longer than `retain_ms` ago; `first` if there are none such."""
        # Pieces of a mark came before the next mark.
        old = [piece for at, piece in self.marks[1:] if at <= now_ms - retain_ms]
        return max(old, default=self.first)

    @property
    def takes_more(self) -> bool:
        """Whether there are many pieces, the last one is small, and no mark says that another one begins now."""
        marked = bool(self.marks) and self.marks[-1][1] == self.next
        return self.next - self.first >= _FEW and 0 < self.tail < _OPEN and not marked

    def add_piece(self, size: int) -> int:
        """The number of a new piece of so many bytes."""
        self.next, self.bytes, self.tail = self.next + 1, self.bytes + size, size
        return self.next - 1

    def drop_tail(self) -> int:
        """The number of the last piece, which will be written anew."""
        self.next, self.bytes, self.tail = self.next - 1, self.bytes - self.tail, 0
        return self.next

    def forget_before(self, piece: int, size: int) -> None:
        """Pieces before this one, of so many bytes together, are gone."""
        self.bytes, self.tail = self.bytes - size, self.tail if piece < self.next else 0
        self.first, self.marks = piece, [mark for mark in self.marks if mark[1] >= piece]
        self.expiries = [mark for mark in self.expiries if mark[1] > piece]

    def note_expiry(self, at: int | None) -> None:
        """All pieces so far expire at this event time, or at that of those before if it is later."""
        if at is None:
            return
        last = self.expiries[-1][0] if self.expiries else at
        if self.expiries and self.expiries[-1][1] == self.next:
            self.expiries.pop()  # the last piece has taken more
        self.expiries.append([max(at, last), self.next])
        if len(self.expiries) > _MOST_EXPIRIES:
            self.expiries = self.expiries[1::2]  # fewer ones let rows go later, never too early

    def expired_by(self, watermark: int | None) -> int:
        """The piece before which nothing matches any more, if that is worth a rebuild; else `first`."""
        if watermark is None:
            return self.first
        piece = max((piece for at, piece in self.expiries if at < watermark), default=self.first)
        return piece if _WORTH * (piece - self.first) >= self.next - self.first else self.first
