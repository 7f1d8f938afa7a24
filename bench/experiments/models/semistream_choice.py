"""Whether `algorithm="auto"` of enrichments picks the join that serves the most rows a second, by counts."""

from __future__ import annotations

from collections.abc import Sequence

from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.models.choices import Chosen, judged, settings_table
from bench.experiments.models.semistream_runs import Scene, candidates, counted, typical_costs
from bench.experiments.models.semistream_scenes import LOADS, scenes


def chosen(scene: Scene, loads: int) -> tuple[Chosen, int]:
    """What was chosen for a scene, the seconds a row of every join that can run there, and the rows answered."""
    setting, pick = scene.setting(), scene.decision().algorithm
    costs, rows = {}, 0
    for algorithm in candidates(setting):
        did = counted(scene, scene.decision(algorithm), setting, loads)
        costs[algorithm] = 1 / did.rate
        rows += did.rows
    return Chosen(str(scene), pick, costs), rows


def judge(some: Sequence[Scene], loads: int) -> Findings:
    """The verdict over scenes."""
    found = [chosen(scene, loads) for scene in some]
    choices = [one for one, _ in found]
    table = settings_table(choices, "Counted cost of all candidates", 1e6, "us a row")
    return judged(choices, "counted time a row", sum(rows for _, rows in found), [table])


def _run(bench: BenchContext) -> Findings:
    with typical_costs(bench.scratch):
        return judge(scenes(), LOADS[bench.scale])


EXPERIMENTS = (
    Experiment(
        name="models-semistream-choice",
        family="models",
        source="our own",
        places=("choice of semi-stream joins",),
        claim=(
            'The join that algorithm="auto" takes from its models serves the most rows a second of all that can run, '
            "each with its own tuned sizes, or within 10 % of it, in nine settings of ten."
        ),
        run=_run,
        measures=("engine", "joins/semistream", "bench/experiments/models"),
    ),
)
