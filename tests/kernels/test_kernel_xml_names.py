"""Strings as numbers: the same bytes the same number, a full table says so, a larger one finds all again."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.xml.kernels import codes as code
from dovetail.xml.kernels.names import numbered, rehashed


def _table(room: int) -> I64:
    mem = np.zeros(code.HEAD + (code.WORD + 2) * room, np.int64)
    mem[[code.NAMED, code.NAME_ROOM]] = code.HEAD, room
    mem[[code.SLOTS, code.SLOT_MASK]] = code.HEAD + code.WORD * room, 2 * room - 1
    return mem


def _bytes(text: str) -> U8:
    return np.frombuffer(text.encode(), np.uint8).copy()


def test_strings_are_numbered_once_in_the_order_of_their_coming() -> None:
    mem, book = _table(64), np.zeros(512, np.uint8)
    words = ["", "a", "b", "ab", "ba", "é", "a" * 40]
    assert [numbered(_bytes(word), mem, book) for word in words * 2] == list(range(len(words))) * 2
    assert mem[code.N_NAMES] == len(words)


def test_a_full_table_asks_for_room_and_a_larger_one_finds_all_again() -> None:
    mem, book, words = _table(16), np.zeros(2048, np.uint8), [f"name{i}" for i in range(100)]
    numbers = [numbered(_bytes(word), mem, book) for word in words]
    kept = numbers.index(code.NAMES)
    assert kept == 14
    assert numbers[:kept] == list(range(kept))
    larger = _table(128)
    larger[code.HEAD : code.HEAD + code.WORD * 16] = mem[code.HEAD : code.HEAD + code.WORD * 16]
    larger[code.N_NAMES] = mem[code.N_NAMES]
    rehashed(larger, book)
    assert [numbered(_bytes(word), larger, book) for word in words] == list(range(100))


def test_a_full_book_asks_for_room() -> None:
    assert numbered(_bytes("x" * 60), _table(16), np.zeros(64, np.uint8)) == code.NAMES
