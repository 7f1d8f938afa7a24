"""What every task of a query is given: the query, its variables, its files, and what to do with malformed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.engine.metrics import Metrics
from dovetail.xml.algebra.tree_facts import needs_context, reads_data
from dovetail.xml.evaluate.context import Context, Environment
from dovetail.xml.evaluate.static import Static
from dovetail.xml.execute.files import Collection, CollectionFiles
from dovetail.xml.execute.runner import Runner
from dovetail.xml.syntax.tree import Module
from dovetail.xml.xdm.temporal import DateTime


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one query; all its tasks have the same time of day. `item`: the address of its context document."""

    module: Module
    collections: Mapping[str, Collection]
    variables: Mapping[str, list[Any]] = field(default_factory=dict)
    skip: bool = False
    memory: int = 64 << 20
    item: str | None = None
    now: DateTime = field(default_factory=lambda: Context().now)

    def without_files(self) -> Job:
        """The same for tasks that read no collection by name: lists of files may be long.

        A function may use a declared variable whose value is read from a collection; then the lists stay.
        """
        values = (one.value for one in self.module.variables if one.value is not None)
        return self if any(reads_data(value, self.module) for value in values) else replace(self, collections={})

    def context(self, metrics: Metrics) -> Context:
        """The dynamic context of a task."""
        documents = CollectionFiles(self.collections, self.skip, metrics)
        return Context(self.variables, documents, now=self.now)

    def runner(self, metrics: Metrics) -> Runner:
        """Compiles and runs plans and expressions in a task."""
        return runner_of(self.module, self.context(metrics), self.item)


def runner_of(module: Module, context: Context, item: str | None = None) -> Runner:
    """The runner of a query in a task; `item` is the address of the context document."""
    environment = Environment(context)
    if item is not None and any(needs_context(one.value) for one in module.variables):
        # The plan reads the context item by its address; only functions that use such variables ask for it here.
        environment.context = replace(context, item=environment.doc(item))
    return Runner(Static(module), environment)
