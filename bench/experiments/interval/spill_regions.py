"""Where the streaming joins run out of memory, predicted and observed: figures 4.12 and 4.13."""

from __future__ import annotations

from functools import partial

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import Side, pairs, statistics, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import run
from dovetail.joins.interval.cost import CostModel, ForwardScanCost, FrameMemory, SortMergeCost, TimeSweepCost
from dovetail.joins.interval.operators import Frames

MEMORY = FrameMemory(8_192, 256)
RATE_R = 10
NAMES = ("SM", "SM swapped", "TS", "FS")
GRIDS = {
    "small": ((5, 10, 20, 30, 40, 60, 80), (5, 10, 20, 30, 40, 60, 80)),
    "full": (tuple(range(5, 101, 5)), tuple(range(5, 101, 5))),
}
NEAR = 0.02
"""How near to the border, as a share of memory, a prediction may fail: the tests count fractions of frames."""


def _models(rate: int, d: int, d_r: int) -> dict[str, CostModel]:
    r, s = (statistics(_range(d), x, tuple_bytes=2_296) for x in ((RATE_R, d_r), (rate, d)))
    return {
        "SM": SortMergeCost(r, s, MEMORY),
        "SM swapped": SortMergeCost(s, r, MEMORY),
        "TS": TimeSweepCost(r, s, MEMORY),
        "FS": ForwardScanCost(r, s, MEMORY),
    }


def _range(d: int) -> int:
    """Long enough for the active tuples to reach their number and stay there."""
    return 4 * d + 100


def _observed(name: str, left: Side, right: Side, expected: int) -> bool:
    reserved = 4 if name.startswith("SM") else 5
    frames = Frames(256, 8_192, 2_296, reserved)
    return run(name.split()[0], left, right, expected, frames=frames, swapped=name.endswith("swapped")).spills > 0


def _regions(d_r: int, bench: BenchContext) -> Findings:
    rates, durations = GRIDS[bench.scale]
    agree, far, tested, checked = 0, 0, 0, 0
    wrong: list[list[Cell]] = []
    seen: dict[tuple[int, int], dict[str, bool]] = {}
    for d in durations:
        left = steady(_range(d), (RATE_R, d_r))
        for rate in rates:
            right = steady(_range(d), (rate, d))
            expected = pairs(left, right)
            seen[rate, d] = {}
            for name, model in _models(rate, d, d_r).items():
                spilled = seen[rate, d][name] = _observed(name, left, right, expected)
                checked, tested = checked + expected, tested + 1
                distance = abs(model.needed_frames() / model.available_frames() - 1)
                if spilled == model.spills():
                    agree += 1
                else:
                    far += distance > NEAR
                    wrong.append([name, rate, d, round(model.needed_frames(), 1), model.available_frames(), spilled])
    checks = Checks()
    checks.add(
        far == 0,
        f"{agree} of {tested} predictions are right, {far} wrong ones lie further than {NEAR:.0%} from the border",
    )
    spot = seen[40, 40] if d_r == 5 else None
    if spot is not None:
        text = ", ".join(f"{name} {'spills' if spot[name] else 'does not'}" for name in NAMES)
        ok = spot["TS"] and not spot["FS"] and not spot["SM swapped"]
        checks.add(ok, f"at rate 40 and duration 40 the sweep spills and the scan and sort-merge do not ({text})")
    heads = ["join", "lambda_S", "d_S", "frames needed", "available", "spilled"]
    tables = [Grid("Predictions that fail", heads, wrong)]
    return checks.findings([_map(seen, d_r)], tables, checked, "SM needs its inputs exchanged to be the one that fits.")


def _map(seen: dict[tuple[int, int], dict[str, bool]], d_r: int) -> Chart:
    """How many of the four spill, over rate and duration of S."""
    points = [(rate, d, sum(spilled.values())) for (rate, d), spilled in seen.items()]
    title = f"How many of SM, SM swapped, TS, FS spill (observed); R has rate 10, duration {d_r}"
    return Chart(title, "rate of S", "duration of S", {"spilling": points}, "heat")


def _experiment(figure: str, d_r: int) -> Experiment:
    return Experiment(
        name=f"interval-spill-regions-{d_r}",
        family="interval",
        source="Carman 2020",
        places=(figure,),
        claim=f"For R of rate 10 and duration {d_r}, simple tests on rate and duration of S tell which of sort-merge, "
        "sweep and forward scan run out of memory; each has a region of its own.",
        run=partial(_regions, d_r),
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    )


EXPERIMENTS = (_experiment("figure 4.12", 5), _experiment("figure 4.13", 15))
