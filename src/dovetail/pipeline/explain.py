"""A pipeline explained: its graph, and for every join the choice, the memory split and the predicted rate."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.steps.build import Lineage


def explained(pipeline: Pipeline, lineages: list[Lineage]) -> Tree:
    """A tree for each sink, from what it writes back to the sources; a step that was shown is not shown again."""
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
    """The explanation; of a query over XML what is executed, without the plans before and after each rule."""
    if step.type == "xquery" and "\nexecution\n" in text:
        return text.split("\nexecution\n", 1)[1].split("\nSpark\n")[0].strip()
    return text
