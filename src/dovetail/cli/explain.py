"""`dovetail explain`: the graph of a pipeline with what every join would do, and how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="The pipeline file, in TOML.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE in place of the file's: join.enriched.memory=20MB.")
    ] = None,
) -> None:
    """Show the graph of a pipeline, the choice of every join, its memory split and its predicted service rate.

    Planning batch inputs runs small jobs over samples of them, and page files that are missing are built.
    """
    from dovetail.pipeline.build import build_lineage
    from dovetail.pipeline.explain import explained
    from dovetail.pipeline.read import read_pipeline
    from dovetail.pipeline.start import started_session

    pipeline = read_pipeline(file, set_ or ())
    with started_session(pipeline) as spark:
        lineages = [build_lineage(spark, pipeline, sink, observe=False) for sink in pipeline.of("sink")]
        Console(soft_wrap=True, highlight=False).print(explained(pipeline, lineages))
