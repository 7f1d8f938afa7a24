"""`dovetail explain`: the graph of a pipeline with what every join would do, and how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
_LINE = 500
"""Longest line in a file or pipe: what a join says of itself is not cut there."""


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
    from dovetail.pipeline.explain import explained
    from dovetail.pipeline.file.read import read_pipeline
    from dovetail.pipeline.start import started_session
    from dovetail.pipeline.steps.build import build_lineage
    from dovetail.pipeline.terminal import written

    pipeline = read_pipeline(file, set_ or ())
    with started_session(pipeline) as spark:
        lineages = [build_lineage(spark, pipeline, sink, observe=False) for sink in pipeline.of("sink")]
        written(_LINE).print(explained(pipeline, lineages))
