"""`python -m bench`: listing, running, JSON, and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.__main__ import app
from bench.case import Bound, Case, Outcome, Rival
from typer.testing import CliRunner

from bench import catalogue

runner = CliRunner()


def counting(answer: int, seconds: float) -> object:
    @contextmanager
    def prepare(bench: object, params: object) -> Iterator[object]:
        yield lambda: Outcome(answer, seconds)

    return prepare


def counts(answer: int = 3, slow: float = 1.0) -> Case:
    return Case(
        name="counts",
        question="Which counts fastest?",
        varies=("n",),
        points={"small": [{"n": 3}], "full": [{"n": 3}]},
        rivals=(Rival("ours", counting(answer, slow)), Rival("theirs", counting(3, 1.0))),
        expected=lambda bench, params: 3,
        baseline="theirs",
        bounds=(Bound("no slower", "ours", 1.0, against="theirs"),),
    )


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch):
    return lambda case: monkeypatch.setattr(catalogue, "load_all", lambda: {case.name: case})


def test_list_shows_what_exists() -> None:
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 0
    assert "zipf" in result.stdout
    assert "rivals dovetail, numpy choice" in result.stdout


def test_run_prints_figures_and_writes_json(only, tmp_path: Path) -> None:
    only(counts())
    file = tmp_path / "new" / "figures.json"
    result = runner.invoke(app, ["run", "counts", "--rounds", "2", "--json", str(file)])
    assert result.exit_code == 0
    assert "holds" in result.stdout
    data = json.loads(file.read_text())
    assert [sample["round"] for sample in data["cases"][0]["points"][0]["rivals"][0]["samples"]] == [0, 1, 2]


def test_a_wrong_answer_is_exit_code_1(only) -> None:
    only(counts(answer=4))
    result = runner.invoke(app, ["run", "--all", "--rounds", "1"])
    assert result.exit_code == 1
    assert "FAILED counts (n=3): ours wrong: answered 4, expected 3" in result.stdout


def test_a_claim_fails_the_run_only_when_it_is_checked(only) -> None:
    only(counts(slow=2.0))
    arguments = ["run", "--all", "--rounds", "1"]
    assert runner.invoke(app, arguments).exit_code == 0
    assert runner.invoke(app, [*arguments, "--check"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no benchmark 'nothing'"),
        ([], "no benchmark was named"),
        (["zipf", "--all"], "together with --all"),
        (["zipf", "--json", "/dev/null/x.json"], "cannot write the figures"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, ["run", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [["online-zipf", "semistream-position-skew"], ["semistream-disk-mesh-memory"]])
def test_a_run_that_is_told_to_end_leaves_nothing_behind(names: list[str], tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "bench", "run", *names]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        asked, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as run:
        patience = time.monotonic() + 60
        while not list(tmp_path.glob("dovetail-bench-*")) and time.monotonic() < patience:
            time.sleep(0.05)
        time.sleep(0.5)
        assert list(tmp_path.glob("dovetail-bench-*"))
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("dovetail-*"))
    patience = time.monotonic() + 60
    while any_left(run.pid) and time.monotonic() < patience:  # a tracker of semaphores ends a little later
        time.sleep(0.05)
    assert not any_left(run.pid)


def any_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
