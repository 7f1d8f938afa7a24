"""Codes that the parts of the XML scanner exchange, and how these parts are compiled.

The scanner is some seventy small functions that are compiled as one kernel. Numba optimises each compiled function
together with all that it calls, and compiles it once more for every constant that it is called with. So what is called
at one place is put into its caller before anything is compiled, and the rest is compiled for numbers, not for
constants. Parts allocate nothing, so none of them counts references: counting made the scanner three times slower.
Codes are classes of bytes, answers, faults, and places in the scanner's state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from dovetail.engine.kernels.arrays import U8
from dovetail.engine.kernels.compile import kernel

F = TypeVar("F", bound=Callable[..., Any])

# Numba's type information knows neither the option that leaves out reference counts nor this function.
_njit: Any = numba.njit
_unliteral: Any = numba.types.unliteral


def inlined(fn: F) -> F:
    """The function as text of each function that calls it."""
    return cast("F", _njit(nogil=True, boundscheck=False, inline="always", _nrt=False)(fn))


def called(fn: F) -> F:
    """The function compiled once and called: for what is large and called at several places."""
    return _part(fn, forceinline=False)


def small(fn: F) -> F:
    """The function compiled once and put into each caller by LLVM: for what is small and called at many places."""
    return _part(fn, forceinline=True)


def _part(fn: F, *, forceinline: bool) -> F:
    part: Any = _njit(nogil=True, boundscheck=False, forceinline=forceinline, _nrt=False)(fn)
    if hasattr(part, "compile"):  # not so with NUMBA_DISABLE_JIT=1
        compile_for = part.compile
        part.compile = lambda types: compile_for(tuple(_unliteral(each) for each in types))
    return cast("F", part)


def entry(fn: F) -> F:
    """The function as a kernel that Python calls, cached on disk, without reference counts like its parts."""
    compiled: Any = kernel(fn)
    if hasattr(compiled, "targetoptions"):
        compiled.targetoptions["_nrt"] = False
    return cast("F", compiled)


whole: Any = np.int64
"""A byte as a number to calculate with, in a kernel as in Python."""

MORE, OUTPUT, NAMES, DEPTH, ATTRIBUTES, BINDINGS, VALUES, FULL, FAULT = range(-1, -10, -1)
"""Why the scanner stopped: more input, or more room for something is needed; the batch is full; the input is wrong."""

FAULTS = (
    "a character that XML does not allow",
    "bytes that are not UTF-8",
    "a name that XML or its namespaces do not allow",
    "a reference to a character that XML does not allow, or a reference that is not complete",
    "a reference to an entity that is not declared (only lt, gt, amp, apos and quot are known)",
    "an end tag that does not match its start tag",
    "an end tag without a start tag",
    "an attribute that occurs twice in one tag",
    "an attribute without a value in quotes, or without a blank before it",
    "'<' in an attribute value",
    "'--' in a comment",
    "']]>' in text",
    "a prefix that is bound to no namespace",
    "a namespace declaration that is not allowed",
    "text outside the root element",
    "a second root element",
    "a document type declaration at a place where none is allowed",
    "a document type declaration with an external identifier or declarations of its own; these are refused",
    "a processing instruction or XML declaration that is not allowed here",
    "markup that XML does not have",
    "a tag that is not closed",
)
"""Messages of faults, by number."""
(
    BAD_CHARACTER,
    BAD_UTF8,
    BAD_NAME,
    BAD_REFERENCE,
    UNKNOWN_ENTITY,
    WRONG_END,
    STRAY_END,
    TWICE,
    BAD_ATTRIBUTE,
    LESS_IN_VALUE,
    BAD_COMMENT,
    BAD_TEXT,
    UNBOUND,
    BAD_BINDING,
    OUTSIDE,
    SECOND_ROOT,
    LATE_DOCTYPE,
    DOCTYPE,
    BAD_INSTRUCTION,
    BAD_MARKUP,
    OPEN_TAG,
) = range(len(FAULTS))

(
    N_DEPTH,
    N_NAMES,
    N_BINDINGS,
    N_ATTRIBUTES,
    N_TEXT,
    N_XML,
    N_ROWS,
    N_COLUMNS,
    N_WANTED,
    N_KEPT,
    DROPPED,
    ROW_OPEN,
    PENDING,
    PENDING_AT,
    RUN_START,
    RUN_STOP,
    ROOM,
    NEEDED,
    VALUES_LEFT,
    TAG,
    LAST_NAME,
    SEEN_ROOT,
    SEEN_DOCTYPE,
    BINDING_BYTES,
    BATCH_BYTES,
    FAULT_KIND,
    FAULT_AT,
    AT,
    STACK,
    DEPTHS,
    BOUND,
    BINDING_ROOM,
    ATTRIBUTE,
    ATTRIBUTE_ROOM,
    NAMED,
    NAME_ROOM,
    SLOTS,
    SLOT_MASK,
    WANTED,
    DELTA,
    SYMBOLS,
    FLAGGED,
    FIRST,
    OPENS,
    FIRST_ATTRIBUTE,
    ATTRIBUTE_OPENS,
    COLUMN,
    ENDS,
    VALUE_ROOM,
    COUNTS,
    ROW_ROOM,
    OPEN_TEXT,
    OPEN_XML,
    KEPT,
    HEAD,
) = range(55)
"""Places in the head of the scanner's memory, an int64 array: numbers, then where each table starts and its room.

One array, because a kernel of fifty functions over forty arrays takes minutes to compile.
"""

ELEMENT, E_NAME, E_STATE, E_BINDINGS = 3, 0, 1, 2
"""An open element: size of its record; number of its name, its state, bindings in scope before it."""
BINDING, B_PREFIX, B_URI, B_ORDER = 3, 0, 1, 2
"""A namespace binding: the numbers of prefix and namespace; room to sort."""
ATTR, A_NAME, A_START, A_STOP, A_FLAGS, A_NUMBER, A_URI = 6, 0, 1, 2, 3, 4, 5
"""An attribute of this tag: where its name and value start and its value stops, flags, its name, its namespace."""
WORD, W_START, W_PREFIX, W_LOCAL, W_SYMBOL, W_NEXT, W_STAMP = 6, 0, 1, 2, 3, 4, 5
"""A string: where its bytes start (they end where the next one's start); parts of a qualified name, its symbol outside
every namespace, the name that followed it last, the tag that had it last."""
COL, C_START, C_STOP, C_FILL, C_KIND, C_MANY, C_VALUES, C_ROW_FILL, C_ROW_VALUES = 8, 0, 1, 2, 3, 4, 5, 6, 7
"""A column: where its bytes start, must stop and are filled up to; its kind; whether it is a list; complete values;
bytes and values when the open row began."""

EMPTY, XML, XMLNS, XML_URI, XMLNS_URI = range(5)
"""Strings that every table of names begins with."""
FIRST_NAMES = (b"", b"xml", b"xmlns", b"http://www.w3.org/XML/1998/namespace", b"http://www.w3.org/2000/xmlns/")

AS_TEXT, AS_CDATA, AS_VALUE, AS_IS = range(4)
"""How source bytes are read: references and line ends; line ends only; as an attribute value; already decoded."""
PLAIN, XML_TEXT, XML_VALUE = range(3)
"""How characters are written: as they are, escaped for text, escaped for an attribute value."""

DECODE, ESCAPE, ODD = 1, 2, 4
"""Its string value differs from the source; its serialisation does; the markup around it does."""

TEXT_KIND, XML_KIND = 0, 1

MATCH = 1
"""Flag of a state: here a row begins."""


def _bytes(*members: str | range) -> U8:
    table = np.zeros(256, np.uint8)
    for member in members:
        table[[ord(c) for c in member] if isinstance(member, str) else list(member)] = 1
    return table


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
NAME_START = _bytes(_LETTERS, "_:", range(128, 256))
NAME_BYTE = _bytes(_LETTERS, "_:-.0123456789", range(128, 256))
BLANK = _bytes(" \t\r\n")
LEGAL_ASCII = _bytes("\t\r\n", range(32, 128))
SAME_TEXT = _bytes("\t\n", range(32, 127))
"""Bytes that stand for themselves in text, its string value and its serialisation."""
SAME_TEXT[[ord(c) for c in "<>&]"]] = 0
SAME_VALUE = _bytes(range(32, 127))
SAME_VALUE[[ord(c) for c in "<>&\"'"]] = 0
CHECKED = _bytes("\t\n", range(32, 128))
"""Bytes that a comment, an instruction or a CDATA section may hold as they are, but for what ends them."""
CHECKED[[ord(c) for c in "-?]"]] = 0
