"""Logs that were written before are answered as they were then, event by event; else the epoch must be raised."""

from __future__ import annotations

import json

import pytest
from tests.online.frame.golden_log import ANSWERS, WAYS, answers_of, joins, log_of

from dovetail.joins.online.bucket_state import EPOCH

GOLDEN = json.loads(ANSWERS.read_text())
_AGAIN = "write the golden log again: python -m tests.online.frame.golden_log"


def test_the_golden_log_is_of_this_epoch_and_of_every_algorithm() -> None:
    assert GOLDEN["epoch"] == EPOCH, f"EPOCH is {EPOCH}, the golden log is of {GOLDEN['epoch']}; {_AGAIN}"
    assert set(GOLDEN["answers"]) == {name for name, _ in joins()}, _AGAIN


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", list(GOLDEN["answers"]))
def test_answers_come_in_the_order_in_which_they_came(name: str, way: str) -> None:
    join = dict(joins())[name]
    found, wanted = (
        answers_of(join, log_of(len(join.names)).read_bytes(), way == "loaded"),
        GOLDEN["answers"][name][way],
    )
    differ = [number for number, (now, then) in enumerate(zip(found, wanted, strict=True)) if now != then]
    assert not differ, (
        f"{name} answers events {differ} otherwise than when state of epoch {EPOCH} was written, which would then be "
        f"replayed wrongly: raise EPOCH in dovetail/joins/online/bucket_state.py, and {_AGAIN}"
    )
    assert sum(int(text.split()[0]) for text in found) > 0
