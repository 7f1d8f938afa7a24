"""`dovetail explain`: shows the graph of a pipeline, and the plan and predicted rate of every join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:
    from dovetail.pipeline.file.declared import Pipeline, Step
    from dovetail.pipeline.steps.build import Lineage

app = typer.Typer()
_LINE = 500
"""Width of the output in a file or pipe, so that explanations are not cut there."""


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
    from dovetail.pipeline.file.read import read_pipeline
    from dovetail.pipeline.start import started_session
    from dovetail.pipeline.steps.build import build_lineage
    from dovetail.pipeline.terminal import written

    pipeline = read_pipeline(file, set_ or ())
    with started_session(pipeline) as spark:
        lineages = [build_lineage(spark, pipeline, sink, observe=False) for sink in pipeline.of("sink")]
        written(_LINE).print(explained(pipeline, lineages))


def explained(pipeline: Pipeline, lineages: list[Lineage]) -> Tree:
    """A tree with a branch for each sink, from the sink back to its sources; each step is shown once."""
    mask = pipeline.secrets.masked
    tree = Tree(Text(f"{pipeline.name} ({pipeline.path.name})", style="bold"))
    shown: set[str] = set()
    for lineage in lineages:
        kind = "stream" if lineage.streams else "batch"
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in lineage.frame.schema.fields)
        branch = tree.add(_title(lineage.sink, mask(lineage.sink.node().detail)))
        branch.add(Text(f"takes a {kind} of ({columns})"))
        for name in lineage.sink.sources:
            _grow(branch, pipeline, lineage, pipeline.steps[name], shown)
    return tree


def _grow(branch: Tree, pipeline: Pipeline, lineage: Lineage, step: Step, shown: set[str]) -> None:
    mask = pipeline.secrets.masked
    if step.name in shown:
        branch.add(Text(f"{step.kind} {step.name}: see above"))
        return
    shown.add(step.name)
    twig = branch.add(_title(step, mask(step.node().detail)))
    plan = lineage.plans.get(step.name)
    if plan is not None:
        twig.add(Text(mask(_brief(step, plan.explain()))))
    elif step.name in lineage.stores:
        twig.add(Text(mask(lineage.stores[step.name].explain())))
    for name in step.sources:
        _grow(twig, pipeline, lineage, pipeline.steps[name], shown)


def _title(step: Step, detail: str) -> Text:
    kind = "sql" if step.type == "sql" else f"{step.kind} {step.type}"
    return Text.assemble((f"{step.name}", "bold"), f" [{kind}]", f" {detail}" if detail else "")


def _brief(step: Step, text: str) -> str:
    """The explanation; for an XQuery step only its executed plan, without the plans before and after each rule."""
    if step.type == "xquery" and "\nexecution\n" in text:
        return text.split("\nexecution\n", 1)[1].split("\nSpark\n")[0].strip()
    return text
