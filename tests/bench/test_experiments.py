"""Experiments: run, kept, shown on the page, and marked once their code has changed."""

import importlib
import inspect
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.case import SCALES, Bound, Case
from bench.experiment import (
    Chart,
    Experiment,
    Findings,
    Grid,
    Statement,
    by_column,
    close,
    extent,
    off,
    split,
    wave,
)
from bench.experiments.online.pauses import setting_of
from bench.expression import checked, filled
from bench.imports import code_digest, imported
from bench.page import write_page
from bench.rivals.postgres import NEEDED
from tests.bench.test_harness import rival

from bench import catalogue, harness, imports, machine, page
from dovetail.errors import DataError, PlanError

pytestmark = pytest.mark.sampled(3)  # its tests run experiments in processes of their own


def experiment(run=None, **options: object) -> Experiment:
    chart = Chart("Rate <by> size", "size", "rows/s", {"ours & theirs": [(1, 2.0), (2, 4.0)]}, log_y=True)
    grid = Grid("Sizes", ["size", "rows"], [[1, 2.0], ["<b>", None]])
    fields = {"claim": "It grows <fast>.", "places": ("figure 9",), "measures": ("engine/kernels",), **options}
    found = Findings((Statement("as told", "holds"),), "A note.", [chart], [grid], rows=12)
    run = run or (lambda bench: found)
    return Experiment(name="scale-x", source="some source", run=run, **fields)


def counting() -> Case:
    log: list[str] = []
    rivals = (rival("ours", log, seconds=2.0), rival("theirs", log, seconds=1.0))
    points = {"small": [{"n": 3}], "full": [{"n": 3}]}
    return Case("count", "Which counts?", ("n",), points, rivals, lambda bench, at: at["n"], "ours")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch):
    def become(*entries: Experiment | Case) -> None:
        found = {entry.name: entry for entry in entries}
        monkeypatch.setattr(catalogue, "load_all", lambda: found)
        monkeypatch.setattr("bench.page.load_all", lambda: found)

    return become


def test_page_shows_claim_verdict_picture_and_table(tmp_path: Path, known) -> None:
    entries = [experiment(), counting()]
    known(*entries)
    page.keep(harness.run(entries, "small", rounds=1), tmp_path / "figures")
    written, problems = write_page(tmp_path / "figures", tmp_path)
    text = written.read_text()
    assert problems == []
    assert "It grows &lt;fast&gt;." in text
    assert "<b>" not in text
    assert "<svg" in text
    assert "ours &amp; theirs" in text
    assert "12 rows checked" in text
    assert "holds</span>: as told." in text
    assert "A note." in text
    assert "stale:" not in text
    assert "<td>theirs</td><td>0.5</td>" in text  # a rival that wins, said plainly


def test_figures_older_than_their_code_are_stale(tmp_path: Path, known) -> None:
    known(experiment())
    page.keep(harness.run([experiment()], "small"), tmp_path)
    file = tmp_path / "scale-x.small.json"
    kept = json.loads(file.read_text())
    kept["entry"]["code"] = "of another day"
    file.write_text(json.dumps(kept))
    written, _ = write_page(tmp_path, tmp_path)
    assert "stale: the code has changed since" in written.read_text()


def test_figures_of_todays_code_are_shown_before_larger_ones_that_are_stale(tmp_path: Path, known) -> None:
    known(experiment())
    for scale in SCALES:
        page.keep(harness.run([experiment()], scale), tmp_path)
    assert "--scale full" in (text := write_page(tmp_path, tmp_path)[0].read_text())
    assert "--scale small" not in text
    file = tmp_path / "scale-x.full.json"
    file.write_text(file.read_text().replace('"code": "', '"code": "not '))
    assert "--scale small" in (text := write_page(tmp_path, tmp_path)[0].read_text())
    assert "--scale full" not in text
    assert "stale:" not in text


def test_cases_are_shown_at_all_scales(tmp_path: Path, known) -> None:
    known(counting())
    for scale in SCALES:
        page.keep(harness.run([counting()], scale, rounds=1), tmp_path)
    text = write_page(tmp_path, tmp_path)[0].read_text()
    assert all(f"--scale {scale}" in text for scale in SCALES)
    assert "1 entries" in text


def test_broken_experiment_is_a_failure_of_the_run_and_of_the_page(tmp_path: Path, known) -> None:
    def broken(bench: object) -> Findings:
        raise ValueError("7 rows differ")

    known(experiment(broken))
    report = harness.run([experiment(broken)], "small")
    assert report.failures == ["scale-x: ValueError: 7 rows differ"]
    page.keep(report, tmp_path)
    _, problems = write_page(tmp_path, tmp_path)
    assert problems == ["scale-x failed: ValueError: 7 rows differ"]


def test_experiment_without_figures_is_named(tmp_path: Path, known) -> None:
    known(experiment(), counting())
    page.keep(harness.run([counting()], "small", rounds=1), tmp_path)
    assert write_page(tmp_path, tmp_path)[1] == ["scale-x has no figures"]


def test_what_takes_long_may_have_no_figures_and_the_page_says_so(tmp_path: Path, known, monkeypatch) -> None:
    """`make bench` leaves it out, and must not fail for that."""
    known(experiment(), counting())
    page.keep(harness.run([counting()], "small", rounds=1), tmp_path)
    monkeypatch.setattr(page, "LONG", ("scale-x",))
    written, problems = write_page(tmp_path, tmp_path)
    assert problems == []
    assert "Not measured: <code>scale-x</code>." in written.read_text()
    page.keep(harness.run([experiment()], "small"), tmp_path)
    assert "Not measured" not in write_page(tmp_path, tmp_path)[0].read_text()


def test_no_figures_and_foreign_files(tmp_path: Path, known) -> None:
    known(experiment())
    with pytest.raises(DataError, match="holds no kept figures; make some"):
        write_page(tmp_path, tmp_path)
    (tmp_path / "a.json").write_text('{"format": 0, "kind": "cases", "entry": {}}')
    with pytest.raises(DataError, match="another format"):
        write_page(tmp_path, tmp_path)


def test_missing_package_fails_the_experiment() -> None:
    report = harness.run([experiment(requires=("no_such_module",))], "small")
    assert report.failures == ["scale-x: not installed: no_such_module"]


@pytest.mark.parametrize("kind", ["line", "bar", "heat"])
def test_same_figures_draw_the_same_picture(kind: str) -> None:
    from bench.chart import draw

    points = [(1, 10, 0.5), (2, 10, 0.7), (1, 20, 0.1), (2, 20, 0.3)]
    chart = Chart("t", "x", "y", {"a": points}, kind=kind)
    assert draw(chart) == draw(chart)
    assert draw(chart).startswith("<svg")


def test_experiments_cannot_be_built_wrong() -> None:
    for name in ("other-x", "x"):
        with pytest.raises(PlanError, match=f"'{name}' must be named after its family"):
            Experiment(name, (), "c", lambda bench: Findings())
    with pytest.raises(PlanError, match="has 2 columns, but a row of 1"):
        Grid("t", ["a", "b"], [[1]])


def test_source_and_measured_code_follow_from_the_family() -> None:
    made = Experiment("online-x", (), "c", lambda bench: Findings())
    assert made.source == "Bornea 2010"
    known = catalogue.load_experiments()
    assert "bench.experiments.online.pauses:counted" in known["online-pauses"].measures
    assert "bench.experiments.semistream.sweeps:measured" in known["semistream-disk-master-rate"].measures


def test_a_figure_depends_on_what_its_module_imports() -> None:
    counted = imported("bench.experiments.online.pauses", "counted")
    assert {"bench.experiments.online.pausing", "dovetail.joins.online.operators.diner"} <= set(counted)
    assert not [name for name in counted if "interval.operators" in name or ".spark" in name or "secrets" in name]
    assert not [name for name in counted if "online.api" in name or "online.plan" in name]
    simulated = imported("bench.experiments.semistream.sweeps", "counted")
    assert "dovetail.joins.semistream.operators.hybridjoin" in simulated
    assert "dovetail.joins.semistream.master.redis" not in simulated
    assert "dovetail.joins.semistream.master.redis" in imported("bench.experiments.semistream.sweeps", "measured")


def test_figures_are_stale_by_the_modules_that_they_import_and_not_by_others(tmp_path, monkeypatch) -> None:
    """A copy of the sources is edited: once where a case and an experiment never look, once in what both use."""
    for name, root in (("PACKAGE", imports.PACKAGE), ("BENCH", imports.BENCH)):
        copied = shutil.copytree(root, tmp_path / root.name, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(imports, name, copied)
    entries = {name: catalogue.load_all()[name] for name in ("asof", "scale-xquery", "rivals-short-memory-xquery")}

    def digests(edited: str) -> dict[str, str]:
        if edited:
            source = tmp_path / edited
            source.write_text(source.read_text() + ("\nedited = 1\n" if source.suffix == ".py" else "\n// edited\n"))
        imports._imports_of.cache_clear()
        machine._digest_of.cache_clear()
        return {name: machine.digest(entry.measures) for name, entry in entries.items()}

    before = digests("")
    changed = {}
    for source in (
        "dovetail/joins/sets/kernels/coverage.py",
        "dovetail/cli/doctor.py",
        "bench/cases/kernels.py",
        "dovetail/joins/asof/operator.py",
        "dovetail/xml/scan/scanner.py",
        "dovetail/spark/hosts/batch.py",
        "dovetail/spark/daemon.py",
        "dovetail/spark/catalyst/Bins.scala",
    ):
        assert (tmp_path / source).is_file()
        after = digests(source)
        changed[Path(source).stem] = {name for name in before if before[name] != after[name]}
        before = after
    imports._imports_of.cache_clear()
    machine._digest_of.cache_clear()
    queries = {"scale-xquery", "rivals-short-memory-xquery"}
    assert changed == {
        "coverage": set(), "doctor": set(), "kernels": set(), "operator": {"asof"}, "scanner": queries,
        **{name: {"asof", *queries} for name in ("batch", "daemon", "Bins")},
    }  # fmt: skip


def test_modules_that_are_imported_late_or_by_name_count(tmp_path, monkeypatch) -> None:
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(imports, "BENCH", tmp_path / "bench")
    (tmp_path / "bench" / "made.py").write_text(
        '"""Unlike bench.other."""\nimport dovetail\n\ndef run():\n    from dovetail.xml.api import xquery\n'
        '    command = "python -m dovetail.spark.warm"\n    return dovetail.asof_join\n'
    )
    imports._imports_of.cache_clear()
    found = imported("bench.made", "measured")
    imports._imports_of.cache_clear()
    assert {"dovetail.xml.api", "dovetail.spark.warm", "dovetail.joins.asof.api"} <= set(found)
    assert "dovetail.joins.sets.api" not in found


def test_what_calls_every_function_depends_on_all() -> None:
    found = imported("bench.cases.demonstration", "measured")
    assert {"dovetail.joins.sets.api", "dovetail.joins.asof.api", "dovetail.cli.demo", "dovetail.functions"} <= set(
        found
    )


def test_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    texts = (
        "def f():\n    return 1\n",
        '"""Says."""\n\n\ndef f():\n    """One."""\n    return 1  # why\n',
        "def f():\n    return 2\n",
    )
    found = []
    for number, text in enumerate(texts):
        (file := tmp_path / f"{number}.py").write_text(text)
        found.append(code_digest(file))
    assert found[0] == found[1] != found[2]


def test_tables_are_rounded_and_drawn_by_column() -> None:
    grid = by_column("t", "x", [1, 2], {"a": [0.123456, 10.0], "b": [None, 3]})
    assert grid.rows == ((1, 0.1235, None), (2, 10.0, 3))
    assert grid.chart("y").lines == {"a": [(1, 0.1235), (2, 10.0)], "b": [(1, 0), (2, 3)]}
    assert grid.chart("y", {"only": 2}, log_x=True) == Chart("t", "x", "y", {"only": [(1, 0), (2, 3)]}, log_x=True)


def test_a_claim_holds_if_all_of_its_statements_that_were_tested_do() -> None:
    yes, no, untested = (Statement.of(("a is 1", holds)) for holds in (True, False, None))
    assert Findings((yes, untested)).verdict == "holds"
    assert Findings((yes, no)).verdict == "does not hold"
    assert Findings((untested,)).verdict == Findings().verdict == "not tested here"
    assert Statement.of(("an array said so", np.bool_(True))).verdict == "holds"  # type: ignore[arg-type]  # as comparisons give


def test_a_statement_that_does_not_hold_says_whose_fault_it_is() -> None:
    assert (
        Statement.of(("it is fast", False), "scale: two cores").explain() == " (the scale here): it is fast. Two cores."
    )
    assert Statement.of(("it is fast", False)).explain() == " (unexplained): it is fast."
    assert Statement.of(("it is fast", True), "scale: two cores").explain() == ": it is fast."
    with pytest.raises(PlanError, match=r"must begin with one of \['source', 'ours', 'scale'\]"):
        Statement.of(("it is fast", False), "two cores")


def test_every_fault_in_the_tables_is_one_of_the_three() -> None:
    for entry in catalogue.load_experiments().values():
        judge = entry.run.judge
        own = [state[3] for state in judge.states if not isinstance(state, str) and len(state) == 4]
        for fault in filter(None, [judge.fault, *own]):
            for text in [fault] if isinstance(fault, str) else [text for _, text in fault]:
                assert text.startswith(("source: ", "ours: ", "scale: ")), (entry.name, text)


def test_reasons_why_claims_of_sources_do_not_hold_have_conditions() -> None:
    """A reason explains figures of some size, and is not said of others."""
    for entry in catalogue.load_experiments().values():
        judge = entry.run.judge
        own = [state[3] for state in judge.states if not isinstance(state, str) and len(state) == 4]
        for fault in filter(None, [judge.fault, *own]):
            assert entry.source == "our own" or not isinstance(fault, str), (entry.name, fault)
            for condition, text in [] if isinstance(fault, str) else fault:
                checked(condition)
                checked(filled(text))


def test_pauses_have_the_source_s_size_at_full_scale() -> None:
    from bench.context import BenchContext

    with BenchContext("full") as bench:
        rows, setting, pauses = setting_of(bench)
    assert (rows, setting.memory, setting.block, setting.max_new) == (100_000, 10_000, 50, 1_000)
    assert pauses == (10, 20, 30, 40, 50)


def test_figures_are_split_into_those_that_fit_and_those_that_do_not() -> None:
    assert split("at most 2", {"a": 1.0, "b": 3.0}, 2) == [("at most 2 (a 1.00)", True), ("at most 2 (b 3.00)", False)]
    assert split("at least 2", {"a": 1.0}, least=2) == [("at least 2 (a 1.00)", False)]
    assert split("nothing", {}, 2) == []


def test_claims_on_speed_and_memory_are_on_the_page_and_counted(tmp_path: Path, known) -> None:
    """Also those that speak of another scale, unless that one is there."""
    bounds = (Bound("twice", "ours", 1.0, against="theirs"), Bound("at full size", "ours", 3.0, scale="full"))
    entry = replace(counting(), bounds=bounds)
    known(entry)
    page.keep(harness.run([entry], "small", rounds=1), tmp_path)
    text = write_page(tmp_path, tmp_path)[0].read_text()
    assert "1 entries, 2 claims: 1 does not hold, 1 not tested here" in text
    assert "it speaks of full scale" in text
    assert "does not hold</span> (our code): twice" in text
    assert "<td> (our code): twice" in text.partition("What does not hold</h2>")[2]
    page.keep(harness.run([entry], "full", rounds=1), tmp_path)
    text = write_page(tmp_path, tmp_path)[0].read_text()
    assert "1 entries, 3 claims: 2 does not hold, 1 holds" in text


def test_figures_that_are_close_or_rise_and_fall() -> None:
    assert close("w", 102, 100, 0.03)[1]
    assert not close("w", 97, 100, 0.02)[1]
    assert wave([1, 2, 3, 2.5])
    assert not wave([1, 2, 3])
    assert not wave([3, 2, 3, 1])
    assert wave([1, 2, 1.995, 3, 2], tolerance=0.01)
    assert off(200, 190) == 0.05
    assert (extent([1.0, 2.0]), extent([2.0, 2.0])) == ("1.00 to 2.00", "2.00")


def test_names_with_a_star(known) -> None:
    known(experiment(), counting())
    assert [entry.name for entry in catalogue.choose(["scale-*"])] == ["scale-x"]
    with pytest.raises(PlanError, match="there is no benchmark 'online-\\*'"):
        catalogue.choose(["online-*"])


def test_no_table_asks_for_names_that_expressions_refuse() -> None:
    files = sorted((machine.BENCH / "experiments").glob("*.toml"))
    found = [f"{file.name}: {name}" for file in files for name in re.findall(r"\.(_\w+)", file.read_text())]
    assert files
    assert not found, "a table breaks when it is judged, after its run: an expression may not ask for these names"


def test_figures_are_stale_by_their_own_table_and_not_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "bench" / "experiments" / "online.toml"
    tables.parent.mkdir(parents=True)
    monkeypatch.setattr("bench.machine.BENCH", tmp_path / "bench")
    digests = []
    for zipf, star in (("a", "b"), ("a", "c"), ("d", "c")):
        tables.write_text(f'[online-zipf]\nclaim = "{zipf}"\n[online-star]\nclaim = "{star}"\n')
        machine._digest_of.cache_clear()
        digests.append(machine.digest(["bench/experiments/online.toml#online-zipf"]))
    machine._digest_of.cache_clear()
    assert digests[0] == digests[1] != digests[2]


def test_every_entry_of_the_catalogue_measures_code_that_exists() -> None:
    from bench.machine import digest

    for entry in catalogue.load_all().values():
        assert entry.measures
        assert digest(entry.measures)


def test_counted_experiments_run_in_processes_of_their_own_and_come_first() -> None:
    """Two families in two processes; what they find is what they find alone."""
    names = ("interval-memory-tuples", "semistream-mesh-memory-split", "semistream-r-mesh-tables", "semistream-mesh-io")
    chosen = catalogue.choose(names)
    log: list[str] = []
    entries = [experiment(lambda bench: Findings(), ground="measured"), *chosen]
    report = harness.run(entries, "small", watch=lambda entry, *_: log.append(entry.name), at_once=2)
    assert report.failures == []
    found = {result.experiment.name: result for result in report.experiments}
    assert list(found)[-1] == log[-1] == "scale-x"
    assert set(log) == {*names, "scale-x"}
    alone = harness.run(chosen, "small")
    for result in alone.experiments:
        other = found[result.experiment.name]
        assert (other.findings, other.code, other.scale) == (result.findings, result.code, "small")
        assert other.seconds > 0


def test_what_another_process_cannot_run_is_a_failure() -> None:
    report = harness.run(
        [experiment(ground="counted")], "small", at_once=2
    )  # the other process knows no such experiment
    assert report.failures == ["scale-x: KeyError: 'scale-x'"]


def test_lanes_take_whole_families_and_then_what_another_would_do_last() -> None:
    def named(family: str, number: int) -> Experiment:
        return Experiment(f"{family}-{number}", (), "c", lambda bench: Findings())

    waiting = harness._Waiting([named("online", 1), *(named("scale", n) for n in (1, 2, 3))], 2)
    taken = [found.name for number in (0, 1, 0, 1) if (found := waiting.next(number)) is not None]
    assert taken == ["online-1", "scale-1", "scale-3", "scale-2"]
    assert [waiting.next(number) for number in (0, 1)] == [None, None]


def test_every_experiment_names_a_function_that_takes_what_it_is_told() -> None:
    for entry in catalogue.load_experiments().values():
        module, _, name = entry.run.function.rpartition(".")
        inspect.signature(getattr(importlib.import_module(module), name)).bind(None, **entry.run.told)


def test_a_table_makes_an_experiment_for_each_place_where_it_runs() -> None:
    table = {"run": "rates.swept", "claim": "c", "places": ["figure 1"], "requires": ["numpy"], "with": {"note": "n"}}
    made = list(catalogue._described("semistream-x", on=["simulated", "disk", "database"], **table))
    assert [one.name for one in made] == ["semistream-x", "semistream-disk-x", "semistream-database-x"]
    assert [one.ground for one in made] == ["counted", "measured", "measured"]
    assert [one.requires for one in made] == [("numpy",), ("numpy",), (*NEEDED, "numpy")]
    assert {one.places for one in made} == {("figure 1",)}
    (plain,) = catalogue._described("scale-x", run="paper.bills", claim="c", ground="measured")
    assert (plain.name, plain.ground, plain.run.medium) == ("scale-x", "measured", None)
