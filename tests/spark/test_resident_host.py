"""What a process keeps between tasks: by name, in the very state that was stored, not too many and not for too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.engine.spool import HeldBytes
from dovetail.spark.hosts.resident import Pool


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


def test_values_hold_no_more_bytes_than_they_may_and_those_that_were_not_used_go_first() -> None:
    things = [Thing() for _ in range(5)]
    pool = Pool[Thing]()
    for number in range(3):
        pool.keep(str(number), things[number], nbytes=30, most=100)
    with pool.using(40, 100):  # 130 with it: the oldest goes
        assert [thing.closed for thing in things] == [1, 0, 0, 0, 0]
        pool.keep("3", things[3], nbytes=30, most=100)
        assert [thing.closed for thing in things] == [1, 1, 0, 0, 0]
    pool.keep("4", things[4], nbytes=30, most=100)
    assert [thing.closed for thing in things] == [1, 1, 0, 0, 0]
    with pool.using(400, 100):  # more than there may be: nothing else stays
        assert [thing.closed for thing in things] == [1] * 5
    pool.keep("0", things[0], nbytes=10**9)
    assert pool.take("0") is things[0]


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
