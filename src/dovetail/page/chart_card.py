"""A chart on the page: a card with its title, a legend that carries the newest values, and the curves."""

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
from bokeh.models.renderers import GlyphRenderer
from bokeh.models.widgets import Div
from bokeh.plotting import figure

from dovetail.page.charts import Chart, Series
from dovetail.page.columns import AT
from dovetail.page.fonts import SANS
from dovetail.page.markup import chart_head, empty_state
from dovetail.page.units import Unit

HEIGHT = 170
TIME = "00:00:00"
POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
_TICKS: dict[Unit, str] = {"rows": "0.[00]a", "rows/s": "0.[00]a", "pages/s": "0.[00]a", "bytes": "0.[0] ib"}


class ChartCard:
    """One card. Data come through the source that it was given; `refresh` updates legend and empty state."""

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
        """Show the newest values, if `words` are due; a chart without anything above zero becomes a sentence."""
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
    """A piece of text that is ours: HTML that was escaped where it was put together, never read as formulas."""
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
    """Draw every series; what the pointer must meet for a tooltip."""
    if chart.stacked:
        names, shades = [one.column for one in chart.series], [one.colour for one in chart.series]
        plot.varea_stack(names, x=AT, source=source, fill_color=shades, fill_alpha=0.8)
    else:
        for one in chart.series:
            plot.line(x=AT, y=one.column, source=source, line_color=one.colour, line_width=2, line_join="round")
    if chart.limit is not None:
        limit = chart.limit
        plot.line(x=AT, y=limit.column, source=source, line_color=limit.colour, line_width=1.5, line_dash=[6, 4])
    # Areas do not feel the pointer, and lines with gaps not everywhere.
    touched: GlyphRenderer[Any] = plot.line(x=AT, y=chart.series[0].column, source=source, line_alpha=0, line_width=2)
    return touched


def _calm(plot: Any, unit: Unit) -> None:
    """Few ticks, faint horizontal lines, no frame. Colours of text and lines come from the page's style sheet."""
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
    """Series that a tooltip can name: braces end the name of a column there."""
    return [one for one in chart.series if not set("{}") & set(one.column)]


def _tip(series: Series, unit: Unit) -> tuple[str, str]:
    form = {"bytes": "0.[0] ib", "%": "0.[0]", "s": "0.[0000]"}.get(unit, "0,0.[0]")
    return series.label, f"@{{{series.column}}}{{{form}}} " + ("" if unit == "bytes" else unit)
