"""Prints a run on the terminal: a live table while it runs, and a summary at its end."""

from __future__ import annotations

import os

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.engine.memory import format_bytes
from dovetail.pipeline.record.watch import Node, Watch

_LIVE = ("step", "rows in", "rows out", "arriving /s", "served /s", "backlog", "p95 latency", "memory of budget")


def written(least: int = 140) -> Console:
    """A console for results: as wide as the terminal, and at least `least` characters wide in a file or pipe."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = least
    return console


def _state(watch: Watch) -> str:
    """The state of a run, in the words of the page."""
    return "finished" if watch.state == "ended" else watch.state


def live_table(watch: Watch) -> RenderableType:
    """The current figures of each step."""
    table = Table(title=f"{watch.name}: {_state(watch)}, {watch.seconds:.0f} s", title_justify="left")
    for at, name in enumerate(_LIVE):
        table.add_column(name, justify="left" if at == 0 else "right", no_wrap=True)
    for node in watch.nodes:
        table.add_row(Text(f"{node.name} ({node.type})"), *(Text(cell) for cell in _cells(watch, node)))
    errors = [Text(f"{step or watch.name}: {message}", style="red") for _, step, message in watch.errors]
    return Group(table, *errors)


def _cells(watch: Watch, node: Node) -> list[str]:
    now = watch.latest(node.name)
    numbers = [_number(now.get(name)) for name in ("rows_in", "rows_out", "arrival_rows_per_s", "service_rows_per_s")]
    latency = now.get("latency_p95_s")
    return [*numbers, _number(now.get("backlog_rows")), "" if latency is None else f"{latency:.2f} s", _memory(now)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _memory(now: dict[str, float]) -> str:
    if "memory_peak" not in now:
        return ""
    budget = f" of {format_bytes(int(now['memory_budget']))}" if "memory_budget" in now else ""
    return f"{format_bytes(int(now['memory_peak']))}{budget}"


def line_of(watch: Watch) -> str:
    """The progress of the run in one line, for output that is not a terminal."""
    parts = []
    for node in watch.nodes:
        now = watch.latest(node.name)
        if node.kind == "sink" and "rows_out" in now:
            parts.append(f"{node.name} {now['rows_out']:,.0f} rows")
    batches = [watch.latest(node.name).get("batch") for node in watch.nodes]
    newest = max((batch for batch in batches if batch is not None), default=None)
    number = "" if newest is None else f", micro-batch {newest:.0f}"
    return f"{watch.name}: {_state(watch)}, {watch.seconds:.0f} s{number}: {', '.join(parts) or 'nothing written yet'}"


def summary(watch: Watch, console: Console) -> None:
    """Print rows in and out of every step, and measured figures beside predicted ones."""
    rows = Table("step", title=f"{watch.name}: {_state(watch)} after {watch.seconds:.1f} s", title_justify="left")
    for name in ("rows in", "rows out", "cache hits", "page loads", "spilled", "peak memory of budget"):
        rows.add_column(name, justify="right")
    for node in watch.nodes:
        rows.add_row(Text(f"{node.name} ({node.type})"), *(Text(cell) for cell in _ends(watch.latest(node.name))))
    console.print(rows)
    _explained(watch, console)
    for _, step, message in watch.errors:
        console.print(Text(f"{step or watch.name}: {message}", style="red"))


def _ends(now: dict[str, float]) -> list[str]:
    answered = now.get("cache_hits", 0.0) + now.get("cache_misses", 0.0)
    hits = f"{now['cache_hits'] / answered:.1%}" if answered else ""
    spilled = format_bytes(int(now["spilled_bytes"])) if "spilled_bytes" in now else ""
    counts = [_number(now.get(name)) for name in ("rows_in", "rows_out")]
    return [*counts, hits, _number(now.get("page_loads")), spilled, _memory(now)]


def _explained(watch: Watch, console: Console) -> None:
    table = Table("step", "what", "predicted", "measured", title="predicted and measured", title_justify="left")
    for node in watch.nodes:
        for what, predicted, measured in watch.explained(node.name):
            table.add_row(Text(node.name), Text(what), Text(predicted), Text(measured or ""))
    if table.row_count:
        console.print(table)
