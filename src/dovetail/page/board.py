"""Builds the page of one reader from Bokeh models, and updates it from the record of the run."""

from __future__ import annotations

from typing import Any

from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    DataRange1d,
    HoverTool,
    InlineStyleSheet,
    NumeralTickFormatter,
    PrintfTickFormatter,
    Range1d,
)
from bokeh.models.formatters import TickFormatter
from bokeh.models.layouts import Column
from bokeh.models.renderers import GlyphRenderer
from bokeh.models.ui import UIElement
from bokeh.models.widgets import Div
from bokeh.plotting import figure

from dovetail.page import markup
from dovetail.page.charts import AT, Chart, Series, Unrolling, charts_of
from dovetail.page.graph import Graph
from dovetail.page.markup import chart_head, empty_state
from dovetail.page.theme import SANS
from dovetail.page.units import Unit
from dovetail.pipeline.record.watch import MOST_SAMPLES, Node, Watch

HEIGHT = 170
TIME = "00:00:00"
POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
_TICKS: dict[Unit, str] = {"rows": "0.[00]a", "rows/s": "0.[00]a", "pages/s": "0.[00]a", "bytes": "0.[0] ib"}


class ChartCard:
    """A chart on the page: title, legend with the newest values, curves. Its data are in the given source."""

    def __init__(self, chart: Chart, source: ColumnDataSource, time: Range1d, sheet: InlineStyleSheet) -> None:
        self.chart, self._source = chart, source
        self.head = text("", sheet, styles={"flex": "1 0 auto"})  # plots of a row of cards stand on one line
        self.empty = text("", sheet)
        self.plot = _plot(chart, source, time)
        self.card = column(
            self.head,
            self.plot,
            self.empty,
            css_classes=["card"],
            stylesheets=[sheet],
            styles={"align-self": "stretch"},
            sizing_mode="stretch_width",
        )

    def refresh(self, over: bool, words: bool = True) -> None:
        """Update the legend, if `words` are due; a chart without a value above zero becomes a sentence."""
        something = any(self._largest(series) > 0 for series in self.chart.series)
        if words or not self.head.text:
            self.head.text = chart_head(self.chart, {name: self._newest(name) for name in self.chart.columns})
        self.empty.text = "" if something else empty_state(self.chart.empty, over)
        self.plot.visible, self.empty.visible = something, not something

    def _newest(self, name: str) -> float | None:
        values = self._source.data.get(name, ())
        return float(values[-1]) if len(values) else None

    def _largest(self, series: Series) -> float:
        values = self._source.data.get(series.column, ())
        return max((float(value) for value in values if value == value), default=0.0)


def text(content: str, sheet: InlineStyleSheet, **options: Any) -> Div:
    """A piece of HTML, which was escaped where it was made; formulas in it are not rendered."""
    return Div(text=content, disable_math=True, stylesheets=[sheet], margin=0, sizing_mode="stretch_width", **options)


def _plot(chart: Chart, source: ColumnDataSource, time: Range1d) -> figure:
    # BokehJS fits a DataRange1d to the data, but for the end that is given.
    heights: Any = {"start": 0, "end": 100} if chart.unit == "%" else {"start": 0}
    plot = figure(
        height=HEIGHT,
        sizing_mode="stretch_width",
        min_width=200,
        toolbar_location=None,
        tools="",
        x_range=time,
        y_range=DataRange1d(range_padding=0.1, default_span=1, **heights),
        min_border_left=54,
        min_border_right=14,
        name=f"chart-{chart.key}",
    )
    touched = _draw(plot, chart, source)
    _calm(plot, chart.unit)
    tips = [("after", f"@{AT}{{{TIME}}}"), *(_tip(series, chart.unit) for series in _named(chart))]
    plot.add_tools(HoverTool(mode="vline", tooltips=tips, renderers=[touched]))
    return plot


def _draw(plot: Any, chart: Chart, source: ColumnDataSource) -> GlyphRenderer[Any]:
    """Draw every series; returns the renderer that shows tooltips."""
    if chart.stacked:
        names, shades = [one.column for one in chart.series], [one.colour for one in chart.series]
        plot.varea_stack(names, x=AT, source=source, fill_color=shades, fill_alpha=0.8)
    else:
        for one in chart.series:
            plot.line(x=AT, y=one.column, source=source, line_color=one.colour, line_width=2, line_join="round")
    if chart.limit is not None:
        limit = chart.limit
        plot.line(x=AT, y=limit.column, source=source, line_color=limit.colour, line_width=1.5, line_dash=[6, 4])
    # Areas have no tooltips, and lines with gaps have none in the gaps.
    touched: GlyphRenderer[Any] = plot.line(x=AT, y=chart.series[0].column, source=source, line_alpha=0, line_width=2)
    return touched


def _calm(plot: Any, unit: Unit) -> None:
    """Set few ticks, faint horizontal lines and no frame. The page's style sheet has the colours of text and lines."""
    plot.outline_line_color = plot.background_fill_color = plot.border_fill_color = None
    plot.xgrid.visible = False
    plot.axis.axis_line_color = plot.axis.minor_tick_line_color = plot.axis.major_tick_line_color = None
    plot.axis.major_label_text_font = SANS
    plot.axis.major_label_text_font_size = "11px"
    plot.xaxis.ticker = AdaptiveTicker(base=60, mantissas=[1, 2, 5, 10, 15, 30], min_interval=1, desired_num_ticks=4)
    plot.xaxis.formatter = NumeralTickFormatter(format=TIME)
    plot.yaxis.formatter = _formatter(unit)
    plot.yaxis.ticker.desired_num_ticks = 4
    if unit == "bytes":
        plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=POWERS_OF_TWO, desired_num_ticks=4)


def _formatter(unit: Unit) -> TickFormatter:
    if unit == "s":
        return PrintfTickFormatter(format="%.3g s")
    return PrintfTickFormatter(format="%d %%") if unit == "%" else NumeralTickFormatter(format=_TICKS[unit])


def _named(chart: Chart) -> list[Series]:
    """Series that a tooltip can show: a column name with braces is not possible there."""
    return [one for one in chart.series if not set("{}") & set(one.column)]


def _tip(series: Series, unit: Unit) -> tuple[str, str]:
    form = {"bytes": "0.[0] ib", "%": "0.[0]", "s": "0.[0000]"}.get(unit, "0,0.[0]")
    return series.label, f"@{{{series.column}}}{{{form}}} " + ("" if unit == "bytes" else unit)


CHARTED = ("join",)
"""Kinds of steps that have charts; the others share a table."""

CONCLUDED = "concluded"
"""CSS class of the status after the server has stopped; the style sheet then hides Bokeh's message about it."""

WORDS_EVERY = 3
"""Refreshes between two updates of a panel's texts: each makes the browser lay out the page, curves do not."""

GRID = {
    "display": "grid",
    "grid-template-columns": "repeat(auto-fill, minmax(min(100%, 340px), 1fr))",
    "gap": "14px",
    "align-items": "stretch",
}


class StepPanel:
    """A join: its head, the charts that apply to it, predicted beside measured."""

    def __init__(self, watch: Watch, node: Node, time: Range1d, sheet: InlineStyleSheet) -> None:
        self._watch, self._node, self._time, self._sheet = watch, node, time, sheet
        self.source = ColumnDataSource(name=f"samples of {node.name}")
        self.chart_cards: list[ChartCard] = []
        self._unrolling = Unrolling(())
        self.head = text("", sheet)
        self.table = text("", sheet, css_classes=["card"], styles={"align-self": "stretch"})
        self.grid: Column = column(styles=GRID, sizing_mode="stretch_width")
        self.view: Column = column(self.head, self.grid, spacing=12, sizing_mode="stretch_width")

    def refresh(self, over: bool, words: bool) -> None:
        """Add the samples since the last call, and charts that now apply. Texts are updated if `words` are due."""
        latest = self._watch.latest(self._node.name)
        self._follow(set(latest))
        for card in self.chart_cards:
            card.refresh(over, words)
        if words:
            self.head.text = markup.step_head(self._node, latest, over)
            self.table.text = markup.explain_table(self._watch.explained(self._node.name))
        self._arrange()

    @property
    def newest(self) -> float | None:
        """Time of the newest sample, in seconds of the run."""
        times = self.source.data.get(AT, ())
        return float(times[-1]) if len(times) else None

    def _follow(self, names: set[str]) -> None:
        """Stream new samples; load all of them if there are new names or if the record was thinned."""
        if names != set(self._unrolling.names):
            self._rebuild(names)
            return
        since = self.newest
        fresh = self._watch.samples(self._node.name, -1.0 if since is None else since)
        if fresh and len(fresh) + len(self.source.data[AT]) > MOST_SAMPLES:
            self._load()
        elif fresh:
            self.source.stream(dict(self._unrolling.take(fresh)))

    def _rebuild(self, names: set[str]) -> None:
        self._unrolling = Unrolling(names)
        self._load()
        charts = charts_of(names)
        if charts != [card.chart for card in self.chart_cards]:
            self.chart_cards = [ChartCard(chart, self.source, self._time, self._sheet) for chart in charts]

    def _load(self) -> None:
        self._unrolling = Unrolling(self._unrolling.names)
        self.source.data = dict(self._unrolling.take(self._watch.samples(self._node.name)))

    def _arrange(self) -> None:
        cards: list[UIElement] = [card.card for card in self.chart_cards]
        wanted = cards + ([self.table] if self.table.text else [])
        if self.grid.children != wanted:
            self.grid.children = wanted


class Board:
    """The root models of the page, named as their places in the template."""

    def __init__(self, watch: Watch, parts_css: str, final: bool = False) -> None:
        self._watch, self._final = watch, final
        self._newest: float | None = None
        self._refreshed = 0
        sheet = InlineStyleSheet(css=parts_css)
        self._time = Range1d(start=0, end=1)
        self.status = text("", sheet, name="status")
        self.problems = text("", sheet, name="problems")
        self.graph = Graph(watch)
        self.kinds = text(markup.kinds(watch.nodes), sheet, name="kinds")
        charted = [node for node in watch.nodes if node.kind in CHARTED]
        self._others = [node for node in watch.nodes if node.kind not in CHARTED]
        self.panels = [StepPanel(watch, node, self._time, sheet) for node in charted]
        self.steps: Column = column(
            *(panel.view for panel in self.panels), name="steps", spacing=28, sizing_mode="stretch_width"
        )
        self.others = text("", sheet, name="others", css_classes=["card"])
        self.refresh()

    @property
    def roots(self) -> list[UIElement]:
        """The models that the page embeds."""
        return [self.status, self.problems, self.kinds, self.graph.figure, self.steps, self.others]

    def conclude(self) -> None:
        """Show the last state, and that it is final."""
        self._final = True
        self.status.css_classes = [CONCLUDED]
        self.refresh()

    def refresh(self) -> None:
        """Update everything; Bokeh sends what has changed."""
        over = self._final or self._watch.ended_at is not None
        self.graph.refresh()
        for place, panel in enumerate(self.panels):
            due = over or self._refreshed == 0 or (self._refreshed + place) % WORDS_EVERY == 0
            panel.refresh(over, due)
        self._refreshed += 1
        self._note_time()
        self.status.text = markup.status(self._watch, self._watch.seconds, self._newest, self._final)
        self.problems.text = markup.problems(self._watch.errors)
        self.problems.visible = bool(self.problems.text)
        others = markup.other_steps([(node, self._watch.latest(node.name)) for node in self._others])
        lags = [(node.name, lag) for node in self._others for lag in self._watch.lags(node.name)]
        self.others.text = others + markup.lag_table(lags)

    def _note_time(self) -> None:
        """Find the time of the newest sample of any step, where all charts end."""
        since = -1.0 if self._newest is None else self._newest
        fresh = [sample.at for node in self._watch.nodes for sample in self._watch.samples(node.name, since)]
        self._newest = max(fresh, default=self._newest)
        self._time.end = max(1.0, self._newest or 0.0)
