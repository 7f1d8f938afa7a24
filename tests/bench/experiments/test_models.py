"""The experiments on cost models: their machinery, and a few settings of each end to end."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from bench.catalogue import load_experiments
from bench.experiment import Findings, Grid
from bench.experiments.models import choices, exam, interval, routes, semistream, work
from bench.experiments.models.choices import Chosen
from bench.experiments.models.errors import Compared, spreads
from bench.experiments.models.interval import Mix, Pair, Setting
from bench.experiments.models.semistream import Scene, candidates, counted, scenes, typical_costs
from bench.judge import Figures
from bench.page import best_table

from dovetail.engine.profile import load_profile
from dovetail.errors import DataError

SHORT = Pair(Mix.even(2.0, 5), Mix(2.0, ((0.5, 5), (0.5, 40))), 300)


def test_every_part_of_the_issue_has_its_experiment() -> None:
    found = {name for name, one in load_experiments().items() if one.family == "models"}
    assert found == {
        "models-interval",
        "models-interval-choice",
        "models-interval-exam",
        "models-interval-routes",
        "models-interval-work",
        "models-semistream",
        "models-semistream-choice",
    }


def test_there_are_a_hundred_settings_with_a_choice() -> None:
    intervals, streams = list(choices.choice_grid(True)), scenes()
    assert len(set(map(str, intervals))) == len(intervals)
    assert len(set(map(str, streams))) == len(streams)
    assert len(intervals) + len(streams) >= 100


def test_the_exam_has_a_hundred_settings_more() -> None:
    made, drawn = list(exam.exam_grid()), list(exam.drawn())
    assert len({str(one) for one in (*made, *drawn)}) == len(made) + len(drawn) >= 100
    assert list(map(str, exam.drawn())) == list(map(str, drawn))


def test_a_constant_answer_is_counted_in_its_better_orientation() -> None:
    found = [
        Chosen("s1", "a", {"a": 1.0, "b": 2.0, "b (swapped)": 1.05}),
        Chosen("s2", "b", {"a": 3.0, "b": 1.0, "b (swapped)": 4.0}),
    ]
    assert choices.constants(found) == {"a": 1, "b": 2}
    assert choices.margins(found) == {"a": pytest.approx([1.05, 1 / 3]), "b": pytest.approx([1 / 1.05, 3.0])}


@pytest.mark.parametrize(
    ("pair", "frames", "spills"),
    [
        (SHORT, 4_000, False),
        (Pair(Mix.even(1.0, 100), Mix.even(1.0, 100), 400), 24, True),
        (Pair(Mix(2.0, ((0.4, 2), (0.6, 300))), Mix.even(0.5, 2), 300), 24, True),
        (Pair(Mix.even(0.5, 2), Mix(2.0, ((0.4, 2), (0.6, 300))), 300), 24, True),
        (Pair(Mix(1.0, ((0.5, 2), (0.5, 200))), Mix(1.0, ((0.8, 2), (0.2, 200))), 300), 24, True),
    ],
)
def test_a_sweep_does_no_more_than_a_partitioned_join(pair: Pair, frames: int, spills: bool) -> None:
    """Counted, not timed: no more frames, and at most one comparison a row more; where rows fit nothing is moved."""
    done = work.Done.of(Setting(pair, frames))
    assert max(done.more(name) for name in work.PARTITIONED) <= 1
    assert all(done.by[name].comparisons >= pair.pairs() for name in done.by)
    assert done.all_spill == spills
    if not spills:
        assert not any(one.frames for one in done.by.values())
        assert done.by["forward_scan"].comparisons <= pair.pairs() + done.rows


def test_a_sweep_that_moves_more_does_not_count_as_less_work() -> None:
    by = {name: work.Work(10, 7) for name in (*work.SWEEPS, *work.PARTITIONED)}
    assert work.Done("s", 2, by).more("oip") == 0
    by |= {"oip": work.Work(4, 7), "dip": work.Work(10, 6)}
    found = work.Done("s", 2, by)
    assert (found.more("oip"), found.more("dip")) == (3, float("inf"))
    assert judged("models-interval-work", work.told([found])).verdict == "does not hold"


def test_the_best_of_all_settings_are_told_together() -> None:
    operators = [Chosen("s1", "a", {"a": 1.0, "b": 2.0, "b (swapped)": 1.6}), Chosen("s2", "a", {"a": 3.0, "b": 2.5})]
    routes_found = [Chosen("s3", "native", {"native": 4.0, "index": 1.0})]
    found = {
        name: {"tables": [asdict(choices.settings_table(some, "Least processor times of all", 1e3, "ms"))]}
        for name, some in (("models-interval-exam", operators), ("models-interval-routes", routes_found))
    }
    grid = best_table(found)
    assert grid is not None
    assert "in 3 settings (2 of models-interval-exam, 1 of models-interval-routes)" in grid.title
    assert grid.rows == (
        ("a", 2, 1, 1, 1.6, "s1"),
        ("b", 2, 1, 0, 1.2, "s2"),
        ("index", 1, 1, 1, 4.0, "s3"),
        ("native", 1, 0, 0, 0.25, "s3"),
    )
    assert best_table({}) is None


def test_routes_that_cannot_run_are_left_out() -> None:
    found = [
        Chosen("s1", "native", {"native": 1.0, "ranges": 2.0}),
        Chosen("s2", "index", {"native": 3.0, "ranges": 4.0, "index": 1.0}),
    ]
    assert choices.constants(found) == {"index": 1, "native": 1, "ranges": 0}
    assert choices.margins(found)["index"] == [3.0]
    every = list(routes.route_grid(small=True))
    assert {one.how for one in every} == {"inner", "left", "left_semi", "left_anti"}
    assert {one.keys for one in every} == {0, 24, 20_000}
    assert len({str(one) for one in every}) == len(every) == 28


def test_the_exam_has_a_hundred_settings_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quick:
        def __init__(self, setting: object) -> None:
            self.setting = setting

        def chosen(self, rounds: int) -> Chosen:
            return Chosen(str(self.setting), "a", {"a": 1.0, "b": 2.0})

    monkeypatch.setattr(choices, "_Timed", Quick)
    monkeypatch.setattr(choices, "_EXAM_SECONDS", 0.0)
    monkeypatch.setattr(choices, "warm", lambda: None)
    assert choices.exam(None).named["n"] == 100  # type: ignore[arg-type]  # it needs nothing of it


def test_the_exam_fails_a_chooser_that_always_says_the_same() -> None:
    found = [Chosen(f"s{n}", "a", {"a": 1.0 if n % 2 else 2.5, "b": 1.0}) for n in range(20)]
    named = {
        **choices.figures(found, "time", 0, Grid("every", (), ())).named,
        "constants": {"a": 10, "b": 20},
        "margins": {"a": 1.0, "b": 2.5},
        "wins": {"a": 0, "b": 10},
        "held_out": 10,
        "held_out_good": 5,
    }
    judgement = judged("models-interval-exam", Figures(named))
    assert [one.verdict for one in judgement.statements] == [
        *["does not hold"] * 4,
        "holds",
        "does not hold",
        "holds",
        "does not hold",
    ]


def test_pairs_are_those_of_all_comparisons() -> None:
    (ls, le), (rs, re) = SHORT.bounds()
    assert SHORT.pairs() == int(np.sum((ls[:, None] < re) & (rs < le[:, None])))
    assert len(rs) == 600
    assert np.all(np.diff(rs) >= 0)
    assert sorted(set((re - rs).tolist())) == [5, 40]
    assert np.mean(re - rs) == pytest.approx(22.5)


def test_errors_are_told_by_algorithm_and_figure() -> None:
    found = spreads(
        [Compared("a", "x", f"s{n}", 1.0 + n / 10, 1.0) for n in range(5)] + [Compared("b", "x", "s", 1, 2)]
    )
    assert [(s.algorithm, s.settings) for s in found] == [("a", 5), ("b", 1)]
    assert found[0].median == pytest.approx(0.2)
    assert found[0].worst.setting == "s4"
    assert found[1].worst.error == pytest.approx(-0.5)


def judged(name: str, found: Figures) -> Findings:
    return load_experiments()[name].run.judge.findings(found)


@pytest.mark.parametrize(("bad", "verdict"), [(0, "holds"), (2, "holds"), (3, "does not hold"), (6, "does not hold")])
def test_verdict_on_choices_follows_from_their_number(bad: int, verdict: str) -> None:
    found = [Chosen(f"s{n}", "a", {"a": 1.2 if n < bad else 1.09, "b": 1.0}) for n in range(20)]
    for name in ("models-interval-choice", "models-semistream-choice"):
        judgement = judged(name, choices.figures(found, "time", 3, Grid("every", (), ())))
        assert judgement.verdict == verdict
        assert f"in {20 - bad} of 20 settings" in judgement.statements[0].says
        assert len(judgement.tables[0].rows) == bad


def test_choice_must_be_among_those_that_ran() -> None:
    with pytest.raises(DataError, match="only"):
        Chosen("s", "c", {"a": 1.0})


def test_interval_counts_are_the_same_twice_and_checked() -> None:
    settings = [interval.Setting(SHORT, frames) for frames in (12, 400)]
    first, second = (interval.compare(settings) for _ in range(2))
    assert first == second
    compared, spilled, rows = first
    assert rows == 2 * 5 * SHORT.pairs()
    assert {one.what for one in compared} == {interval.COMPARISONS, interval.FRAMES}
    assert {(one.found, "400" in one.setting) for one in spilled if one.algorithm == "time_sweep"} == {
        (True, False),
        (False, True),
    }


@pytest.mark.parametrize(
    ("left", "right", "frames"),
    [
        (Mix.even(1.0, 20), Mix.even(1.0, 20), 192),  # each input fits, not both: partitioned joins spill
        (Mix.even(10.0, 100), Mix.even(1.0, 10), 768),
        (Mix(5.0, ((0.7, 5), (0.2, 50), (0.1, 300))), Mix.even(2.0, 20), 48),  # not all rows are as long as the longest
    ],
    ids=str,
)
def test_spills_are_predicted_and_so_are_the_frames_of_sweeps(left: Mix, right: Mix, frames: int) -> None:
    compared, spilled, _ = interval.compare([interval.Setting(Pair(left, right, 500), frames)])
    assert [(one.algorithm, one.predicted) for one in spilled] == [(one.algorithm, one.found) for one in spilled]
    errors = [abs(one.error) for one in compared if one.what == interval.FRAMES and one.algorithm != "dip"]
    assert all(error < 0.4 for error in errors)


def test_interval_verdict_needs_errors_and_spills_right() -> None:
    fine, off = (spreads([Compared("a", interval.COMPARISONS, "s", x, 1.0)]) for x in (1.05, 2.0))
    right, wrong = (interval.Spilled("a", "s", True, found) for found in (True, False))
    for found, spilled, verdicts in (
        (fine, right, ["holds", "holds"]),
        (fine, wrong, ["holds", "does not hold"]),
        (off, right, ["does not hold", "holds"]),
    ):
        judgement = judged("models-interval", Figures({"found": found, "spilled": [spilled]}))
        assert [one.verdict for one in judgement.statements] == verdicts


def test_interval_choice_runs_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "warm", lambda: None)  # times are not looked at
    monkeypatch.setattr(choices, "_ROUNDS", 1)
    found = choices.chosen_operators([choices.ChoiceSetting(SHORT, 0, "1MB")])
    assert found.rows == SHORT.pairs()
    tables = judged("models-interval-choice", found).tables
    assert len(tables[-1].rows) == 1
    assert {row[0] for row in tables[1].rows} >= {"time_sweep", "forward_scan", "sort_merge", "oip", "dip"}


def test_costs_are_typical_ones_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_PROFILE", "elsewhere")
    with typical_costs(tmp_path):
        assert not load_profile().measured
    assert os.environ["DOVETAIL_PROFILE"] == "elsewhere"


SCENES = [Scene(4_000, 256 << 10, 1.0, "ssd"), Scene(4_000, 256 << 10, 0.5, "hdd", "frequency", 500)]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_semistream_choice_is_the_same_twice(scene: Scene, tmp_path: Path) -> None:
    with typical_costs(tmp_path):
        runs = [choices.chosen_joins([scene], 40) for _ in range(2)]
        first, second = (judged("models-semistream-choice", run) for run in runs)
        can_run = candidates(scene.setting())
    assert first == second
    assert {row[0] for row in first.tables[1].rows} == set(can_run)
    assert ("x_hybridjoin" in can_run) == (scene.order == "frequency")
    assert ("partitioned" in can_run) == (scene.batch_rows is not None)


def test_joins_without_room_are_no_candidates(tmp_path: Path) -> None:
    scene = Scene(20_000, 128 << 10, 1.0, "ssd")
    with typical_costs(tmp_path):
        found = semistream.decided(scene, scene.setting())
    assert "hybridjoin" in found
    assert "r_meshjoin" not in found


def test_semistream_counts_are_answers(tmp_path: Path) -> None:
    scene = SCENES[1]
    with typical_costs(tmp_path):
        setting, decision = scene.setting(), scene.decision("hybridjoin")
        did = counted(scene, decision, setting, 40)
        told = semistream.predicted(decision)
    assert did.rows % 500 == 0
    assert did.loads > 0
    assert did.hits == 0
    assert told is not None
    assert told[1] == pytest.approx(did.rate, rel=0.3)


def test_semistream_verdict() -> None:
    compared = [Compared(f"a{n}", "rows a load", "s", 1 + error, 1.0) for n, error in enumerate((0.1, 0.0, 0.3))]
    found = judged("models-semistream", Figures({"found": spreads(compared)}))
    assert [one.verdict for one in found.statements] == ["holds", "holds", "does not hold"]


@pytest.mark.parametrize(
    ("costs", "verdicts"),
    [
        ([(1, 2, 2), (2, 1, 2), (2, 2, 1)], {"1.5 times": "holds", "within 10 %": "holds", "always": "holds"}),
        ([(1, 1.2, 3), (3, 1, 3), (3, 3, 1)], {"native is best": "does not hold", "ranges is best": "holds"}),
        ([(3, 1, 2)] * 3, {"index is best": "does not hold", "always ranges": "does not hold"}),
    ],
)
def test_verdict_on_routes_follows_from_their_times(costs: list[tuple[float, ...]], verdicts: dict[str, str]) -> None:
    every = [dict(zip(("native", "ranges", "index"), each, strict=True)) for each in costs]
    found = [Chosen(f"s{n}", min(each, key=each.__getitem__), each) for n, each in enumerate(every)]
    told = routes.told(found, 3)
    statements = judged("models-interval-routes", told).statements
    for words, verdict in verdicts.items():
        some = [one for one in statements if words in one.says]
        assert some
        assert {one.verdict for one in some} == {verdict}
    assert all(
        one.fault
        for one in statements
        if "native is best" in one.says and one.verdict == "does not hold" and "1.20" in one.says
    )
