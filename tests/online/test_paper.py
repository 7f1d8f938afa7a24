"""Online shares and hand-over at the scale of the sources, against the specification's own figures."""

from __future__ import annotations

import pytest
from tests.online.handover import MAX_NEW, simulate
from tests.online.paper import COLUMNS, PUBLISHED, keys_of, share

SETS = [("zipf", 1), ("zipf", 2), ("zipf", 5), ("moving_mean", 2), ("moving_mean", 10), ("moving_mean", 20)]


@pytest.mark.parametrize(("name", "x"), SETS)
def test_diner_gives_the_share_of_the_specification(name: str, x: float) -> None:
    left, right = keys_of(name, x)
    assert share("DINER", left, right) == pytest.approx(PUBLISHED[name, x][0], abs=1.5)


@pytest.mark.parametrize(("name", "x"), [("zipf", 1), ("moving_mean", 10)])
def test_the_others_give_theirs(name: str, x: float) -> None:
    left, right = keys_of(name, x)
    found = {column: share(column, left, right) for column in COLUMNS}
    printed = dict(zip(COLUMNS, PUBLISHED[name, x], strict=True))
    for column, allowed in (("HMJ", 3.0), ("XJoin", 3.0), ("oldest", 1.5), ("RPJ 1.0", 6.0), ("RPJ 0.9", 6.0)):
        assert found[column] == pytest.approx(printed[column], abs=allowed), column
    if name == "zipf":
        assert found["DINER"] > found["RPJ 1.0"] > found["oldest"] > found["PMJ"] > found["HMJ"]
        assert found["PMJ"] == pytest.approx(5.0, abs=0.3)
        assert found["oldest"] == pytest.approx(9.75, abs=0.3)  # 2f - f² with f = 5 %


def test_diner_hands_over_within_one_block_of_max_new_arrivals() -> None:
    """At most one step's blocks: one read, and what was flushed to make room for it."""
    for pause in (10, 50):
        found = simulate("diner", pause)
        assert len(found.waited) >= 3
        assert min(found.waited) > MAX_NEW
        assert max(found.waited) <= MAX_NEW + found.longest_step_rows


def test_hash_merge_join_hands_over_late() -> None:
    waited = simulate("hmj", 10).waited
    assert max(waited) > 1.5 * MAX_NEW
