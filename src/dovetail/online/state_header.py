"""The small part of a bucket's state: where its events are, who may take them up, and what is pending."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field

from dovetail.errors import ConfigError

FORMAT = 2
_MARKS = 8
_MOST_EXPIRIES = 256
_WORTH = 4  # a quarter of the pieces, so that rebuilding costs no more than some three times what came


@dataclass(slots=True)
class Header:
    """A bucket's state but for its events, which are pieces numbered from `first` to before `next`.

    `nonce` is new whenever the state is stored. `pauses` counts the pauses of the last piece, if it has nothing else.
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

    def forget_before(self, piece: int) -> None:
        """Pieces before this one are gone."""
        self.first, self.marks = piece, [mark for mark in self.marks if mark[1] >= piece]
        self.expiries = [mark for mark in self.expiries if mark[1] > piece]

    def note_expiry(self, at: int | None) -> None:
        """All pieces so far expire at this event time, or at that of those before if it is later."""
        if at is None:
            return
        last = self.expiries[-1][0] if self.expiries else at
        self.expiries.append([max(at, last), self.next])
        if len(self.expiries) > _MOST_EXPIRIES:
            self.expiries = self.expiries[1::2]  # fewer ones let rows go later, never too early

    def expired_by(self, watermark: int | None) -> int:
        """The piece before which nothing matches any more, if that is worth a rebuild; else `first`."""
        if watermark is None:
            return self.first
        piece = max((piece for at, piece in self.expiries if at < watermark), default=self.first)
        return piece if _WORTH * (piece - self.first) >= self.next - self.first else self.first
