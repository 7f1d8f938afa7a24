"""Markup between tags: text, CDATA sections, comments, processing instructions and document types."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.attributes import fault, wrong_character, wrong_reference
from dovetail.xml.kernels.codes import (
    AS_CDATA,
    AS_TEXT,
    BAD_COMMENT,
    BAD_INSTRUCTION,
    BAD_MARKUP,
    BAD_NAME,
    BAD_TEXT,
    BLANK,
    CHECKED,
    DECODE,
    DOCTYPE,
    ESCAPE,
    LATE_DOCTYPE,
    MORE,
    N_DEPTH,
    N_XML,
    NAME_BYTE,
    OUTPUT,
    OUTSIDE,
    SAME_TEXT,
    SEEN_DOCTYPE,
    SEEN_ROOT,
    called,
    inlined,
    small,
    whole,
)
from dovetail.xml.kernels.names import code_point, colon_of, is_character, reference
from dovetail.xml.kernels.values import has_room, put_markup, put_text, write_constant


@called
def _odd_text(buf: U8, at: int, end: int, mem: I64) -> tuple[int, int]:
    """Where text ends (at '<', or before what the end of the buffer cuts off) and its flags, or an answer."""
    flags = 0
    while at < end and buf[at] != 60:
        c, n = whole(buf[at]), 1
        if c == 38:
            flags |= DECODE | ESCAPE
            _, n = reference(buf, at, end)
            if n < 0:
                return wrong_reference(at, n, mem), 0
        elif c == 93:
            n = 1 if at + 2 < end else 0
            if n and buf[at + 1] == 93 and buf[at + 2] == 62:
                return fault(BAD_TEXT, at, mem), 0
        elif c == 13:
            flags |= DECODE | ESCAPE
            n = 1 if at + 1 < end else 0
        elif c == 62:
            flags |= ESCAPE
        elif not SAME_TEXT[c]:
            c, n = code_point(buf, at, end)
            if n < 0 or (n > 0 and not is_character(c)):
                return wrong_character(at, n, mem), 0
            flags |= ESCAPE if c <= 0x9F or c == 0x2028 else 0
        if n == 0:
            break
        at += n
    return at, flags


@inlined
def text(buf: U8, start: int, end: int, mem: I64, data: U8) -> int:
    """Where the text that begins here ends, now part of all open values, or an answer."""
    at, flags = start, 0
    if mem[N_DEPTH] == 0:
        while BLANK[buf[at]]:
            at += 1
        return at if buf[at] == 60 or at >= end else fault(OUTSIDE, at, mem)
    while SAME_TEXT[buf[at]]:
        at += 1
    if buf[at] != 60:
        at, flags = _odd_text(buf, at, end, mem)
        if at < 0:
            return at
        if at == start:
            return MORE
    answer = put_text(buf, start, at, AS_TEXT, flags, mem, data)
    return at if answer == 0 else answer


@called
def _checked_until(buf: U8, at: int, end: int, stop: int, mem: I64) -> int:
    """Where the byte `stop` first occurs behind characters that are allowed, or an answer."""
    while True:
        while CHECKED[buf[at]]:
            at += 1
        if buf[at] == stop:
            return at
        if at >= end:
            return MORE
        c, n = code_point(buf, at, end)
        if n <= 0 or not is_character(c):
            return wrong_character(at, n, mem)
        at += n


@small
def _starts(buf: U8, at: int, end: int, word: bytes, mem: I64) -> int:
    """0 if these bytes lie here, MORE if the buffer ends in them, else a fault."""
    for i in range(len(word)):
        if at + i >= end:
            return MORE
        if buf[at + i] != word[i]:
            return fault(BAD_MARKUP, at, mem)
    return 0


@inlined
def _comment(buf: U8, start: int, end: int, mem: I64, data: U8) -> int:
    at = start + 4
    while True:
        at = _checked_until(buf, at, end, 45, mem)
        if at < 0:
            return at
        if at + 2 >= end:
            return MORE
        if buf[at + 1] == 45:
            break
        at += 1
    if buf[at + 2] != 62:
        return fault(BAD_COMMENT, at, mem)
    answer = put_markup(buf, start, at + 3, mem, data)
    return at + 3 if answer == 0 else answer


@inlined
def _cdata(buf: U8, start: int, end: int, mem: I64, data: U8) -> int:
    if mem[N_DEPTH] == 0:
        return fault(OUTSIDE, start, mem)
    at = start + 9
    while True:
        at = _checked_until(buf, at, end, 93, mem)
        if at < 0:
            return at
        if at + 2 >= end:
            return MORE
        if buf[at + 1] == 93 and buf[at + 2] == 62:
            break
        at += 1
    answer = put_text(buf, start + 9, at, AS_CDATA, DECODE | ESCAPE, mem, data)
    return at + 3 if answer == 0 else answer


@inlined
def _doctype(buf: U8, start: int, end: int, mem: I64) -> int:
    """A document type that only names the root is passed over; any other is refused, so nothing is fetched."""
    if mem[N_DEPTH] or mem[SEEN_ROOT] or mem[SEEN_DOCTYPE]:
        return fault(LATE_DOCTYPE, start, mem)
    name = start + 9
    while BLANK[buf[name]]:
        name += 1
    stop = name
    while NAME_BYTE[buf[stop]]:
        stop += 1
    at = stop
    while BLANK[buf[at]]:
        at += 1
    if at >= end:
        return MORE
    if name == start + 9 or colon_of(buf, name, stop) < 0:
        return fault(BAD_NAME, start, mem)
    if buf[at] != 62:
        return fault(DOCTYPE, start, mem)
    mem[SEEN_DOCTYPE] = 1
    return at + 1


@inlined
def declaration(buf: U8, at: int, end: int, mem: I64, data: U8) -> int:
    """Where the comment, CDATA section or document type that begins here with '<!' ends, or an answer."""
    if at + 2 >= end:
        return MORE
    if buf[at + 2] == 45:
        answer = _starts(buf, at, end, b"<!--", mem)
        return _comment(buf, at, end, mem, data) if answer == 0 else answer
    if buf[at + 2] == 91:
        answer = _starts(buf, at, end, b"<![CDATA[", mem)
        return _cdata(buf, at, end, mem, data) if answer == 0 else answer
    answer = _starts(buf, at, end, b"<!DOCTYPE", mem)
    return _doctype(buf, at, end, mem) if answer == 0 else answer


@inlined
def _is_xml(buf: U8, start: int, stop: int) -> bool:
    x, m, n = buf[start] | 32, buf[start + 1] | 32, buf[start + 2] | 32
    return stop - start == 3 and x == 120 and m == 109 and n == 108


@inlined
def instruction(buf: U8, start: int, end: int, mem: I64, data: U8) -> int:
    """Where the processing instruction that begins here with '<?' ends, or an answer."""
    stop = start + 2
    while NAME_BYTE[buf[stop]]:
        stop += 1
    if stop + 1 >= end:
        return MORE
    if colon_of(buf, start + 2, stop) != stop or _is_xml(buf, start + 2, stop):
        return fault(BAD_INSTRUCTION, start, mem)
    body = stop
    while BLANK[buf[body]]:
        body += 1
    at = body
    while True:
        at = _checked_until(buf, at, end, 63, mem)
        if at < 0:
            return at
        if at + 1 >= end:
            return MORE
        if buf[at + 1] == 62:
            break
        at += 1
    if body == stop and at != stop:
        return fault(BAD_INSTRUCTION, start, mem)
    return _put_instruction(buf, start, stop, body, at, mem, data)


@inlined
def _put_instruction(buf: U8, start: int, stop: int, body: int, at: int, mem: I64, data: U8) -> int:
    if mem[N_XML]:
        if not has_room(buf, at - start + 64, mem, data):
            return OUTPUT
        put_markup(buf, start, stop, mem, data)
        if body < at:
            write_constant(buf, 32, 0, mem, data)
        put_markup(buf, body, at + 2, mem, data)
    return at + 2
