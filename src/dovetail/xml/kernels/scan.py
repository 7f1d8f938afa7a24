"""One pass over a block of an XML document: checks that it is well-formed, and fills the columns of a request.

Start and end tags move the automaton of the request over the stack of open elements. The scanner stops only between
tokens (tags, stretches of text, comments, ...). A token that the block cuts off is left for the next call, so that a
caller that moves the rest to the front of the buffer and appends may cut at any byte.
Reference: Extensible Markup Language (XML) 1.0, fifth edition; Namespaces in XML 1.0, third edition.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.kernels.compile import register_warmup
from dovetail.xml.kernels.attributes import attributes_end, binding_bytes, bound, fault, namespace_of
from dovetail.xml.kernels.codes import (
    A_FLAGS,
    A_STOP,
    AT,
    ATTR,
    ATTRIBUTE,
    BAD_MARKUP,
    BAD_NAME,
    BATCH_BYTES,
    BINDING_BYTES,
    BLANK,
    C_VALUES,
    COL,
    COLUMN,
    DELTA,
    DEPTH,
    DEPTHS,
    E_BINDINGS,
    E_NAME,
    E_STATE,
    ELEMENT,
    EMPTY,
    ESCAPE,
    FLAGGED,
    FULL,
    HEAD,
    LAST_NAME,
    MATCH,
    MORE,
    N_ATTRIBUTES,
    N_BINDINGS,
    N_COLUMNS,
    N_DEPTH,
    N_KEPT,
    N_ROWS,
    N_TEXT,
    N_XML,
    NAME_BYTE,
    NAME_ROOM,
    NAME_START,
    NAMED,
    ODD,
    OPEN_TAG,
    OPEN_TEXT,
    OPEN_XML,
    OUTPUT,
    PENDING,
    PENDING_AT,
    ROW_OPEN,
    ROW_ROOM,
    RUN_START,
    RUN_STOP,
    SECOND_ROOT,
    SEEN_ROOT,
    SLOT_MASK,
    SLOTS,
    STACK,
    STRAY_END,
    SYMBOLS,
    UNBOUND,
    VALUE_ROOM,
    VALUES,
    VALUES_LEFT,
    W_LOCAL,
    W_NEXT,
    W_PREFIX,
    W_SYMBOL,
    WRONG_END,
    XMLNS,
    called,
    entry,
    inlined,
)
from dovetail.xml.kernels.markup import declaration, instruction, text
from dovetail.xml.kernels.names import ILLEGAL, guessed, named, numbered, rehashed, symbol_of, word
from dovetail.xml.kernels.values import (
    batch_bytes,
    close_start_tag,
    extend,
    finish_value,
    flush,
    has_room,
    is_wanted,
    open_values,
    put_start,
    take_back,
    write_constant,
)


@inlined
def _repeat_start(buf: U8, at: int, stop: int, low: int, mem: I64, book: U8, data: U8) -> None:
    """Give the start tag to the XML values that were open before it."""
    close_start_tag(buf, mem, data)
    odd, last = low != mem[N_BINDINGS], stop
    for i in range(mem[N_ATTRIBUTES]):
        row = mem[ATTRIBUTE] + ATTR * i
        odd = odd or mem[row + A_FLAGS] & (ODD | ESCAPE) != 0
        last = mem[row + A_STOP] + 1
    if not odd:
        extend(buf, at, last, mem, data)
        return
    flush(buf, mem, data)
    for i in range(mem[N_XML]):
        put_start(buf, at, low, mem[mem[OPEN_XML] + 2 * i], mem, book, data)


@called
def _has_values_left(mem: I64) -> bool:
    """Whether each column has room for one more value; for how many is noted."""
    left = mem[VALUE_ROOM]
    for i in range(mem[N_COLUMNS]):
        left = min(left, mem[VALUE_ROOM] - mem[mem[COLUMN] + COL * i + C_VALUES] - 2)
    mem[VALUES_LEFT] = left
    return left > 0  # type: ignore[no-any-return]  # a number of the array


@inlined
def _has_space(buf: U8, needed: int, status: int, mem: I64, data: U8) -> int:
    """0 if the tag's bytes and values have room, else an answer."""
    flags = mem[mem[FLAGGED] + status]
    if mem[N_XML] or flags:
        if not has_room(buf, 6 * needed + mem[BINDING_BYTES] + 64, mem, data):
            return OUTPUT
        if flags:
            if mem[VALUES_LEFT] <= 0 and not _has_values_left(mem):
                return VALUES
            mem[VALUES_LEFT] -= 1
    return 0 if mem[N_DEPTH] + 1 < mem[DEPTHS] else DEPTH


@inlined
def _status(number: int, at: int, top: int, mem: I64) -> int:
    """The state of an element of this name below the innermost open one, or an answer."""
    name, depth = word(number, mem), mem[N_DEPTH]
    if depth == 0 and mem[SEEN_ROOT]:
        return fault(SECOND_ROOT, at, mem)
    symbol, prefix = mem[name + W_SYMBOL], mem[name + W_PREFIX]
    if top > 0 or prefix != EMPTY:
        uri = namespace_of(prefix, top, mem)
        if uri < 0 or prefix == XMLNS:
            return fault(BAD_NAME if prefix == XMLNS else UNBOUND, at, mem)
        symbol = symbol_of(uri, mem[name + W_LOCAL], mem)
    above = mem[mem[STACK] + ELEMENT * (depth - 1) + E_STATE] if depth else 1
    return mem[mem[DELTA] + mem[SYMBOLS] * above + symbol]  # type: ignore[no-any-return]  # a number of the array


@inlined
def _name(buf: U8, at: int, end: int, mem: I64, book: U8) -> tuple[int, int]:
    """Number of the name at `at`, or an answer, and where the name stops."""
    number = mem[word(mem[LAST_NAME], mem) + W_NEXT]
    stop = guessed(buf, at, number, mem, book)
    if stop < 0:
        stop = at
        while NAME_BYTE[buf[stop]]:
            stop += 1
        if stop < end:
            number = named(buf, at, stop, mem, book)
            if number == ILLEGAL:
                return fault(BAD_NAME, at, mem), stop
    return (number if stop < end else MORE), stop


@called
def _attributes(buf: U8, stop: int, end: int, mem: I64, book: U8) -> tuple[int, int]:
    """Where the tag's '>' or '/>' is, or an answer, and the number of bindings in scope after it."""
    close = attributes_end(buf, stop, end, mem, book)
    if close < 0:
        return close, 0
    if buf[close] == 47 and (close + 1 >= end or buf[close + 1] != 62):
        return MORE if close + 1 >= end else fault(OPEN_TAG, close, mem), 0
    top = bound(buf, mem, book) if mem[N_ATTRIBUTES] else mem[N_BINDINGS]
    return (close, top) if top >= 0 else (top, 0)


@inlined
def start_tag(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Where the start tag at `at` ends, with all that begins at it begun, or an answer with nothing changed.

    After a tag that ends in '/>' the caller closes the element, as after an end tag.
    """
    number, stop = _name(buf, at + 1, end, mem, book)
    if number < 0:
        return number
    close, top = stop, mem[N_BINDINGS]
    mem[N_ATTRIBUTES] = 0
    if buf[stop] != 62:
        close, top = _attributes(buf, stop, end, mem, book)
        if close < 0:
            return close
    status = _status(number, at, top, mem)
    answer = _has_space(buf, close - at, status, mem, data) if status >= 0 else status
    if answer < 0:
        return answer
    mem[word(mem[LAST_NAME], mem) + W_NEXT] = number
    mem[LAST_NAME], mem[SEEN_ROOT] = number, 1
    _push(number, status, top, mem)
    if mem[N_XML]:
        _repeat_start(buf, at, stop, mem[mem[STACK] + ELEMENT * (mem[N_DEPTH] - 1) + E_BINDINGS], mem, book, data)
    if mem[mem[FLAGGED] + status]:
        open_values(buf, at, status, mem, book, data)
    if buf[close] == 62:
        mem[PENDING], mem[PENDING_AT] = 1, close
        return close + 1
    if mem[N_XML]:
        extend(buf, close, close + 2, mem, data)
    return close + 2


@inlined
def _push(number: int, status: int, top: int, mem: I64) -> None:
    low, at = mem[N_BINDINGS], mem[STACK] + ELEMENT * mem[N_DEPTH]
    mem[at + E_NAME], mem[at + E_STATE], mem[at + E_BINDINGS] = number, status, low
    mem[N_DEPTH] += 1
    if top != low:
        mem[N_BINDINGS] = top
        mem[BINDING_BYTES] = binding_bytes(top, mem)


@inlined
def close_element(buf: U8, mem: I64, book: U8, data: U8) -> None:
    """Take the innermost element off; its values are complete, and perhaps its row, if it is wanted."""
    depth = mem[N_DEPTH] - 1
    mem[N_DEPTH], mem[PENDING] = depth, 0
    while mem[N_TEXT] and mem[mem[OPEN_TEXT] + 2 * (mem[N_TEXT] - 1) + 1] == depth:
        mem[N_TEXT] -= 1
        finish_value(mem[mem[OPEN_TEXT] + 2 * mem[N_TEXT]], mem)
    at = mem[STACK] + ELEMENT * depth
    matched = mem[mem[FLAGGED] + mem[at + E_STATE]] & MATCH
    if matched and mem[N_KEPT] and not is_wanted(mem, book, data):
        take_back(mem)
        matched, mem[ROW_OPEN] = 0, 0
    if mem[N_XML] and mem[mem[OPEN_XML] + 2 * (mem[N_XML] - 1) + 1] == depth:
        flush(buf, mem, data)
        while mem[N_XML] and mem[mem[OPEN_XML] + 2 * (mem[N_XML] - 1) + 1] == depth:
            mem[N_XML] -= 1
            finish_value(mem[mem[OPEN_XML] + 2 * mem[N_XML]], mem)
    if mem[at + E_BINDINGS] != mem[N_BINDINGS]:
        mem[N_BINDINGS] = mem[at + E_BINDINGS]
        mem[BINDING_BYTES] = binding_bytes(mem[N_BINDINGS], mem)
    if matched:
        mem[ROW_OPEN] = 0
        mem[N_ROWS] += 1


@inlined
def end_tag(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Where the end tag at `at` ends, or an answer."""
    depth = mem[N_DEPTH] - 1
    if depth < 0:
        return fault(STRAY_END, at, mem)
    stop = guessed(buf, at + 2, mem[mem[STACK] + ELEMENT * depth + E_NAME], mem, book)
    close = stop
    while stop >= 0 and BLANK[buf[close]]:
        close += 1
    if stop < 0 or close >= end or buf[close] != 62:
        return _cut_or_wrong(buf, at, end, mem)
    if mem[N_XML]:
        if not has_room(buf, close - at + 16, mem, data):
            return OUTPUT
        if mem[PENDING]:
            write_constant(buf, 47, 62, mem, data)
        elif stop == close:
            extend(buf, at, close + 1, mem, data)
        else:
            extend(buf, at, stop, mem, data)
            write_constant(buf, 62, 0, mem, data)
    return close + 1


@inlined
def _cut_or_wrong(buf: U8, at: int, end: int, mem: I64) -> int:
    """MORE if the buffer ends within this end tag, else what is wrong with it."""
    first = at + 2
    stop = first
    while NAME_BYTE[buf[stop]]:
        stop += 1
    close = stop
    while BLANK[buf[close]]:
        close += 1
    if close >= end:
        return MORE
    return fault(WRONG_END if buf[close] == 62 and stop > first else OPEN_TAG, at, mem)


@called
def _odd_markup(buf: U8, at: int, end: int, mem: I64, data: U8) -> int:
    """Where the markup at `at` that is not a tag ends, or an answer."""
    if at + 1 >= end:
        return MORE
    if buf[at + 1] == 33:
        return declaration(buf, at, end, mem, data)
    if buf[at + 1] == 63:
        return instruction(buf, at, end, mem, data)
    return fault(BAD_MARKUP, at, mem)


@inlined
def _token(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Where the token at `at` ends, or an answer."""
    if buf[at] != 60:
        return text(buf, at, end, mem, data)
    if NAME_START[buf[at + 1]]:
        stop = start_tag(buf, at, end, mem, book, data)
        if stop < 0 or buf[stop - 2] != 47:
            return stop
    elif buf[at + 1] == 47:
        stop = end_tag(buf, at, end, mem, book, data)
        if stop < 0:
            return stop
    else:
        return _odd_markup(buf, at, end, mem, data)
    close_element(buf, mem, book, data)
    return stop


@entry
def scanned(buf: U8, at: int, end: int, mem: I64, book: U8, data: U8) -> int:
    """Why the scan of `buf[at:end]` stopped (one of the answers); `mem[AT]` is where to go on.

    The byte `buf[end]` must be 0 and `buf` have 16 bytes more than `end`. `mem` holds the state and all tables (see
    `codes`), `book` the bytes of names, `data` those of the columns. Rows are complete up to `mem[N_ROWS]`.
    """
    answer, rows = MORE, mem[N_ROWS]
    mem[RUN_START], mem[RUN_STOP], mem[PENDING_AT] = -1, -1, -1
    while at < end:
        answer = _token(buf, at, end, mem, book, data)
        if answer < 0:
            break
        at, answer = answer, MORE
        if mem[N_ROWS] != rows:
            rows = mem[N_ROWS]
            if rows >= mem[ROW_ROOM] or batch_bytes(mem) >= mem[BATCH_BYTES]:
                answer = FULL
                break
    flush(buf, mem, data)
    mem[AT] = at
    return answer


@register_warmup
def _warm() -> None:
    mem, book, sample = np.zeros(HEAD + 64, np.int64), np.zeros(64, np.uint8), np.zeros(17, np.uint8)
    mem[[NAMED, NAME_ROOM, SLOTS, SLOT_MASK]] = HEAD, 4, HEAD + 24, 7
    numbered(sample[:1], mem, book)
    mem[HEAD + 24 :] = 0
    rehashed(mem, book)
    scanned(sample, 0, 0, mem, book, sample)
