"""The local host: repeatable interleavings, pauses that reach the operator, and checks of the operator itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.engine.clock import RealClock, VirtualClock
from dovetail.engine.host import Pause, Schedule, run_local
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorBase, OperatorError, Until
from dovetail.errors import PlanError

SCHEMA = pa.schema({"side": pa.string(), "n": pa.int64()})


@dataclass(frozen=True, slots=True)
class Tagged:
    """Gives every row back with its side's name; remembers what it was asked, and fails where told to."""

    sides: tuple[str, ...] = ("a", "b")
    fail_on: int | None = None
    leak: bool = False
    lie: bool = False
    work: int = 0
    log: list[str] = field(default_factory=list)

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> _Tagging:
        return _Tagging(self, budget)

    def explain(self) -> str:
        return "Tagged"


class _Tagging(OperatorBase):
    def __init__(self, spec: Tagged, budget: MemoryBudget) -> None:
        super().__init__(SCHEMA, budget)
        self.spec = spec
        self.rows = budget.reserve("rows") if spec.leak else self.own(budget.reserve("rows"))

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for n in batch.column("n").to_pylist():
            if n == self.spec.fail_on:
                raise KeyError(n)
            self.rows.grow(8)
            self.spec.log.append(f"{side}{n}")
            yield pa.record_batch([[side], [n]], names=["x", "n"] if self.spec.lie else ["side", "n"])

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        done = 0
        while done < self.spec.work and not until():
            done += 1
        self.spec.log.append(f"idle{done}")
        return iter(())

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.spec.log.append("finish")
        yield pa.record_batch([["end"], [self.rows.used]], names=["side", "n"])

    def close(self) -> None:
        self.spec.log.append("close")
        super().close()


def numbers(*values: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": [value]}) for value in values]


def order(schedule: Schedule, **inputs: list[pa.RecordBatch | Pause]) -> list[str]:
    spec = Tagged(tuple(inputs), work=99)
    list(run_local(spec, inputs, 1000, schedule, schemas=dict.fromkeys(inputs, SCHEMA)))
    return spec.log


def test_fixed_orders() -> None:
    sides = {"a": numbers(1, 2, 3), "b": numbers(1), "c": numbers(1, 2)}
    end = ["finish", "close"]
    assert order(Schedule("sequential"), **sides) == ["a1", "a2", "a3", "b1", "c1", "c2", *end]
    assert order(Schedule("round_robin"), **sides) == ["a1", "b1", "c1", "a2", "c2", "a3", *end]


def test_random_orders_repeat_by_seed_and_keep_each_side_in_order() -> None:
    sides = {"a": numbers(*range(20)), "b": numbers(*range(20))}
    runs = [order(Schedule(seed=seed), **sides) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    for run in runs:
        assert [step for step in run if step[0] == "a"] == [f"a{n}" for n in range(20)]
        assert [step for step in run if step[0] == "b"] == [f"b{n}" for n in range(20)]


def test_weights_favour_a_side() -> None:
    sides = {"a": numbers(*range(30)), "b": numbers(*range(30))}
    run = order(Schedule(weights=(("a", 50.0),)), **sides)
    assert sum(step[0] == "a" for step in run[:30]) > 25


def test_operator_is_idle_only_while_every_side_is_silent() -> None:
    spec = Tagged(work=3)
    clock = VirtualClock()
    sides = {"a": [*numbers(1), Pause(5), *numbers(2)], "b": [Pause(2), *numbers(1), Pause(9)]}
    list(run_local(spec, sides, 1000, Schedule("round_robin", poll_s=0.5), clock=clock))
    assert spec.log == ["a1", "idle3", "b1", "idle3", "a2", "idle3", "finish", "close"]
    assert clock.now_ns() == 11 * 10**9


def test_input_that_comes_back_interrupts_idle_work() -> None:
    spec = Tagged(work=1000)
    sides = {"a": [Pause(1), *numbers(1)], "b": [Pause(3)]}
    list(run_local(spec, sides, 1000, Schedule(poll_s=0.1), schemas={"b": SCHEMA}))
    assert spec.log == ["idle9", "a1", "idle19", "finish", "close"]


def test_random_pauses_repeat_by_seed() -> None:
    sides = {"a": numbers(*range(20)), "b": numbers(*range(20))}
    schedule = Schedule(seed=3, pause_chance=0.3, pause_s=0.01, poll_s=0.001)
    run = order(schedule, **sides)
    assert run == order(schedule, **sides)
    assert 3 < run.count("idle9") < 25
    assert order(Schedule(pause_chance=1.0, pause_s=0.0), a=numbers(1, 2), b=[], c=numbers(1)).count("idle0") == 0


def test_pauses_on_the_real_clock_take_real_time() -> None:
    clock = RealClock()
    before = clock.now_ns()
    list(run_local(Tagged(("a",)), {"a": [*numbers(1), Pause(0.02)]}, 1000, clock=clock))
    assert clock.now_ns() - before >= 20_000_000


def test_answers_as_a_table_with_metrics_and_schema() -> None:
    run = run_local(Tagged(), {"a": pa.table({"n": [1, 2]}), "b": pa.table({"n": [7]}).to_reader()}, "1KB")
    assert run.table().sort_by("n").to_pydict() == {"side": ["a", "a", "b", "end"], "n": [1, 2, 7, 24]}
    assert run.schema == SCHEMA
    assert run.metrics.as_dict() == {"memory_peak": 24}
    assert run.budget.used == 0


def test_the_operator_is_closed_after_its_own_failure() -> None:
    spec, budget = Tagged(fail_on=2), MemoryBudget(100)
    with pytest.raises(KeyError):
        list(run_local(spec, {"a": numbers(1, 2, 3), "b": numbers()}, budget, schemas={"b": SCHEMA}))
    assert spec.log == ["a1", "close"]
    assert budget.used == 0


def test_the_operator_is_closed_after_a_failing_input() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from numbers(1)
        raise OSError("source gone")

    spec = Tagged(("a",))
    with pytest.raises(OSError, match="source gone"):
        list(run_local(spec, {"a": broken()}, 100))
    assert spec.log == ["a1", "close"]


def test_the_operator_is_closed_when_the_caller_stops_early() -> None:
    spec, budget = Tagged(("a",)), MemoryBudget(100)
    with closing(run_local(spec, {"a": numbers(1, 2)}, budget)) as run:
        next(run)
    assert spec.log[-1] == "close"
    assert budget.used == 0
    unused = Tagged(("a",))
    run_local(unused, {"a": numbers(1)}, budget).close()
    assert unused.log == ["close"]


def test_a_leaking_operator_is_found_out() -> None:
    with pytest.raises(OperatorError, match=r"still holds 8 bytes.*'rows': 8"):
        list(run_local(Tagged(("a",), leak=True), {"a": numbers(1)}, 100))


def test_an_operator_that_lies_about_its_schema_is_found_out() -> None:
    with pytest.raises(OperatorError, match="announced"):
        list(run_local(Tagged(("a",), lie=True), {"a": numbers(1)}, 100))


def test_wrong_requests() -> None:
    with pytest.raises(PlanError, match=r"inputs are \['a', 'x'\]; this join takes \['a', 'b'\]"):
        run_local(Tagged(), {"a": numbers(1), "x": numbers(1)}, 100)
    with pytest.raises(PlanError, match="input 'b' has no batch"):
        run_local(Tagged(), {"a": numbers(1), "b": [Pause(1)]}, 100)
    for wrong in ({"order": "chaos"}, {"pause_chance": 2.0}, {"poll_s": 0.0}, {"weights": (("a", 0.0),)}):
        with pytest.raises(PlanError):
            Schedule(**wrong)  # type: ignore[arg-type]  # wrong values are what is tested
    with pytest.raises(PlanError, match="pause"):
        Pause(-1)
