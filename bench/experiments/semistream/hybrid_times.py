"""Chapter 5: how long rows of a stream stay in HYBRIDJOIN, MESHJOIN and INLJ."""

from __future__ import annotations

import itertools
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import Point, count, counted, divisor, master_rows
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.paced import stays
from dovetail.joins.semistream.cost import round_times
from dovetail.joins.semistream.cost.hybridjoin import inlj_delay

_RATES = (60, 125, 200, 500, 1000, 2000)
_PACE = 500


def _seconds(bench: BenchContext) -> float:
    return 300.0 if bench.scale == "full" else 60.0


def _note(divide: int) -> str:
    size = "the source's sizes" if divide == 1 else f"a {divide}th of the source's master data and memory"
    return (
        f"HYBRIDJOIN's times are those of the running join in virtual time, at {size}; MESHJOIN's and INLJ's are by "
        "their models."
    )


def _processing(bench: BenchContext) -> Findings:
    divide, sizes, rows = divisor(bench), master_rows(bench), []
    for n in sizes:
        point = Point(divide=divide, rows=n)
        mesh = replace(point, algorithm="meshjoin").predicted()
        mine = stays(point, _PACE, _seconds(bench)).mean_s
        room = point.join().sizes.waiting or 1
        full = room / count(point).per_second  # Little's law: that many wait
        rows.append((n, mine, round_times(mesh, _PACE).to_match_s, full, round_times(mesh).to_match_s))
    inlj = [1 / replace(Point(divide=divide, rows=n), algorithm="inlj").predicted().mu for n in sizes]
    slow = [row[2] / row[1] for row in rows]
    fast = [row[4] / row[3] for row in rows]
    checks = [
        Part(f"at {_PACE} rows a second rows stay {min(slow):.0f} to {max(slow):.0f} times as long in MESHJOIN",
              min(slow) > 3),
        Part(f"INLJ takes {1e3 * inlj[0]:.1f} ms whatever the master data", max(inlj) < 1.01 * min(inlj)),
        Part(f"with a stream that is never short a match takes MESHJOIN {min(fast):.2f} to {max(fast):.2f} times "
              "HYBRIDJOIN's time", min(fast) > 1),
    ]  # fmt: skip
    names = (f"HYBRIDJOIN, {_PACE}/s", f"MESHJOIN, {_PACE}/s", "HYBRIDJOIN, saturated", "MESHJOIN, saturated")
    lines = {name: [(row[0], row[i]) for row in rows] for i, name in enumerate(names, 1)}
    chart = Chart("Time to the match", "master rows", "seconds", lines, log_x=True, log_y=True)
    heads = (
        "master rows",
        f"HYBRIDJOIN, {_PACE}/s",
        f"MESHJOIN, {_PACE}/s",
        "HYBRIDJOIN, saturated",
        "MESHJOIN, saturated",
    )
    return judged(checks, _note(divide), [chart], [grid("Mean seconds to the match, exponent 1", heads, rows)])


def _waiting(bench: BenchContext) -> Findings:
    divide, rows = divisor(bench), []
    point = Point(divide=divide)
    mesh, inlj = (replace(point, algorithm=name).predicted() for name in ("meshjoin", "inlj"))
    for pace in _RATES:
        mine = stays(point, pace, _seconds(bench))
        delay = inlj_delay(inlj, pace)
        backlog = delay if delay < 1e9 else _seconds(bench) * (1 - inlj.mu / pace) / 2
        rows.append((pace, mine.mean_s, mine.longest_s, mesh.w / pace, round_times(mesh, pace).residence_s, backlog))
    below = [row for row in rows if row[0] < inlj.mu]
    above = [row for row in rows if row[0] > inlj.mu]
    checks = [
        Part("rows wait longer in MESHJOIN than in HYBRIDJOIN at every rate, "
              f"{min(r[4] / r[1] for r in rows):.0f} times at least", all(r[4] > r[1] for r in rows)),
        Part(f"below INLJ's capacity of {inlj.mu:.0f} rows a second they wait longer in HYBRIDJOIN than in INLJ",
              all(r[1] > r[5] for r in below)),
        Part("above it INLJ's backlog grows with time and with the rate",
              all(b[5] > a[5] for a, b in itertools.pairwise(above))),
    ]  # fmt: skip
    names = {1: "HYBRIDJOIN", 4: "MESHJOIN, a round", 3: "MESHJOIN, a step (printed)", 5: "INLJ"}
    lines = {name: [(row[0], row[i]) for row in rows] for i, name in names.items()}
    chart = Chart("Waiting, exponent 1", "rows a second that arrive", "seconds", lines, log_x=True, log_y=True)
    heads = ("rows a second", "HYBRIDJOIN, mean s", "longest", "MESHJOIN, a step", "a round", "INLJ")
    note = (
        f"{_note(divide)} INLJ's above its capacity is the mean backlog of {_seconds(bench):.0f} s. The source puts "
        "the crossing at 150 rows a second and counts one step of MESHJOIN, where a row stays for a round."
    )
    return judged(checks, note, [chart], [grid("Seconds that rows stay", heads, rows)])


EXPERIMENTS = (
    counted(
        "hybrid-processing-time",
        ("figure 5.7 (a)", "Naeem 2011 figure 7 (a)"),
        "A row is processed in far less time "
        "by HYBRIDJOIN than by MESHJOIN, for every size of the master data; INLJ's time is constant.",
        _processing,
    ),
    counted(
        "hybrid-waiting-time",
        ("figure 5.7 (b)", "Naeem 2011 figure 7 (b)"),
        "Rows wait longer in MESHJOIN than in "
        "HYBRIDJOIN; in HYBRIDJOIN longer than in INLJ below 150 rows a second only, above which INLJ's backlog "
        "grows.",
        _waiting,
    ),
)
