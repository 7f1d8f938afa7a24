"""Makes pieces of HTML. Every name, message and value of a run is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from dovetail.page import units
from dovetail.page.charts import Chart, Series
from dovetail.page.theme import KINDS
from dovetail.pipeline.record.watch import Lag, Node, Watch

STATES = {
    "starting": "Starting",
    "running": "Running",
    "ended": "Finished",
    "failed": "Failed",
    "stopped": "Stopped",
    "interrupted": "Interrupted",
}
FINAL = "This page is final: it shows the last state of the run and no longer changes."
MOST_ERRORS = 50
MOST_PARTITIONS = 40


def state_of(watch: Watch) -> str:
    """The state to show: a record that stops in the middle of a run was interrupted."""
    unfinished = watch.state in ("starting", "running")
    return "interrupted" if unfinished and watch.ended_at is not None else watch.state


def status(watch: Watch, now: float, last_sample: float | None, final: bool) -> str:
    """Name, state and age of the run, and whether it is over."""
    state = state_of(watch)
    over = final or watch.ended_at is not None
    facts = [
        f"started {units.moment(watch.started_at)}",
        ("ran for " if over else "running for ") + units.duration(now),
    ]
    if not over:
        fresh = "no samples yet" if last_sample is None else f"last sample {units.duration(now - last_sample)} ago"
        facts.append(fresh)
    facts.append(_error_count(len(watch.errors)))
    note = f'<p class="final">{FINAL}</p>' if over else ""
    return (
        f'<div class="status"><h1>{escape(watch.name)}</h1>'
        f'<span class="pill {state}">{STATES[state]}</span></div>'
        f'<p class="facts">{_joined(escape(fact) for fact in facts)}</p>{note}'
    )


def _error_count(count: int) -> str:
    return "no errors" if count == 0 else f"{count:,} error{'s' if count > 1 else ''}"


def _joined(parts: Iterable[str]) -> str:
    return " ".join(f"<span>{part}</span>" for part in parts)


def kinds(nodes: Sequence[Node]) -> str:
    """The legend of the graph, for the kinds that occur."""
    present = [kind for kind in KINDS if any(node.kind == kind for node in nodes)]
    return '<div class="legend">' + "".join(_swatch(KINDS[kind], kind) for kind in present) + "</div>"


def problems(errors: Sequence[tuple[float, str | None, str]]) -> str:
    """The errors, newest first; empty if there are none."""
    if not errors:
        return ""
    rows = "".join(
        f'<li><span class="when">{units.duration(at)}</span> <b>{escape(step or "pipeline")}</b>'
        f"<pre>{escape(message)}</pre></li>"
        for at, step, message in reversed(errors[-MOST_ERRORS:])
    )
    older = len(errors) - MOST_ERRORS
    more = f"<p>and {older:,} before these</p>" if older > 0 else ""
    return f'<section class="problems"><h2>Errors</h2><ul>{rows}</ul>{more}</section>'


def chart_head(chart: Chart, newest: Mapping[str, float | None]) -> str:
    """The chart's title, and its legend with the newest value of each curve."""
    items = [_item(one, chart, newest) for one in chart.series]
    if chart.limit is not None:
        items.append(_item(chart.limit, chart, newest, dashed=True))
    return f'<h3>{escape(chart.title)}</h3><div class="legend">{"".join(items)}</div>'


def _item(series: Series, chart: Chart, newest: Mapping[str, float | None], dashed: bool = False) -> str:
    value = units.quantity(newest[series.column], chart.unit)
    return _swatch(series.colour, series.label, value, "dashed" if dashed else "")


def _swatch(colour: str, label: str, value: str = "", style: str = "") -> str:
    shown = f" <b>{escape(value)}</b>" if value else ""
    mark = f'<i class="{style}" style="--mark:{colour}"></i>'
    return f'<span class="item">{mark}{escape(label)}{shown}</span>'


def empty_state(sentence: str, over: bool) -> str:
    """The sentence in place of a chart without values."""
    return f'<p class="empty">{escape(sentence)}{" in this run" if over else " so far"}.</p>'


def step_head(node: Node, latest: Mapping[str, float], over: bool) -> str:
    """The step's name, type, details and totals."""
    title = f'<h2>{escape(node.name)} <span class="type">{escape(node.type)}</span></h2>'
    detail = f'<p class="detail">{escape(node.detail)}</p>' if node.detail else ""
    tiles = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for what, value in totals(latest))
    body = f'<dl class="tiles">{tiles}</dl>' if tiles else "" if latest else empty_state("No samples", over)
    return title + detail + body


def totals(latest: Mapping[str, float]) -> list[tuple[str, str]]:
    """The totals of a step since the start, in the order to show them."""
    found = [(what, units.quantity(latest[name], "rows")) for what, name in _COUNTS if name in latest]
    if "memory_peak" in latest:
        limit = f" of {units.quantity(latest['memory_budget'], 'bytes')}" if "memory_budget" in latest else ""
        found.append(("Peak memory", units.quantity(latest["memory_peak"], "bytes") + limit))
    lookups = latest.get("cache_hits", 0.0) + latest.get("cache_misses", 0.0)
    if lookups:
        found.append(("Cache hits", units.quantity(100 * latest["cache_hits"] / lookups, "%")))
    if "page_loads" in latest:
        found.append(("Page loads", units.amount(latest["page_loads"])))
    if "spilled_bytes" in latest:
        found.append(("Spilled", units.quantity(latest["spilled_bytes"], "bytes")))
    if "batch" in latest:
        found.append(("Last batch", f"{latest['batch']:,.0f}"))
    return found


_COUNTS = (("Rows in", "rows_in"), ("Rows out", "rows_out"))


def explain_table(rows: Sequence[tuple[str, str, str | None]]) -> str:
    """The table of predictions and measurements; empty if there are none."""
    if not rows:
        return ""
    lines = "".join(
        f"<tr><th scope='row'>{escape(what)}</th><td>{escape(predicted) or units.NOTHING}</td>"
        f"<td>{units.NOTHING if measured is None else escape(measured)}</td></tr>"
        for what, predicted, measured in rows
    )
    head = "<tr><th scope='col'>What</th><th scope='col'>Predicted</th><th scope='col'>Measured</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{lines}</tbody></table>"
    return f"<h3>Predicted and measured</h3><div class='wide'>{table}</div>"


def other_steps(found: Sequence[tuple[Node, Mapping[str, float]]]) -> str:
    """Sources, masters, SQL steps and sinks in one table."""
    if not found:
        return ""
    lines = "".join(_step_line(node, latest) for node, latest in found)
    names = ("Step", "Kind", "Type", "Rows in", "Rows out", "Rate")
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    return (
        "<h2>Other steps</h2><div class='wide'><table class='steps'>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _step_line(node: Node, latest: Mapping[str, float]) -> str:
    rate = latest.get("service_rows_per_s", latest.get("arrival_rows_per_s"))
    cells = (
        node.kind,
        node.type,
        *(units.amount(latest[name]) if name in latest else units.NOTHING for _, name in _COUNTS),
        units.quantity(rate, "rows/s"),
    )
    return f"<tr><th scope='row'>{escape(node.name)}</th>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"


def lag_table(found: Sequence[tuple[str, Lag]]) -> str:
    """How far each partition of each source is read, those furthest behind first; empty if no source has partitions."""
    if not found:
        return ""
    shown = sorted(found, key=lambda one: -one[1].behind)[:MOST_PARTITIONS]
    lines = "".join(_lag_line(source, lag) for source, lag in shown)
    names = ("Source", "Topic", "Partition", "Read to", "Newest", "Behind")
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    more = (
        f"<p>and {len(found) - len(shown):,} partitions that are not further behind</p>" if found[len(shown) :] else ""
    )
    return (
        f"<h2>Lag of {len(found):,} partition{'s' if len(found) > 1 else ''}: "
        f"{sum(lag.behind for _, lag in found):,} messages</h2><div class='wide'><table class='steps lags'>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{more}"
    )


def _lag_line(source: str, lag: Lag) -> str:
    cells = (lag.topic, str(lag.partition), *(f"{number:,}" for number in (lag.read, lag.newest, lag.behind)))
    return f"<tr><th scope='row'>{escape(source)}</th>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"
