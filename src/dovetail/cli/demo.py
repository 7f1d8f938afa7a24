"""`dovetail demo`: runs a shop's warehouse in near real time on generated data, and verifies every output."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dovetail.cli.demo_retail import Shop
    from dovetail.pipeline.run import Run

app = typer.Typer()
_PATIENCE_S = 300.0
"""A stream without rows for this long has ended; verification reports missing rows."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Directory of the pipeline, its work and its results.")] = Path(
        "demo-output"
    ),
    rows: Annotated[int, typer.Option(min=1, help="Orders, and as many shipments.")] = 40_000,
    products: Annotated[int, typer.Option(min=1, help="Products in the page file.")] = 400_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the orders take to arrive.")] = 8.0,
    memory: Annotated[str, typer.Option(help="Memory budget of a task that enriches orders.")] = "10MB",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 7,
    ui: Annotated[bool, typer.Option(help="Serve the live page while it runs.")] = True,
) -> None:
    """Run a shop's warehouse: all four families of joins on streams and files, watched live and verified at the end."""
    from dovetail.cli.demo_retail import Shop
    from dovetail.cli.run import freeze_page, serve_page
    from dovetail.pipeline.file.read import read_pipeline
    from dovetail.pipeline.run import Run, record_place, watch_of
    from dovetail.pipeline.start import started_session
    from dovetail.pipeline.terminal import summary, written

    shop = Shop(output.resolve(), rows, products, seconds, memory, seed)
    console = Console(stderr=True)
    shows = ui and importlib.util.find_spec("bokeh") is not None
    with ExitStack() as stack:
        stack.enter_context(shop.held())
        shop.write()
        pipeline = read_pipeline(shop.file, ())
        watch = watch_of(pipeline)
        serve_page(stack, watch, ("127.0.0.1", 0, None) if shows else None, console)
        spark = stack.enter_context(started_session(pipeline))
        _run(Run(spark, pipeline, watch, console=console), shop, console)
        watch.save(record_place(pipeline))
        verified = _verify(spark, shop, console)
    summary(watch, written())
    freeze_page(watch, output / "page.html" if shows else None, console)
    out = Console(highlight=False, soft_wrap=True)
    out.print(f"pipeline: {shop.file}\nresult: {shop.home / 'warehouse'}")
    out.print(f"verified: {sum(verified.values()):,} rows equal", style="green")


def _run(one: Run, shop: Shop, console: Console) -> None:
    """Run the pipeline until all rows of both streams are joined."""
    from dovetail.cli.run import showing, stopping_on_signals

    with stopping_on_signals(one), showing(one.watch, console), _ending(one, shop):
        one.go()


@contextmanager
def _ending(one: Run, shop: Shop) -> Iterator[None]:
    """End the run when its streams have produced all their rows, or when there is no progress."""
    over = threading.Event()

    def look() -> None:
        seen, since = -1.0, time.monotonic()
        while not over.wait(0.2):
            done = _rows_out(one, shop)
            if done != seen or one.watch.state == "starting":
                seen, since = done, time.monotonic()
            if done >= 2 * shop.rows:
                one.finish()
                return
            if time.monotonic() - since > _PATIENCE_S:
                one.stop()
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _rows_out(one: Run, shop: Shop) -> float:
    from dovetail.cli.demo_retail import STREAMED

    return sum(min(shop.rows, one.watch.latest(sink).get("rows_out", 0.0)) for sink in STREAMED)


def _verify(spark: SparkSession, shop: Shop, console: Console) -> dict[str, int]:
    """The number of rows of each sink, after they were found equal to those of Spark's own joins."""
    from dovetail.cli.demo_retail import SINKS, verify

    found: dict[str, int] = {}
    columns = (TextColumn("verify {task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(SINKS))
        for sink in SINKS:
            progress.update(bar, description=sink)
            found[sink] = verify(spark, shop, sink)
            progress.advance(bar)
    return found
