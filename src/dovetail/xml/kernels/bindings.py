"""Namespace declarations of a serialised element: those that are news to its reader, in the order of their prefixes."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels.attributes import namespace_of
from dovetail.xml.kernels.chars import copied, rewritten
from dovetail.xml.kernels.codes import (
    AS_IS,
    B_ORDER,
    B_PREFIX,
    B_URI,
    BINDING,
    BOUND,
    EMPTY,
    N_BINDINGS,
    WORD,
    XML,
    XML_VALUE,
)
from dovetail.xml.kernels.names import word
from dovetail.xml.kernels.parts import called, inlined, small


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
def _is_news(i: int, low: int, top: int, mem: I64) -> bool:
    """Whether a declaration changes what is in scope for a reader who knows the first `low` bindings."""
    at = mem[BOUND] + BINDING * i
    for later in range(i + 1, top):
        if mem[mem[BOUND] + BINDING * later + B_PREFIX] == mem[at + B_PREFIX]:
            return False
    return bool(mem[at + B_PREFIX] != XML and namespace_of(mem[at + B_PREFIX], low, mem) != mem[at + B_URI])


@inlined
def _chosen(low: int, top: int, mem: I64, book: U8) -> int:
    """How many declarations are news; their records stand sorted by prefix in the order column."""
    n, first = 0, mem[BOUND]
    for i in range(low, top):
        if not _is_news(i, low, top, mem):
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
