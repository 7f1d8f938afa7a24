"""The experiments on scale: slopes and verdicts, what is compared between processes, and the bills on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.catalogue import load_experiments
from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.scale import cluster, growth, paper
from bench.experiments.scale.cluster import Asked, Ran, write_data
from bench.experiments.scale.growth import Point, Prepared
from bench.experiments.scale.paper import Cluster, interval_bill, online_bill, rereads, semistream_bill, xquery_bill
from bench.judge import Figures

from dovetail.engine.profile import Profile
from dovetail.errors import DataError


def test_every_part_of_the_issue_has_its_experiment() -> None:
    found = {name for name, one in load_experiments().items() if one.family == "scale"}
    families = {f"scale-{name}" for name in ("interval", "semistream", "online", "xquery")}
    assert found == families | {"scale-cluster", "scale-on-paper", "scale-out"}


def curve(exponent: float, constant: float = 0.0) -> list[Point]:
    return [Point(float(size), constant + (size / 1000) ** exponent, size) for size in growth.sizes(1000)]


def test_slope_is_the_exponent() -> None:
    assert growth.slope(curve(1.0)) == pytest.approx(1.0)
    assert growth.slope(curve(1.7)) == pytest.approx(1.7)
    flat = curve(1.0, constant=20.0)
    assert growth.slope(growth.larger_half(flat)) > growth.slope(flat)
    assert growth.added_slope(flat) == pytest.approx(1.0)
    assert growth.added_slope(curve(1.0, constant=500.0)) is None
    assert len(growth.sizes(5)) == 6
    assert growth.sizes(5)[-1] == 160


def judged(name: str, found: Figures) -> Findings:
    return load_experiments()[name].run.judge.findings(found)


def test_verdict_on_growth_follows_from_each_curve() -> None:
    """Both slopes of each count; where nearly all is constant, what is added tells nothing."""
    lines = {"one": curve(1.0), "other": curve(1.3), "flat": curve(1.0, constant=500.0)}
    found = judged("scale-online", growth.figures(lines, "rows", "A join"))
    verdicts = [one.verdict for one in found.statements]
    assert verdicts[:3] == ["holds", "does not hold", "holds"]
    assert verdicts[3:] == ["holds", "does not hold", "not tested here"]
    assert "other: the slope in the larger half is 1.30" in found.statements[1].says
    assert found.note.startswith("A join, from 1,000 to 3.2e+04 rows, doubled five times")


def test_wrong_answer_is_a_failure_and_inputs_are_released() -> None:
    released = []
    right = Prepared(10.0, 7, lambda: 7, lambda: released.append("right"))
    assert growth.timed(right, "a join").answers == 7
    assert growth.timed(replace(right, rows=1), "a join").answers == 1
    with pytest.raises(DataError, match="gave 8, not 7"):
        growth.timed(replace(right, run=lambda: 8, release=lambda: released.append("wrong")), "a join")
    assert released == ["right", "right", "wrong"]


def test_curves_check_every_way_at_every_size() -> None:
    asked: list[tuple[str, int]] = []

    def way(name: str) -> growth.Prepare:
        return lambda bench, size: Prepared(float(size), size, lambda: asked.append((name, size)) or size)

    with BenchContext("small") as bench:
        lines = growth.curves(bench, {"a": way("a"), "b": way("b")}, [1, 2])
    assert [(name, [p.size for p in points]) for name, points in lines.items()] == [("a", [1, 2]), ("b", [1, 2])]
    assert asked.count(("a", 2)) == growth.ROUNDS
    assert asked.count(("b", 1)) == growth.ROUNDS + 1


def ran(**changed: Asked) -> Ran:
    names = ("interval, operators", "interval, bins", "semi-stream", "online", "xquery")
    return Ran({name: Asked(10, "5", 0.1, 100) for name in names} | changed, {"driver": 0, "0": 4, "1": 3})


def test_answers_of_the_cluster_must_be_those_of_one_process(tmp_path: Path) -> None:
    write_data(tmp_path, 400)
    wanted = cluster.expected(tmp_path)
    assert set(wanted) == set(ran().families)
    assert 0 < wanted["xquery"] <= 3 * 4 * 366
    tens = dict.fromkeys(wanted, 10)
    found = cluster.figures(ran(), ran(), tens)
    assert judged("scale-cluster", found).verdict == "holds"
    assert found.rows == 100
    with pytest.raises(DataError, match="other rows"):
        cluster.figures(ran(), ran(online=Asked(10, "6", 0.1, 100)), tens)
    with pytest.raises(DataError, match="11 in the cluster"):
        cluster.figures(ran(), ran(online=Asked(11, "5", 0.1, 100)), tens)
    alone = replace(ran(), tasks={"driver": 0, "0": 7})
    assert judged("scale-cluster", cluster.figures(ran(), alone, tens)).verdict == "does not hold"


SMALLER = Cluster(nodes=4, cores=2, input_bytes=1e8)


def test_bills_grow_with_the_input_and_shrink_with_nodes() -> None:
    profile = Profile()
    for bill in (interval_bill, semistream_bill, online_bill):
        small, large = bill(SMALLER, profile), bill(replace(SMALLER, input_bytes=2e8), profile)
        assert large.cpu_s > 1.5 * small.cpu_s
        assert large.shuffle_bytes == pytest.approx(2 * small.shuffle_bytes)
        assert small.shuffle_bytes >= 0.9 * SMALLER.input_bytes
        assert sum(small.seconds(SMALLER)) > sum(small.seconds(replace(SMALLER, nodes=8)))


def test_paper_says_what_it_assumes() -> None:
    bills = [xquery_bill(SMALLER, 20e6), interval_bill(SMALLER, Profile())]
    found = judged("scale-on-paper", paper.figures(bills, SMALLER, Profile()))
    assert found.verdict == "not tested here"
    assert found.tables[0].rows[0][0] == "xquery"
    assert found.tables[0].rows[0][1] == pytest.approx(1e8 / 20e6 / 8 / 60, abs=0.01)
    assumed = {(row[0], row[1]) for row in found.tables[1].rows}
    assert {("all", "network"), ("interval", "plan"), ("xquery", "inputs")} <= assumed
    assert "shuffle_row" in {row[0] for row in found.tables[2].rows}


def test_rows_beyond_memory_are_read_again() -> None:
    few, more = (rereads(ratio, (0.8, 1.2)) for ratio in (0.8, 1.2))
    assert 0.0 < few < more < 20.0
    assert rereads(1.6, (0.8, 1.2)) == pytest.approx(2 * more - few)
