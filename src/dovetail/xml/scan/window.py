"""The part of a document that the scanner sees: what it has not consumed, and a block more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.engine.kernels.arrays import U8
from dovetail.engine.memory import Reservation
from dovetail.errors import BudgetExceeded

_PADDING = 16
_LINE_END = 10


class Window:
    """Bytes of a document from the first that is not consumed on; they end in a zero byte and room for 15 more."""

    def __init__(self, chunks: Iterator[bytes], block: int, held: Reservation) -> None:
        self._chunks, self._block, self._held = chunks, block, held
        self._waiting = memoryview(b"")
        self._raw = bytearray(0)
        self._view: U8 = np.empty(0, np.uint8)
        self.size, self._lines, self._start = 0, 1, 0
        self._make(block)

    @property
    def bytes(self) -> U8:
        """What the scanner may see."""
        return self._view[self._start :]

    def _make(self, size: int) -> None:
        if size + _PADDING >= 2**31:
            raise BudgetExceeded("one tag, comment or CDATA section is larger than 2 GiB")
        self._held.grow(size + _PADDING)
        raw = bytearray(size + _PADDING)
        raw[: self.size] = self._raw[self._start : self._start + self.size]
        self._held.shrink(len(self._raw))
        self._raw, self._start = raw, 0
        self._view = np.frombuffer(raw, np.uint8)

    def drop(self, n: int) -> None:
        """The first `n` bytes are consumed."""
        # NumPy counts the many line ends of XML three times as fast as bytearray.count.
        self._lines += int(np.count_nonzero(self._view[self._start : self._start + n] == _LINE_END))
        self._start += n
        self.size -= n

    def line(self, at: int) -> int:
        """The number of the line in which byte `at` of the window lies, from 1 on."""
        return self._lines + self._raw.count(b"\n", self._start, self._start + at)

    def fill(self) -> bool:
        """Whether bytes were added: a block, and so many that a token which did not fit is not read too often."""
        wanted, before = max(self._block, 2 * self.size), self.size
        if wanted + _PADDING > len(self._raw):
            self._make(wanted)
        elif self._start:
            self._view[: self.size] = self._view[self._start : self._start + self.size].copy()
            self._start = 0
        while self.size < wanted and self._next():
            piece = self._waiting[: wanted - self.size]
            self._raw[self.size : self.size + len(piece)] = piece
            self.size += len(piece)
            self._waiting = self._waiting[len(piece) :]
        self._raw[self.size] = 0
        return self.size > before

    def _next(self) -> bool:
        while not self._waiting:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._waiting = memoryview(chunk)
        return True
