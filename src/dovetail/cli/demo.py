"""`dovetail demo`: the main job on generated data, in steps that show their progress and end with a summary."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from pyspark import StatusTracker

    from dovetail.cli.demo_steps import Demo

app = typer.Typer()


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Directory of the result.")] = Path("demo-output"),
    rows: Annotated[int, typer.Option(min=1, help="Orders to generate.")] = 20_000,
    memory: Annotated[str, typer.Option(help="Memory budget of the join in each task.")] = "16MB",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 7,
) -> None:
    """Generate a small shop, join its orders with promotions on Spark, and verify the result."""
    from dovetail.cli.demo_steps import Demo

    state = Demo(output, rows, memory, seed)
    console = Console()
    try:
        _run_steps(state)
    finally:
        state.close()
    console.print(_summary(state))
    console.print(f"result: {state.path('orders_in_promotion')}", highlight=False, soft_wrap=True)
    console.print(f"verified: {state.verified:,} rows equal", style="green", highlight=False)


def _run_steps(state: Demo) -> None:
    """Every step in turn, with a bar that follows the tasks that Spark runs for it."""
    from dovetail.cli.demo_steps import STEPS

    columns = (SpinnerColumn(finished_text="[green]ok"), TextColumn("{task.description:34}"), BarColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        for title, step in STEPS:
            bar = progress.add_task(title, total=None)
            with _following(state, progress, bar):
                step(state)
            progress.update(bar, total=1, completed=1)


@contextmanager
def _following(state: Demo, progress: Progress, bar: TaskID) -> Iterator[None]:
    done = threading.Event()

    def follow() -> None:
        while not done.wait(0.2):
            if state.running is not None:
                finished, total = _tasks(state.running.sparkContext.statusTracker())
                progress.update(bar, completed=finished, total=total or None)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Finished and all tasks of the stages that run now."""
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _summary(state: Demo) -> Table:
    table = Table("what", "value", title="Orders that fell into a promotion", title_justify="left", show_header=False)
    for name, value in state.summary:
        table.add_row(name, value)
    return table
