"""`dovetail xquery`: runs a query over XML files, or shows its plan or its time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dovetail.xml.plan import XQueryPlan

app = typer.Typer()
RUNS, TIMED = 5, 3
"""The protocol of the source: each query five times, and the mean of the last three."""


class OutputChoice(StrEnum):
    """The format of the result."""

    text = "text"
    json = "json"
    parquet = "parquet"


@app.command()
def xquery(
    query: Annotated[str, typer.Argument(help="The query, or a file that holds it.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: where a collection lies; a directory, file or glob.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plans instead of running the query.")] = False,
    timed: Annotated[
        bool, typer.Option("--time", help="Run the query five times and print the mean of the last three.")
    ] = False,
    output: Annotated[OutputChoice, typer.Option(help="Form of the answer.")] = OutputChoice.text,
    to: Annotated[Path | None, typer.Option(help="Where the answer goes; parquet needs a directory.")] = None,
    skip: Annotated[bool, typer.Option("--skip-malformed", help="Leave malformed files out.")] = False,
    partitions: Annotated[int | None, typer.Option(min=1, help="Tasks that read a collection.")] = None,
    memory: Annotated[str, typer.Option(help="What one task may use to scan, or to hold.")] = "64MB",
    context: Annotated[Path | None, typer.Option(help="An XML file: the context item of the query.")] = None,
    document: Annotated[
        list[str] | None, typer.Option(help="A file or directory that doc() may open beside the collections.")
    ] = None,
) -> None:
    """Answer an XQuery query over collections of XML files, in parallel on Spark."""
    if output == OutputChoice.parquet and to is None and not (explain or timed):
        raise PlanError("--output parquet needs --to DIRECTORY.", argument="to")
    from dovetail.spark.session import quiet_session
    from dovetail.xml.api import plan_xquery

    text, places = _text(query), _places(collection or [])
    spark, owned = quiet_session("dovetail xquery")
    try:
        plan = plan_xquery(
            spark, text, places, on_error="skip" if skip else "fail", partitions=partitions, memory=memory,
            context=context, documents=document or (),
        )  # fmt: skip
        _run(plan, explain, timed, output, to)
    finally:
        if owned:
            spark.stop()


def _text(query: str) -> str:
    """The query itself, or the content of the file of this name."""
    try:
        is_file = "\n" not in query and Path(query).is_file()
    except OSError:  # a query may be too long for a file's name
        is_file = False
    return Path(query).read_text(encoding="utf-8") if is_file else query


def _places(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, place = one.partition("=")
        if not equals or not place:
            raise PlanError(
                f"--collection {one!r} is not NAME=PATH; write for example /sensors=data/weather/sensors.",
                argument="collection",
            )
        found[name] = place
    return found


def _run(plan: XQueryPlan, explain: bool, timed: bool, output: OutputChoice, to: Path | None) -> None:
    if explain:
        typer.echo(plan.explain())
        return
    if timed:
        _time(plan)
    else:
        _write(plan.frame(), output, to)
    skipped = plan.metrics().as_dict().get("skipped files", 0)
    if skipped:
        typer.echo(f"{skipped} malformed file(s) skipped", err=True)


def _time(plan: XQueryPlan) -> None:
    """Seconds from the plan to the last item on the driver."""
    seconds, rows = [], 0
    for _ in range(RUNS):
        began = time.perf_counter()
        rows = sum(1 for _ in _items(plan.frame()))
        seconds.append(time.perf_counter() - began)
    mean = sum(seconds[-TIMED:]) / TIMED
    typer.echo(f"{mean:.3f} s (mean of the last {TIMED} of {RUNS} runs: {', '.join(f'{s:.3f}' for s in seconds)})")
    typer.echo(f"{rows} items")


def _write(frame: DataFrame, output: OutputChoice, to: Path | None) -> None:
    if output == OutputChoice.parquet:
        frame.write.parquet(str(to))
        return
    lines = (json.dumps(item) if output == OutputChoice.json else item for item in _items(frame))
    if to is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with to.open("w", encoding="utf-8") as target:
        target.writelines(f"{line}\n" for line in lines)


def _items(frame: DataFrame) -> Iterator[str]:
    """The items in the order of the query, a partition at a time."""
    rows: Any = frame.toArrow().column("item")
    return (item.as_py() for item in rows)
