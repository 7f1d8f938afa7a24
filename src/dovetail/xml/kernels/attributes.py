"""Attributes of a start tag: found, checked, their namespace declarations bound; and declarations written again."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.codes import (
    A_FLAGS,
    A_NAME,
    A_NUMBER,
    A_START,
    A_STOP,
    A_URI,
    AS_IS,
    AS_VALUE,
    ATTR,
    ATTRIBUTE,
    ATTRIBUTE_ROOM,
    ATTRIBUTES,
    B_ORDER,
    B_PREFIX,
    B_URI,
    BAD_ATTRIBUTE,
    BAD_BINDING,
    BAD_CHARACTER,
    BAD_NAME,
    BAD_REFERENCE,
    BAD_UTF8,
    BINDING,
    BINDING_ROOM,
    BINDINGS,
    BLANK,
    BOUND,
    DECODE,
    EMPTY,
    ESCAPE,
    FAULT,
    FAULT_AT,
    FAULT_KIND,
    LESS_IN_VALUE,
    MORE,
    N_ATTRIBUTES,
    N_BINDINGS,
    N_NAMES,
    NAME_BYTE,
    NAMES,
    ODD,
    PLAIN,
    SAME_VALUE,
    TAG,
    TWICE,
    UNBOUND,
    UNKNOWN_ENTITY,
    W_LOCAL,
    W_PREFIX,
    W_STAMP,
    WORD,
    XML,
    XML_URI,
    XML_VALUE,
    XMLNS,
    XMLNS_URI,
    called,
    inlined,
    small,
    whole,
)
from dovetail.xml.kernels.names import (
    CUT,
    ILLEGAL,
    UNDECLARED,
    code_point,
    copied,
    interned,
    is_character,
    named,
    reference,
    rewritten,
    word,
)


@small
def fault(kind: int, at: int, mem: I64) -> int:
    """The answer FAULT, with what is wrong and where."""
    mem[FAULT_KIND], mem[FAULT_AT] = kind, at
    return FAULT


@called
def wrong_character(at: int, n: int, mem: I64) -> int:
    """MORE or FAULT for a character of which `code_point` gave `n` bytes."""
    return MORE if n == CUT else fault(BAD_UTF8 if n < 0 else BAD_CHARACTER, at, mem)


@called
def wrong_reference(at: int, n: int, mem: I64) -> int:
    """MORE or FAULT for a reference of which `reference` gave `n` bytes."""
    return MORE if n == CUT else fault(UNKNOWN_ENTITY if n == UNDECLARED else BAD_REFERENCE, at, mem)


@inlined
def _odd_value(buf: U8, at: int, end: int, quote: int, mem: I64) -> tuple[int, int]:
    """Where a value ends that holds more than plain characters, or an answer, and the flags of its text."""
    flags = 0
    while buf[at] != quote:
        c = whole(buf[at])
        if at >= end:
            return MORE, 0
        if SAME_VALUE[c] or c == 34 or c == 39 or c == 62:
            flags |= 0 if SAME_VALUE[c] or c == 39 else ESCAPE
            at += 1
        elif c == 38:
            flags |= DECODE | ESCAPE
            _, n = reference(buf, at, end)
            if n <= 0:
                return wrong_reference(at, n, mem), 0
            at += n
        elif c == 60:
            return fault(LESS_IN_VALUE, at, mem), 0
        else:
            c, n = code_point(buf, at, end)
            if n <= 0 or not is_character(c):
                return wrong_character(at, n, mem), 0
            flags |= DECODE | ESCAPE if c < 32 else (ESCAPE if c <= 0x9F or c == 0x2028 else 0)
            at += n
    return at, flags


@small
def _blanks(buf: U8, at: int) -> int:
    while BLANK[buf[at]]:
        at += 1
    return at


@inlined
def _attribute(buf: U8, start: int, end: int, row: int, mem: I64) -> int:
    """Where one attribute ends, or an answer; its places are put into its record."""
    at = start
    while NAME_BYTE[buf[at]]:
        at += 1
    equals = _blanks(buf, at)
    quote = _blanks(buf, equals + 1) if buf[equals] == 61 else equals
    if quote >= end:
        return MORE
    if at == start or buf[equals] != 61 or (buf[quote] != 34 and buf[quote] != 39):
        return fault(BAD_ATTRIBUTE, quote, mem)
    stop, flags = quote + 1, 0
    while SAME_VALUE[buf[stop]]:
        stop += 1
    if buf[stop] != buf[quote]:
        stop, flags = _odd_value(buf, stop, end, whole(buf[quote]), mem)
        if stop < 0:
            return stop
    if equals != at or quote != equals + 1 or buf[quote] != 34 or buf[start - 1] != 32 or BLANK[buf[start - 2]]:
        flags |= ODD
    mem[row + A_NAME], mem[row + A_START], mem[row + A_STOP], mem[row + A_FLAGS] = start, quote + 1, stop, flags
    return stop + 1


@inlined
def _known_attribute(buf: U8, row: int, mem: I64, book: U8) -> int:
    start = mem[row + A_NAME]
    stop = start
    while NAME_BYTE[buf[stop]]:
        stop += 1
    number = named(buf, start, stop, mem, book)
    if number < 0:
        return fault(BAD_NAME, start, mem) if number == ILLEGAL else number
    if mem[word(number, mem) + W_STAMP] == mem[TAG]:
        return fault(TWICE, start, mem)
    mem[word(number, mem) + W_STAMP] = mem[TAG]
    mem[row + A_NUMBER] = number
    return 0


@inlined
def attributes_end(buf: U8, at: int, end: int, mem: I64, book: U8) -> int:
    """Where the '>' or '/>' of a tag is, or an answer; the records of its attributes are filled."""
    n = 0
    mem[TAG] += 1
    while True:
        start = _blanks(buf, at)
        if start >= end:
            return MORE
        if buf[start] == 62 or buf[start] == 47:
            mem[N_ATTRIBUTES] = n
            return start
        if start == at:
            return fault(BAD_ATTRIBUTE, start, mem)
        if n >= mem[ATTRIBUTE_ROOM]:
            return ATTRIBUTES
        row = mem[ATTRIBUTE] + ATTR * n
        at = _attribute(buf, start, end, row, mem)
        answer = _known_attribute(buf, row, mem, book) if at >= 0 else at
        if answer < 0:
            return answer
        n += 1


@small
def namespace_of(prefix: int, top: int, mem: I64) -> int:
    """The number of the namespace that a prefix is bound to among the first `top` bindings, or -1."""
    for i in range(top - 1, -1, -1):
        at = mem[BOUND] + BINDING * i
        if mem[at + B_PREFIX] == prefix:
            return mem[at + B_URI]  # type: ignore[no-any-return]  # a number of the array
    if prefix == EMPTY:
        return EMPTY
    return XML_URI if prefix == XML else -1


@inlined
def _namespace(buf: U8, row: int, mem: I64, book: U8) -> int:
    """The number of the namespace that a declaration names, or NAMES."""
    start, stop = mem[row + A_START], mem[row + A_STOP]
    if mem[row + A_FLAGS] & DECODE == 0:
        return interned(buf, start, stop, mem, book)
    at = mem[word(mem[N_NAMES], mem)]
    if at + 16 + stop - start > len(book):
        return NAMES
    stop = rewritten(buf, start, stop, AS_VALUE, PLAIN, book, at)
    return interned(book, at, stop, mem, book)


@inlined
def _binding_allowed(prefix: int, uri: int) -> bool:
    if prefix == XML or uri == XML_URI:
        return prefix == XML and uri == XML_URI
    return prefix != XMLNS and uri != XMLNS_URI and (prefix == EMPTY or uri != EMPTY)


@small
def _declared(row: int, mem: I64) -> int:
    """The number of the prefix that an attribute declares, or -1 if it is no namespace declaration."""
    number = mem[row + A_NUMBER]
    at = word(number, mem)
    if number == XMLNS:
        return EMPTY
    return mem[at + W_LOCAL] if mem[at + W_PREFIX] == XMLNS else -1


@called
def _twice(mem: I64) -> bool:
    """Whether two attributes have one expanded name, through two prefixes."""
    for i in range(mem[N_ATTRIBUTES]):
        a = mem[ATTRIBUTE] + ATTR * i
        local = mem[word(mem[a + A_NUMBER], mem) + W_LOCAL]
        for j in range(i if mem[a + A_URI] not in (EMPTY, XMLNS_URI) else 0):
            b = mem[ATTRIBUTE] + ATTR * j
            if mem[a + A_URI] == mem[b + A_URI] and local == mem[word(mem[b + A_NUMBER], mem) + W_LOCAL]:
                return True
    return False


@inlined
def _bind(buf: U8, row: int, prefix: int, top: int, mem: I64, book: U8) -> int:
    """0 after this declaration was made binding number `top`, or an answer."""
    uri = _namespace(buf, row, mem, book)
    if uri < 0 or top >= mem[BINDING_ROOM]:
        return NAMES if uri < 0 else BINDINGS
    if not _binding_allowed(prefix, uri):
        return fault(BAD_BINDING, mem[row + A_NAME], mem)
    at = mem[BOUND] + BINDING * top
    mem[at + B_PREFIX], mem[at + B_URI], mem[row + A_URI] = prefix, uri, XMLNS_URI
    return 0


@inlined
def bound(buf: U8, mem: I64, book: U8) -> int:
    """The number of bindings in scope after this tag's declarations, or an answer; its attributes get namespaces."""
    top = mem[N_BINDINGS]
    for i in range(mem[N_ATTRIBUTES]):
        row = mem[ATTRIBUTE] + ATTR * i
        prefix = _declared(row, mem)
        if prefix >= 0:
            answer = _bind(buf, row, prefix, top, mem, book)
            if answer < 0:
                return answer
            top += 1
    prefixed = 0
    for i in range(mem[N_ATTRIBUTES]):
        row = mem[ATTRIBUTE] + ATTR * i
        prefix = mem[word(mem[row + A_NUMBER], mem) + W_PREFIX]
        if _declared(row, mem) >= 0:
            continue
        mem[row + A_URI] = EMPTY if prefix == EMPTY else namespace_of(prefix, top, mem)
        if mem[row + A_URI] < 0:
            return fault(UNBOUND, mem[row + A_NAME], mem)
        prefixed += prefix != EMPTY
    if prefixed > 1 and _twice(mem):
        return fault(TWICE, mem[mem[ATTRIBUTE] + A_NAME], mem)
    return top  # type: ignore[no-any-return]  # as above


@small
def _length(number: int, mem: I64) -> int:
    return mem[word(number, mem) + WORD] - mem[word(number, mem)]  # type: ignore[no-any-return]  # a number of the array


@called
def binding_bytes(top: int, mem: I64) -> int:
    """The most bytes that the declarations of the first `top` bindings can take."""
    total = 0
    for i in range(top):
        at = mem[BOUND] + BINDING * i
        total += 4 + _length(mem[at + B_PREFIX], mem) + _length(mem[at + B_URI], mem)
    return 6 * total


@called
def _comes_before(a: int, b: int, mem: I64, book: U8) -> bool:
    """Whether string `a` sorts before string `b`, byte by byte."""
    at, to = mem[word(a, mem)], mem[word(b, mem)]
    n, m = _length(a, mem), _length(b, mem)
    for i in range(min(n, m)):
        if book[at + i] != book[to + i]:
            return bool(book[at + i] < book[to + i])
    return n < m


@inlined
def _is_needed(i: int, low: int, top: int, mem: I64) -> bool:
    """Whether a declaration changes what is in scope where the first `low` bindings are known."""
    at = mem[BOUND] + BINDING * i
    for later in range(i + 1, top):
        if mem[mem[BOUND] + BINDING * later + B_PREFIX] == mem[at + B_PREFIX]:
            return False
    return bool(mem[at + B_PREFIX] != XML and namespace_of(mem[at + B_PREFIX], low, mem) != mem[at + B_URI])


@inlined
def _chosen(low: int, top: int, mem: I64, book: U8) -> int:
    """How many declarations are needed; their records stand sorted by prefix in the order column."""
    n, first = 0, mem[BOUND]
    for i in range(low, top):
        if not _is_needed(i, low, top, mem):
            continue
        prefix, to = mem[first + BINDING * i + B_PREFIX], n
        while to > 0:
            other = mem[first + BINDING * (to - 1) + B_ORDER]
            if not _comes_before(prefix, mem[other + B_PREFIX], mem, book):
                break
            mem[first + BINDING * to + B_ORDER] = other
            to -= 1
        mem[first + BINDING * to + B_ORDER] = first + BINDING * i
        n += 1
    return n


@inlined
def _put_binding(at: int, mem: I64, book: U8, data: U8, to: int) -> int:
    prefix, uri = word(mem[at + B_PREFIX], mem), word(mem[at + B_URI], mem)
    text = b" xmlns:"
    for i in range(6 if mem[at + B_PREFIX] == EMPTY else 7):
        data[to + i] = text[i]
    to += 6 if mem[at + B_PREFIX] == EMPTY else 7
    to = copied(book, mem[prefix], mem[prefix + WORD], data, to)
    data[to], data[to + 1] = 61, 34
    to = rewritten(book, mem[uri], mem[uri + WORD], AS_IS, XML_VALUE, data, to + 2)
    data[to] = 34
    return to + 1


@inlined
def put_bindings(low: int, mem: I64, book: U8, data: U8, to: int) -> int:
    """Write what an element must declare below one with the first `low` bindings; where the next byte goes."""
    if low == mem[N_BINDINGS]:
        return to
    for k in range(_chosen(low, mem[N_BINDINGS], mem, book)):
        to = _put_binding(mem[mem[BOUND] + BINDING * k + B_ORDER], mem, book, data, to)
    return to
