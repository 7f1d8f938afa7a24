"""The page of one reader: every piece of it, and how it follows the record of the run."""

from __future__ import annotations

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, InlineStyleSheet, Range1d
from bokeh.models.layouts import Column
from bokeh.models.ui import UIElement

from dovetail.page import markup
from dovetail.page.chart_card import ChartCard, text
from dovetail.page.charts import charts_of
from dovetail.page.columns import AT, Unrolling
from dovetail.page.graph import Graph
from dovetail.pipeline.record.watch import MOST_SAMPLES, Node, Watch

CHARTED = ("join",)
"""Kinds of steps with charts of their own; the others share a table."""

CONCLUDED = "concluded"
"""Class of the status once the server has said good-bye; the style sheet then hides Bokeh's word of a lost server."""

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
        self.drawings: list[ChartCard] = []
        self._unrolling = Unrolling(())
        self.head = text("", sheet)
        self.table = text("", sheet, css_classes=["card"], styles={"align-self": "stretch"})
        self.grid: Column = column(styles=GRID, sizing_mode="stretch_width")
        self.view: Column = column(self.head, self.grid, spacing=12, sizing_mode="stretch_width")

    def refresh(self, over: bool, words: bool) -> None:
        """Take the samples since the last call; charts that came to apply are added. Texts change if they are due."""
        latest = self._watch.latest(self._node.name)
        self._follow(set(latest))
        for drawing in self.drawings:
            drawing.refresh(over, words)
        if words:
            self.head.text = markup.step_head(self._node, latest, over)
            self.table.text = markup.explain_table(self._watch.explained(self._node.name))
        self._arrange()

    @property
    def newest(self) -> float | None:
        """When the newest sample was taken, in seconds of the run."""
        times = self.source.data.get(AT, ())
        return float(times[-1]) if len(times) else None

    def _follow(self, names: set[str]) -> None:
        """Stream what is new; start over where names are new or where the record itself has been thinned."""
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
        if charts != [drawing.chart for drawing in self.drawings]:
            self.drawings = [ChartCard(chart, self.source, self._time, self._sheet) for chart in charts]

    def _load(self) -> None:
        self._unrolling = Unrolling(self._unrolling.names)
        self.source.data = dict(self._unrolling.take(self._watch.samples(self._node.name)))

    def _arrange(self) -> None:
        cards: list[UIElement] = [drawing.card for drawing in self.drawings]
        wanted = cards + ([self.table] if self.table.text else [])
        if self.grid.children != wanted:
            self.grid.children = wanted


class Board:
    """All roots of the page, by the name of their place in the template."""

    def __init__(self, watch: Watch, parts_css: str, frozen: bool = False) -> None:
        self._watch, self._frozen = watch, frozen
        self._newest: float | None = None
        self._turn = 0
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
        """What is embedded in the page."""
        return [self.status, self.problems, self.kinds, self.graph.figure, self.steps, self.others]

    def freeze(self) -> None:
        """Show the last state and say that no other will follow."""
        self._frozen = True
        self.status.css_classes = [CONCLUDED]
        self.refresh()

    def refresh(self) -> None:
        """Bring everything up to date; what has not changed is not sent."""
        over = self._frozen or self._watch.ended_at is not None
        self.graph.refresh()
        for place, panel in enumerate(self.panels):
            due = over or self._turn == 0 or (self._turn + place) % WORDS_EVERY == 0
            panel.refresh(over, due)
        self._turn += 1
        self._note_time()
        self.status.text = markup.status(self._watch, self._watch.seconds, self._newest, self._frozen)
        self.problems.text = markup.problems(self._watch.errors)
        self.problems.visible = bool(self.problems.text)
        self.others.text = markup.other_steps([(node, self._watch.latest(node.name)) for node in self._others])

    def _note_time(self) -> None:
        """When the newest sample of any step was taken; all charts end there."""
        since = -1.0 if self._newest is None else self._newest
        fresh = [sample.at for node in self._watch.nodes for sample in self._watch.samples(node.name, since)]
        self._newest = max(fresh, default=self._newest)
        self._time.end = max(1.0, self._newest or 0.0)
