"""Values that a process keeps between tasks: by name, in the state that was stored, bounded in number and time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from dovetail.engine.storage.spool import HeldBytes
from dovetail.spark.hosts.pool import LOADED_BYTES, Pool


class Thing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_value_is_its_takers_and_is_found_in_the_state_that_was_stored_only() -> None:
    pool, first, second = Pool[Thing](), Thing(), Thing()
    pool.keep("a", first, "one")
    assert pool.take("a", "one") is first
    assert pool.take("a", "one") is None
    pool.keep("a", first, "two")
    assert pool.take("a", "one") is None
    assert first.closed == 1
    pool.keep("a", second, "one")
    pool.keep("a", Thing(), "one")
    assert second.closed == 1
    assert pool.take("b") is None


def test_of_too_many_the_one_that_was_asked_for_last_stays_and_idle_ones_go() -> None:
    things = [Thing() for _ in range(4)]
    pool = Pool[Thing](most=2)
    for number in (0, 1):
        pool.keep(str(number), things[number])
    pool.keep("0", pool.take("0") or Thing())
    pool.keep("2", things[2])
    assert [thing.closed for thing in things] == [0, 1, 0, 0]
    pool.forget_idle()
    assert pool.take("0") is things[0]
    pool.close()
    assert [thing.closed for thing in things] == [0, 1, 1, 0]


class Large(Thing):
    """Holds memory, part of it in a cycle, as joins do."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.pages = [np.ones(1 << 20, np.uint8) for _ in range(nbytes >> 20)]
        self.itself = self


def test_values_hold_no_more_memory_than_they_may_and_those_that_were_not_used_go_first() -> None:
    """Measured in a process of its own; what closed values held is free for others."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["ok"], done.stdout + done.stderr


def hold_values() -> None:
    pool, most, other = Pool[Thing](), 100 << 20, Thing()
    before = psutil.Process().memory_info().rss
    for number in range(12):
        pool.keep(str(number), Large(40 << 20))
        pool.make_room(most)
        assert psutil.Process().memory_info().rss - before < most + LOADED_BYTES + (8 << 20), number
    assert pool.take("0") is None
    assert all(pool.take(str(number)) for number in (10, 11))
    pool.keep("0", other)
    pool.make_room(None)
    assert pool.take("0") is other
    print("ok")


@pytest.mark.parametrize("limit", [None, 0, 5, 100])
def test_bytes_beyond_a_limit_are_held_on_disk(tmp_path: Path, limit: int | None) -> None:
    values = [bytes([n]) * n for n in range(1, 6)]
    with HeldBytes(limit, tmp_path) as held:
        tickets = [held.keep(value) for value in values]
        assert (held.spilled > 0) == (limit in (0, 5))
        assert limit is None or held.held <= limit
        assert [bytes(held.read(ticket)) for ticket in tickets] == values
        for ticket in tickets:
            held.let_go(ticket)
        assert held.held == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


if __name__ == "__main__":
    hold_values()
