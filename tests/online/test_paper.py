"""Online shares and hand-over at the scale of the sources, against docs/algorithms/online.md, 6.4."""

from __future__ import annotations

import pytest
from bench.experiments.online.counting import COLUMNS, share
from bench.experiments.online.streams import PRINTED, SPECIFIED, synthetic
from tests.online.handover import SETTING, simulate
from tests.online.paper import BLOCK, MEMORY, ROWS, shares_of_bands

SETS = [("zipf", 1), ("zipf", 2), ("zipf", 5), ("moving_mean", 2), ("moving_mean", 10), ("moving_mean", 20)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "x"), SETS)
def test_diner_gives_the_share_of_the_reference_counts(name: str, x: float) -> None:
    found = share("DINER", synthetic(name, x, ROWS), MEMORY, BLOCK)
    assert found == pytest.approx(SPECIFIED[name, x][0], abs=1.5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "x"), [("zipf", 1), ("moving_mean", 10)])
def test_the_others_give_theirs(name: str, x: float) -> None:
    streams = synthetic(name, x, ROWS)
    found = {column: share(column, streams, MEMORY, BLOCK) for column in COLUMNS}
    printed = dict(zip(COLUMNS, SPECIFIED[name, x], strict=True))
    for column, allowed in (("HMJ", 3.0), ("XJoin", 3.0), ("oldest", 1.5), ("RPJ 1.0", 6.0), ("RPJ 0.9", 6.0)):
        assert found[column] == pytest.approx(printed[column], abs=allowed), column
    if name == "zipf":
        assert found["DINER"] > found["RPJ 1.0"] > found["oldest"] > found["PMJ"] > found["HMJ"]
        assert found["PMJ"] == pytest.approx(5.0, abs=0.3)
        assert found["oldest"] == pytest.approx(9.75, abs=0.3)  # 2f - f² with f = 5 %


@pytest.mark.sampled(3)
def test_diner_gives_more_of_band_joins_than_the_merge_join() -> None:
    """The stock prices are one random walk each, so only the factor of the reference counts can be expected of them."""
    assert shares_of_bands("weather") == pytest.approx(PRINTED["bands"]["weather"], abs=1.5)
    for found in (shares_of_bands("csco"), shares_of_bands("ipix")):
        assert 1.5 < found[0] / found[2] < 2.2
        assert 1.5 < found[1] / found[3] < 2.2


@pytest.mark.slow
def test_diner_hands_over_within_one_step_of_max_new_arrivals() -> None:
    """A step is one inner block, at first with the outer batch of 19; HMJ goes back only after a whole merge."""
    for pause in (10, 50):
        found = simulate("DINER", pause)
        assert len(found.waited) >= 5
        assert found.step_gaps == pytest.approx(SETTING.block_gaps * 20)
        assert SETTING.max_new < found.most <= SETTING.max_new + found.step_rows
    assert simulate("HMJ", 10).most > 3 * SETTING.max_new
