"""`dovetail check`: finds all problems of a pipeline file, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The pipeline file, in TOML.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE in place of the file's: join.enriched.memory=20MB.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Check the text alone: no Spark, no files, no servers.")] = False,
) -> None:
    """Check a pipeline: first its text, then columns, files and servers; no Spark job is started.

    Exit codes: 0 when it is right, 1 when it has problems, 2 when it could not be checked.
    """
    from dovetail.pipeline.file.problems import PipelineError
    from dovetail.pipeline.file.read import read_pipeline

    try:
        pipeline = read_pipeline(file, set_ or ())
    except PipelineError as error:
        raise _failed(str(error).splitlines()) from None
    if not text:
        from dovetail.pipeline.check import check_pipeline
        from dovetail.pipeline.start import started_session

        try:
            with started_session(pipeline) as spark:
                problems = check_pipeline(spark, pipeline)
        except PipelineError as error:
            raise _failed(str(error).splitlines()) from None
        if problems:
            raise _failed([problem.shown(str(file)) for problem in problems])
    counts = {kind: len(pipeline.of(kind)) for kind in ("source", "master", "join", "sink")}
    shown = ", ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in counts.items() if n)
    typer.echo(f"{file}: {shown}: {'the text is' if text else 'all'} right")


def _failed(lines: list[str]) -> typer.Exit:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for line in lines:
        console.print(line)
    return typer.Exit(1)
