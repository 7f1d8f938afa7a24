"""Names, prefixes and namespaces of a document as small numbers, each kept once with its bytes."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.chars import WRONG, colon_of
from dovetail.xml.kernels.codes import (
    EMPTY,
    N_NAMES,
    N_WANTED,
    NAME_BYTE,
    NAME_ROOM,
    NAMED,
    NAMES,
    SLOT_MASK,
    SLOTS,
    W_LOCAL,
    W_NEXT,
    W_PREFIX,
    W_STAMP,
    W_START,
    W_SYMBOL,
    WANTED,
    WORD,
)
from dovetail.xml.kernels.parts import called, entry, inlined, small

ILLEGAL = -100
"""Instead of a number: these bytes are not a qualified name."""
_UNCHECKED = -1
_BASIS, _PRIME = np.uint64(0x345678), np.uint64(1000003)


@small
def word(number: int, mem: I64) -> int:
    """Where the record of a string lies."""
    return mem[NAMED] + WORD * number  # type: ignore[no-any-return]  # a number of the array


@inlined
def _slot(buf: U8, start: int, stop: int, mem: I64) -> int:
    """The slot at which the search for these bytes begins."""
    value = _BASIS
    for at in range(start, stop):
        value = (value ^ np.uint64(buf[at])) * _PRIME
    return np.int64(value ^ (value >> np.uint64(32))) & mem[SLOT_MASK]  # type: ignore[no-any-return]  # as above


@small
def same_bytes(buf: U8, start: int, book: U8, at: int, n: int) -> bool:
    """Whether `n` bytes of the source are those of the book."""
    for i in range(n):  # noqa: SIM110  (a kernel has no generators)
        if buf[start + i] != book[at + i]:
            return False
    return True


@called
def interned(buf: U8, start: int, stop: int, mem: I64, book: U8) -> int:
    """The number of these bytes, old or new; the answer NAMES if there is no room for them."""
    slots, mask, n = mem[SLOTS], mem[SLOT_MASK], stop - start
    slot = _slot(buf, start, stop, mem)
    while mem[slots + slot]:
        number = mem[slots + slot] - 1
        at = mem[word(number, mem)]
        if mem[word(number + 1, mem)] - at == n and same_bytes(buf, start, book, at, n):
            return number  # type: ignore[no-any-return]  # as above
        slot = (slot + 1) & mask
    number = mem[N_NAMES]
    new = word(number, mem)
    at = mem[new]
    if number + 2 >= mem[NAME_ROOM] or at + n + 16 > len(book):
        return NAMES
    for i in range(n):
        book[at + i] = buf[start + i]
    mem[new + WORD + W_START] = at + n
    mem[new + W_PREFIX], mem[new + W_NEXT], mem[new + W_STAMP] = _UNCHECKED, EMPTY, 0
    mem[slots + slot] = number + 1
    mem[N_NAMES] = number + 1
    return number  # type: ignore[no-any-return]  # as above


@entry
def rehashed(mem: I64, book: U8) -> None:
    """Fill the empty slots of a table that has become larger."""
    for number in range(mem[N_NAMES]):
        at = word(number, mem)
        slot = _slot(book, mem[at], mem[at + WORD], mem)
        while mem[mem[SLOTS] + slot]:
            slot = (slot + 1) & mem[SLOT_MASK]
        mem[mem[SLOTS] + slot] = number + 1


@entry
def numbered(text: U8, mem: I64, book: U8) -> int:
    """The number of a string that a request or a new table needs; NAMES if there is no room for it."""
    return interned(text, 0, len(text), mem, book)


@small
def symbol_of(uri: int, local: int, mem: I64) -> int:
    """The symbol of an expanded name: k + 1 for the k-th that the request names, 0 for any other."""
    for k in range(mem[N_WANTED]):
        at = mem[WANTED] + 2 * k
        if mem[at] == uri and mem[at + 1] == local:
            return k + 1
    return 0


@called
def named(buf: U8, start: int, stop: int, mem: I64, book: U8) -> int:
    """The number of a qualified name with all that is known of it; NAMES, or ILLEGAL if it is not one."""
    number = interned(buf, start, stop, mem, book)
    at = word(number, mem)
    if number < 0 or mem[at + W_PREFIX] != _UNCHECKED:
        return number
    colon = colon_of(buf, start, stop)
    if colon == WRONG:
        return ILLEGAL
    prefix, local = EMPTY, number
    if colon != stop:
        prefix = interned(buf, start, colon, mem, book)
        local = interned(buf, colon + 1, stop, mem, book)
        if prefix < 0 or local < 0:
            return NAMES
    mem[at + W_SYMBOL] = symbol_of(EMPTY, local, mem) if prefix == EMPTY else 0
    mem[at + W_LOCAL], mem[at + W_PREFIX] = local, prefix
    return number


@small
def guessed(buf: U8, start: int, guess: int, mem: I64, book: U8) -> int:
    """Where the name at `start` stops if it is the guessed one, else -1."""
    at = mem[word(guess, mem)]
    n = mem[word(guess + 1, mem)] - at
    if n == 0 or not same_bytes(buf, start, book, at, n) or NAME_BYTE[buf[start + n]]:
        return -1
    return start + n  # type: ignore[no-any-return]  # as above
