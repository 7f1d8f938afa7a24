"""`dovetail calibrate`: measures the unit costs of this machine for the cost models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.calibrate.measure import Calibration
    from dovetail.engine.profile import Cost, Profile

app = typer.Typer()


@app.command()
def calibrate(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller measurements: less than half a minute.")
    ] = False,
    profile: Annotated[Path | None, typer.Option(help="File to keep the figures in; by default your profile.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Measure pages here; by default where joins spill.")] = None,
    spark: Annotated[bool, typer.Option(help="Also measure rows through Spark.")] = True,
) -> None:
    """Measure what pages, kernels and rows through Spark cost here; the cost models read the result."""
    console = Console()
    done = _measure(quick, directory, spark)
    console.print(_table(done.profile))
    for note in done.notes:
        console.print(f"note: {note}", style="yellow", highlight=False)
    console.print(f"kept in {done.profile.save(profile)}", highlight=False, soft_wrap=True)


def _measure(quick: bool, directory: Path | None, spark: bool) -> Calibration:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from dovetail.calibrate import unit_cost
    from dovetail.calibrate.measure import calibrate as measure

    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def watch(name: str, number: int, total: int) -> None:
            progress.update(task, description=name, completed=number, total=total)

        effort = unit_cost.QUICK if quick else unit_cost.THOROUGH
        return measure(effort, directory, with_spark=spark, watch=watch)


def _table(profile: Profile) -> Table:
    table = Table("unit", title=profile.explain(), title_justify="left")
    for heading in ("median", "quartiles", "samples"):
        table.add_column(heading, justify="right")
    for name, cost in _costs(profile):
        table.add_row(name, *_cells(cost))
    return table


def _costs(profile: Profile) -> Iterator[tuple[str, Cost]]:
    """Every cost of the profile with its name, in the profile's order."""
    from dataclasses import fields

    from dovetail.engine.memory import format_bytes
    from dovetail.engine.profile import Cost

    for field in fields(profile):
        value = getattr(profile, field.name)
        if isinstance(value, Cost):
            yield field.name, value
        elif field.name.startswith("page_"):
            yield from ((f"{field.name} {format_bytes(page.nbytes)}", page.cost) for page in value)


def _cells(cost: Cost) -> tuple[str, str, str]:
    from dovetail.calibrate.unit_cost import seconds

    if cost.samples == 0:
        return seconds(cost.seconds), "typical, not measured", "0"
    return seconds(cost.seconds), f"{seconds(cost.low)} - {seconds(cost.high)}", str(cost.samples)
