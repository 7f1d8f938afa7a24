"""`python -m bench`: list the benchmarks, run them, and check what they claim."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dovetail.cli.main import ErrorGroup
from dovetail.errors import ConfigError, PlanError

if TYPE_CHECKING:
    from bench.case import Params
    from bench.catalogue import Entry
    from bench.harness import Report, Watch

os.environ.setdefault("DOVETAIL_CALIBRATE", "off")  # nothing else runs while a benchmark does
os.environ["PYTHONPATH"] = os.pathsep.join(  # Spark's workers, wherever they start, find what a benchmark sends them
    dict.fromkeys([str(Path(__file__).parents[1]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)
app = typer.Typer(
    cls=ErrorGroup, help="Compare joins and kernels with their rivals.", no_args_is_help=True, add_completion=False
)


class ScaleChoice(StrEnum):
    """How large the points of a case are."""

    small = "small"
    full = "full"


@app.command("list")
def list_cases() -> None:
    """Show every benchmark: what it varies, its rivals, what it claims."""
    from bench.catalogue import load_all
    from bench.report import entry_list

    Console().print(entry_list(load_all()))


@app.command("run")
def run_cases(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks to run; `python -m bench list` shows them.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Run every benchmark; at small scale without models-interval-exam, scale-out and speed-grid, which "
            "take long at any scale and run where they are named.",
        ),
    ] = False,
    scale: Annotated[ScaleChoice, typer.Option(help="Size of the points.")] = ScaleChoice.small,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the figures of each benchmark in this directory, for the page.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what --keep has figures of, at this scale and of today's code.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Warm runs of each rival; each case has its own number.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if a claim does not hold or was not measured.")
    ] = False,
) -> None:
    """Run benchmarks and experiments; exit 1 if an answer is wrong or one of them breaks. `online-*` names many."""
    from bench.catalogue import choose
    from bench.harness import exit_on_signals, run
    from bench.machine import usable_cores
    from bench.report import show
    from dovetail.pipeline.terminal import written

    if names and everything:
        raise PlanError(f"benchmarks {names} were named together with --all; give one or the other.")
    entries = choose(names or [], everything, scale.value)
    if resume:
        entries = _left(entries, scale.value, keep)
    if json_file is not None:
        _check_writable(json_file)
    console = written()
    with exit_on_signals(), _progress() as watch:
        report = run(
            entries, scale.value, rounds, watch, lambda so_far: _write(so_far, json_file, keep), usable_cores()
        )
    show(report, console)
    if json_file is not None:
        console.print(f"figures: {json_file}", highlight=False, soft_wrap=True)
    if report.failures or (check and report.broken_claims):
        raise typer.Exit(1)


def _left(entries: list[Entry], scale: str, keep: Path | None) -> list[Entry]:
    """The entries that are still to be run."""
    from bench.page import is_measured, kept

    if keep is None:
        raise PlanError("--resume needs --keep with the directory of the figures that are there already.")
    found = kept(keep) if keep.is_dir() else {}
    left = [entry for entry in entries if not is_measured(entry, found.get(entry.name, {}).get(scale))]
    Console(stderr=True).print(f"{len(entries) - len(left)} of {len(entries)} are measured; {len(left)} are left")
    return left


@app.command("plot")
def plot(
    figures: Annotated[list[Path], typer.Argument(help="Files that `run --json` wrote.")],
    to: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("figures"),
) -> None:
    """Draw the figures of runs: one SVG a case, and one a chart of an experiment."""
    from bench.chart import draw_file

    for file in figures:
        for picture in draw_file(file, to):
            Console().print(str(picture), highlight=False, soft_wrap=True)


@app.command("report")
def report_page(
    figures: Annotated[Path, typer.Option(help="Directory of kept figures.")] = Path("docs/experiments/figures"),
    to: Annotated[Path, typer.Option(help="Directory for the page.")] = Path("docs/experiments"),
    claims: Annotated[Path, typer.Option(help="File for the claims that do not hold.")] = Path("docs/reproduction.md"),
) -> None:
    """Write the page of all experiments and the list of claims that do not hold.

    Exit 1 if an entry failed, or is missing though it does not take long.
    """
    from bench.page import write_page
    from bench.reproduction import write_claims

    page, problems = write_page(figures, to)
    console = Console()
    console.print(f"claims: {write_claims(figures, claims)}", highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(f"[bold red]{escape(problem)}[/]", highlight=False, soft_wrap=True)
    console.print(f"page: {page}", highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Watch]:
    """Tells on the terminal, or in a log, what runs."""
    console = Console(stderr=True)
    with console.status("starting") as status:

        def watch(entry: Entry, at: Params, rival: str, step: str) -> None:
            line = f"{entry.name} {dict(at) or ''}: {rival}, {step}"
            status.update(line)
            if not console.is_terminal:  # a log, in which a spinner says nothing
                console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield watch


def _write(report: Report, path: Path | None, directory: Path | None) -> None:
    """After every entry, so that a crash in a later one does not take these figures with it."""
    from bench.page import keep

    if path is not None:
        path.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if directory is not None:
        keep(report, directory)


def _check_writable(path: Path) -> None:
    """Find out before an hour of measuring, not after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ConfigError(f"cannot write the figures to {path}: {error}. Choose another file for --json.") from error


if __name__ == "__main__":
    app(prog_name="python -m bench")
