"""Characters and names of XML in UTF-8.

Characters are read, judged, referred to, and written with the escapes that they need. Names, prefixes and namespaces of
a document are small numbers, each kept once with its bytes.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.codes import (
    AS_IS,
    AS_TEXT,
    AS_VALUE,
    BLANK,
    EMPTY,
    LEGAL_ASCII,
    N_NAMES,
    N_WANTED,
    NAME_BYTE,
    NAME_ROOM,
    NAME_START,
    NAMED,
    NAMES,
    PLAIN,
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
    XML_VALUE,
    called,
    entry,
    inlined,
    small,
    whole,
)

CUT, WRONG, UNDECLARED = 0, -1, -2
"""Instead of a number of bytes: the end of the buffer comes first; not allowed; an entity that is not declared."""


@small
def code_point(buf: U8, at: int, end: int) -> tuple[int, int]:
    """The character at `at` and its number of bytes, or CUT, or WRONG if these bytes are not UTF-8."""
    first = whole(buf[at])
    if first < 0x80:
        return first, 1
    if first < 0xC2 or first > 0xF4:
        return 0, WRONG
    n = 2 + (first >= 0xE0) + (first >= 0xF0)
    value = first & (0x7F >> n)
    for i in range(1, n):
        if at + i >= end:
            return 0, CUT
        follower = whole(buf[at + i])
        if follower & 0xC0 != 0x80:
            return 0, WRONG
        value = value << 6 | follower & 0x3F
    if (n == 3 and (value < 0x800 or 0xD800 <= value <= 0xDFFF)) or (n == 4 and not 0x10000 <= value <= 0x10FFFF):
        return 0, WRONG
    return value, n


@small
def is_character(c: int) -> bool:
    """Whether XML 1.0 allows this code point (its production Char)."""
    if c < 0x80:
        return c >= 0 and LEGAL_ASCII[c] != 0
    return c <= 0xD7FF or 0xE000 <= c <= 0xFFFD or 0x10000 <= c <= 0x10FFFF


@inlined
def _starts_name(c: int) -> bool:
    """The production NameStartChar of the fifth edition, without the colon."""
    if c < 0x80:
        return NAME_START[c] != 0 and c != 58
    if c < 0x2000:
        return c >= 0xC0 and c not in (0xD7, 0xF7, 0x37E) and not 0x300 <= c <= 0x36F
    if c < 0x3001:
        return 0x200C <= c <= 0x200D or 0x2070 <= c <= 0x218F or 0x2C00 <= c <= 0x2FEF
    return c <= 0xD7FF or 0xF900 <= c <= 0xFDCF or 0xFDF0 <= c <= 0xFFFD or 0x10000 <= c <= 0xEFFFF


@inlined
def _continues_name(c: int) -> bool:
    if c < 0x80:
        return NAME_BYTE[c] != 0 and c != 58
    return _starts_name(c) or c == 0xB7 or 0x300 <= c <= 0x36F or c in (0x203F, 0x2040)


@called
def colon_of(buf: U8, start: int, stop: int) -> int:
    """Where the colon of a qualified name lies, `stop` if it has none, WRONG if this is not a qualified name."""
    colon, fresh, at = stop, True, start
    while at < stop:
        c, n = code_point(buf, at, stop)
        if n <= 0:
            return WRONG
        if c == 58:
            if fresh or colon != stop:
                return WRONG
            colon, fresh = at, True
        elif not (_starts_name(c) if fresh else _continues_name(c)):
            return WRONG
        else:
            fresh = False
        at += n
    return WRONG if fresh else colon


@inlined
def _number(buf: U8, at: int, end: int) -> tuple[int, int]:
    """The character meant by a reference, from behind its '&#' on, and where its semicolon is; -1 if wrong."""
    base = 16 if buf[at] == 120 else 10
    at += base == 16
    first, value = at, 0
    while at < end and buf[at] != 59:
        digit = whole(buf[at]) - 48
        if digit > 9:
            digit = (whole(buf[at]) | 32) - 87
            digit = digit if digit >= 10 else 16
        if digit < 0 or digit >= base:
            return 0, WRONG
        value = min(value * base + digit, 0x110000)
        at += 1
    return value, at if at > first or at >= end else WRONG


@inlined
def _entity(buf: U8, start: int, stop: int) -> int:
    """The character that an entity which needs no declaration stands for; 0 for every other name."""
    n, a, b = stop - start, buf[start], buf[start + 1]
    if n == 2 and b == 116:
        return 60 if a == 108 else (62 if a == 103 else 0)
    if n == 3 and a == 97 and b == 109 and buf[start + 2] == 112:
        return 38
    if n == 4 and a == 97 and b == 112 and buf[start + 2] == 111 and buf[start + 3] == 115:
        return 39
    if n == 4 and a == 113 and b == 117 and buf[start + 2] == 111 and buf[start + 3] == 116:
        return 34
    return 0


@called
def reference(buf: U8, at: int, end: int) -> tuple[int, int]:
    """The character that the reference at `at` means and its bytes, or CUT, WRONG or UNDECLARED."""
    if at + 1 >= end:
        return 0, CUT
    if buf[at + 1] == 35:
        c, stop = _number(buf, at + 2, end) if at + 2 < end else (0, end)
        if stop >= end:
            return 0, CUT
        return c, stop + 1 - at if stop >= 0 and is_character(c) else WRONG
    stop = at + 1
    while stop < end and NAME_BYTE[buf[stop]]:
        stop += 1
    if stop >= end:
        return 0, CUT
    if buf[stop] != 59 or colon_of(buf, at + 1, stop) != stop:
        return 0, WRONG
    c = _entity(buf, at + 1, stop)
    return c, stop + 1 - at if c else UNDECLARED


@inlined
def _put_ascii(out: U8, to: int, text: bytes) -> int:
    for i in range(len(text)):
        out[to + i] = text[i]
    return to + len(text)


@inlined
def _put_hex(out: U8, to: int, c: int) -> int:
    to = _put_ascii(out, to, b"&#x")
    shift = 12
    while c >> shift == 0:
        shift -= 4
    while shift >= 0:
        digit = c >> shift & 15
        out[to] = digit + (48 if digit < 10 else 87)
        to += 1
        shift -= 4
    out[to] = 59
    return to + 1


@inlined
def _put_utf8(out: U8, to: int, c: int) -> int:
    if c < 0x80:
        out[to] = c
        return to + 1
    n = 2 + (c >= 0x800) + (c >= 0x10000)
    out[to] = (0xF00 >> n & 0xFF) | c >> 6 * (n - 1)
    for i in range(1, n):
        out[to + i] = 0x80 | c >> 6 * (n - 1 - i) & 0x3F
    return to + n


@inlined
def _put(out: U8, to: int, c: int, form: int) -> int:
    """Write one character in this form; where the next goes. At most eight bytes."""
    if form == PLAIN:
        return _put_utf8(out, to, c)
    if c == 60:
        return _put_ascii(out, to, b"&lt;")
    if c == 62:
        return _put_ascii(out, to, b"&gt;")
    if c == 38:
        return _put_ascii(out, to, b"&amp;")
    if c == 13:
        return _put_ascii(out, to, b"&#xD;")
    if form == XML_VALUE and c in (9, 10, 34):
        return _put_ascii(out, to, b"&#x9;" if c == 9 else (b"&#xA;" if c == 10 else b"&#34;"))
    if 0x7F <= c <= 0x9F or c == 0x2028:
        return _put_hex(out, to, c)
    return _put_utf8(out, to, c)


@called
def rewritten(buf: U8, start: int, stop: int, source: int, form: int, out: U8, to: int) -> int:
    """Write checked source bytes in this form; where the next byte goes. At most six bytes for each."""
    at = start
    while at < stop:
        c = whole(buf[at])
        n = 1
        if c == 38 and source in (AS_TEXT, AS_VALUE):
            c, n = reference(buf, at, stop)
        elif c >= 0x80:
            c, n = code_point(buf, at, stop)
        elif source != AS_IS:
            if c == 13:
                n += at + 1 < stop and buf[at + 1] == 10
                c = 10
            if source == AS_VALUE and BLANK[c]:
                c = 32
        to = _put(out, to, c, form)
        at += n
    return to


@small
def copied(buf: U8, start: int, stop: int, out: U8, to: int) -> int:
    """Write the bytes as they are; where the next byte goes."""
    for i in range(stop - start):
        out[to + i] = buf[start + i]
    return to + stop - start


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
