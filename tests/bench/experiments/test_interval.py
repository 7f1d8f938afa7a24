"""The interval experiments: their machinery, the cheapest end to end, and that no figure or table is missing."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from bench.catalogue import Called, load_experiments
from bench.context import BenchContext
from bench.experiment import Experiment
from bench.experiments.interval import model_errors
from bench.experiments.interval.runs import (
    JOINS,
    Side,
    TopOverlaps,
    contacts,
    flights,
    pairs,
    run,
    statistics,
    steady,
)
from bench.judge import Figures

from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.cost import expected_pairs
from dovetail.joins.interval.operators import Frames

PLACES = (
    [f"figure 3.{n}" for n in range(18, 35)]
    + ["figure 4.12", "figure 4.13"]
    + [f"figure 5.{n}" for n in range(1, 5)]
    + [f"figure 6.{n}" for n in range(6, 19)]
    + ["table 3.2", "table 3.3"]
    + [f"table 4.{n}" for n in range(2, 12)]
)


def family() -> dict[str, Experiment]:
    return {name: one for name, one in load_experiments().items() if one.family == "interval"}


def random_side(seed: int, rows: int = 60) -> Side:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 40, rows)
    end = start + rng.integers(1, 15, rows)
    order = np.lexsort((end, start))
    return Side("random", pa.record_batch({"_start": start[order], "_end": end[order], "id": np.arange(rows)}))


def test_every_figure_and_table_of_the_source_is_covered() -> None:
    covered = {place for one in family().values() for place in one.places}
    assert covered == set(PLACES)
    assert {one.source for one in family().values()} == {"Carman 2020"}


@pytest.mark.parametrize("seed", range(5))
def test_independent_counts_are_those_of_all_pairs(seed: int) -> None:
    left, right = random_side(seed), random_side(seed + 100)
    a, b, c, d = (x for side in (left, right) for x in (side.starts, side.ends))
    a, b = a[:, None], b[:, None]
    assert pairs(left, right) == ((a < d) & (c < b)).sum()
    assert pairs(left, right, "covers") == ((a <= c) & (b >= d)).sum()
    assert pairs(left, right, "overlaps") == ((a < c) & (b < d) & (b > c)).sum()
    with pytest.raises(PlanError, match="are not counted here"):
        pairs(left, right, "meets")


@pytest.mark.parametrize("name", JOINS)
def test_runs_are_checked_and_count(name: str) -> None:
    left, right = random_side(1), random_side(2)
    for relation in ("overlapping", "covers", "overlaps"):
        expected = pairs(left, right, relation)
        for form in ("count", "empty", "top", "rows"):
            assert run(name, left, right, expected, relation=relation, form=form).pairs == expected
    with pytest.raises(DataError, match=f"{name} found .* there are 7"):
        run(name, left, right, 7)


def test_small_memory_is_counted_in_frames() -> None:
    side = steady(200, (10, 20))
    ran = run("SM", side, side, pairs(side, side), frames=Frames(40, 30, 10))
    assert ran.moved
    assert ran.spills > 0
    assert ran.frames == ran.frames_written + ran.frames_read > 0
    assert not run("SM", side, side, pairs(side, side)).moved


def test_longest_overlaps_are_kept() -> None:
    left, right = random_side(3), random_side(4)
    a, b, c, d = (x for side in (left, right) for x in (side.starts, side.ends))
    every = np.minimum(b[:, None], d) - np.maximum(a[:, None], c)
    at = np.argwhere(every > 0).astype(np.int64)
    top = TopOverlaps((a, b), (c, d), 10)
    for first in range(0, len(at), 7):
        part = at[first : first + 7]
        top.offer(np.ascontiguousarray(part[:, 0]), np.ascontiguousarray(part[:, 1]))
    assert top.pairs == len(at)
    assert top.best.tolist() == np.sort(every[every > 0])[-10:].tolist()


@pytest.mark.parametrize("classes", [((10, 10),), ((5, 5), (10, 30))])
def test_statistics_describe_the_data_that_is_made(classes: tuple[tuple[int, int], ...]) -> None:
    side, known = steady(300, *classes), statistics(300, *classes)
    assert side.rows.num_rows == known.rows
    assert expected_pairs(known, known) == pytest.approx(pairs(side, side))


def test_recorded_and_made_data() -> None:
    january = flights(1 / 12)
    assert 20_000 < january.rows.num_rows < 30_000
    assert (january.ends > january.starts).all()
    assert (np.diff(january.starts) >= 0).all()
    assert january.ends[-1] < 32 * 1_440
    made = contacts(1_000)
    assert set(made.ends - made.starts) == {20}


def twice(name: str, **told: object) -> dict[str, object]:
    """The findings of an experiment with some of its arguments changed; the same in two runs."""
    one = family()[name]
    assert isinstance(one.run, Called)
    one = replace(one, run=replace(one.run, told={**one.run.told, **told}))
    with BenchContext("small") as first, BenchContext("small") as second:
        found = [one.run(bench).to_json() for bench in (first, second)]
    assert found[0] == found[1]
    assert json.loads(json.dumps(found[0]))["rows"] == found[0]["rows"] > 0
    return found[0]


def verdicts(found: dict[str, object]) -> set[str]:
    return {one["verdict"] for one in found["statements"]}


def test_counted_experiments_give_the_same_twice_and_hold() -> None:
    assert verdicts(twice("interval-memory-tuples")) == {"holds"}
    few = [[10, 5, 0.02], [1, 10, 0.05]]
    assert verdicts(twice("interval-size-error", printed=few, by_duration=1)) == {"holds"}


def test_spill_predictions_on_a_small_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_errors, "GRIDS", {"small": ((10, 40), (20, 40))})
    assert verdicts(twice("interval-spill-regions-5")) == {"holds"}


def test_model_errors_of_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [[1, 10, [0.01, 5.04, 1.90, 5.01, 0.01]]]
    assert verdicts(twice("interval-cpu-error", printed=few)) == {"holds"}
    monkeypatch.setattr(model_errors, "io_range", lambda name, rate, mixed, scale: 300)
    found = twice("interval-io-error", printed=[[10, 50, [1.65, 2.28, 0.31, 3.08, 1.77]]])
    assert "all five spill in every setting" in [one["says"] for one in found["statements"]]


def test_spills_are_compared_with_those_of_as_many_instants() -> None:
    """(4.10) gives 130 spills for 10,000 instants, so 39 for 3,000; and nothing is allowed beyond what is printed."""
    judge = family()["interval-io-error"].run.judge
    named = {"equations": {"FS": 0.085}, "ours": {}, "most": {"FS": 0.0793}, "all_spill": True}
    for instants, spills, holds in ((3_000, [39, 39, 195, 390], True), (10_000, [39, 39, 195, 390], False)):
        found = judge.statements(judge.names(Figures({**named, "spills": spills, "instants": instants})))
        assert [one.verdict == "holds" for one in found] == [False, True, holds]


def test_who_is_slow_follows_from_the_runs() -> None:
    judge = family()["interval-speed-up-flights"].run.judge
    alone = {"a": {"DIP": 1.0, "OIP": 2.0}, "b": {"DIP": 2.0, "OIP": 1.0}}
    found = judge.findings(Figures({"alone": alone, "gain": {"DIP": 1.5, "OIP": 1.1}, "more": {}}))
    assert [(one.says, one.verdict) for one in found.statements] == [
        ("OIP is the slowest on a (from fast to slow: DIP, OIP)", "holds"),
        ("OIP is the slowest on b (from fast to slow: OIP, DIP)", "does not hold"),
        ("two tasks are at least 1.4 times as fast as one (DIP 1.50)", "holds"),
        ("two tasks are at least 1.4 times as fast as one (OIP 1.10)", "does not hold"),
    ]
