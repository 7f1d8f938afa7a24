"""Pieces of the page, without a browser: numbers, colours, columns, charts, HTML that cannot be abused."""

from __future__ import annotations

import doctest
import importlib
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ui.hostile import hostile_watch
from tests.ui.play import MB, new_watch, recorded

from dovetail.page import markup
from dovetail.page.board import WORDS_EVERY, Board
from dovetail.page.charts import AT, HIT_SHARE, LOADS_PER_S, Unrolling, charts_of
from dovetail.page.theme import COMPONENTS, PALETTE, colours_of
from dovetail.page.units import amount, quantity
from dovetail.pipeline.record.watch import Lag, Sample, Watch

NAMES = ("rows_in", "memory.cache rows", "results.arriving", "cache_hits", "cache_misses", "page_loads")


@pytest.mark.parametrize("module", ["units", "theme", "graph", "gate"])
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dovetail.page.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


@given(st.floats(min_value=0, max_value=1e15))
@settings(deadline=None, derandomize=True)
def test_amounts_are_short_and_near_the_truth(value: float) -> None:
    text = amount(value)
    number, _, letter = text.partition(" ")
    factor = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[letter]
    assert len(text) <= 9
    assert float(number.replace(",", "")) * factor == pytest.approx(value, rel=0.006, abs=0.006)


def test_values_that_are_missing_are_a_dash() -> None:
    assert [quantity(value, "rows/s") for value in (None, math.nan, math.inf)] == ["–"] * 3


@given(st.lists(st.text(min_size=1, max_size=8), max_size=len(PALETTE), unique=True))
@settings(deadline=None, derandomize=True)
def test_components_have_distinct_colours_whatever_the_order(names: list[str]) -> None:
    chosen = colours_of(names, COMPONENTS)
    assert len(set(chosen.values())) == len(names)
    assert chosen == colours_of(reversed(names), COMPONENTS)


def test_only_charts_that_apply_are_drawn() -> None:
    assert charts_of({"rows_in", "batch"}) == []
    assert [chart.key for chart in charts_of({"service_rows_per_s", "spilled_bytes"})] == ["throughput", "spills"]
    every = charts_of({name for step in ("enriched", "delivered") for name in recorded(3).latest(step)})
    assert [chart.key for chart in every] == [
        "throughput", "backlog", "memory", "latency", "cache", "loads", "results", "spills", "batches",
    ]  # fmt: skip


def test_memory_is_stacked_by_component_under_the_budget() -> None:
    (chart,) = charts_of({"memory.cache rows", "memory.waiting rows", "memory_budget", "memory_peak"})
    assert chart.stacked
    assert [series.label for series in chart.series] == ["cache rows", "waiting rows"]
    assert chart.limit is not None
    assert chart.limit.column == "memory_budget"


samples = st.lists(
    st.tuples(st.floats(0.01, 5), st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e6), max_size=4)), max_size=12
)


@given(samples, st.integers(0, 12))
@settings(deadline=None, derandomize=True)
def test_columns_piece_by_piece_equal_columns_at_once(steps: list[tuple[float, dict[str, float]]], cut: int) -> None:
    times = np.cumsum([step for step, _ in steps]) if steps else np.empty(0)
    taken = [Sample(float(at), values) for at, (_, values) in zip(times, steps, strict=True)]
    whole, pieces = Unrolling(NAMES).take(taken), Unrolling(NAMES)
    first, second = pieces.take(taken[:cut]), pieces.take(taken[cut:])
    for name, column in whole.items():
        np.testing.assert_array_equal(column, np.concatenate([first[name], second[name]]))


def test_values_that_a_sample_leaves_out_keep_their_last() -> None:
    found = Unrolling(["rows_in", "memory.x"]).take([Sample(1, {}), Sample(2, {"rows_in": 5.0}), Sample(3, {})])
    np.testing.assert_array_equal(found["rows_in"], [math.nan, 5, 5])
    np.testing.assert_array_equal(found["memory.x"], [0, 0, 0])
    np.testing.assert_array_equal(found[AT], [1, 2, 3])


def test_shares_and_rates_come_from_the_totals_between_samples_and_survive_a_restart() -> None:
    totals = [(1.0, 10, 10, 4), (2.0, 40, 20, 4), (4.0, 40, 20, 10), (5.0, 3, 1, 2)]
    names = ("cache_hits", "cache_misses", "page_loads")
    taken = [Sample(at, dict(zip(names, map(float, values), strict=True))) for at, *values in totals]
    found = Unrolling(names).take(taken)
    np.testing.assert_allclose(found[HIT_SHARE], [50, 75, 75, 75])
    np.testing.assert_allclose(found[LOADS_PER_S], [4, 0, 3, 2])


class Tags(HTMLParser):
    """Every tag of a piece of HTML, and attributes that could run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_every_name_and_message_is_escaped() -> None:
    board = Board(hostile_watch(), "")
    (panel,) = board.panels
    pieces = [board.status, board.problems, board.others, panel.head, panel.table, *(d.head for d in panel.chart_cards)]
    for piece in pieces:
        found = Tags(piece.text)
        assert not found.tags & {"script", "img"}
        assert found.attributes <= {"class", "style", "scope"}
        if piece not in [drawing.head for drawing in panel.chart_cards[:1]]:
            assert "&lt;script&gt;" in piece.text


def test_lag_is_told_for_each_partition_and_the_largest_first() -> None:
    watch = new_watch()
    assert "Lag" not in Board(watch, "").others.text
    board = Board(watch, "")
    watch.lag("orders", [Lag("o", at, 1_000, 1_000 + at) for at in range(markup.MOST_PARTITIONS + 2)])
    board.refresh()
    assert "Lag of 42 partitions: 861 messages" in board.others.text
    assert "<td>o</td><td>41</td><td>1,000</td><td>1,041</td><td>41</td>" in board.others.text
    assert "and 2 partitions that are not further behind" in board.others.text
    assert "<td>o</td><td>1</td>" not in board.others.text
    watch.lag("orders", [Lag("o", 0, 5, 5)])
    board.refresh()
    assert "Lag of 1 partition: 0 messages" in board.others.text


def test_a_page_without_samples_says_so() -> None:
    board = Board(new_watch(), "")
    assert "no samples yet" in board.status.text
    assert all("No samples so far." in panel.head.text for panel in board.panels)
    assert all(panel.chart_cards == [] for panel in board.panels)


def test_charts_with_nothing_to_show_are_sentences_until_something_happens() -> None:
    watch = new_watch()
    watch.add("delivered", {"spilled_bytes": 0.0})
    board = Board(watch, "")
    (drawing,) = board.panels[1].chart_cards
    assert (drawing.plot.visible, drawing.empty.visible) == (False, True)
    assert "No spills so far." in drawing.empty.text
    watch.add("delivered", {"spilled_bytes": 5.0 * MB})
    board.refresh()
    assert (drawing.plot.visible, drawing.empty.visible) == (True, False)
    for _ in range(WORDS_EVERY):
        board.refresh()
    assert "5 MiB" in drawing.head.text


def test_a_long_run_is_followed_in_bounded_memory() -> None:
    watch = new_watch()
    board = Board(watch, "")
    for count in range(5_000):
        watch.add("promoted", {"rows_in": float(count), "service_rows_per_s": 1.0})
        if count % 300 == 0:
            board.refresh()
    board.refresh()
    data = board.panels[2].source.data
    assert len(data[AT]) <= 2_000 + 1
    assert data["rows_in"][-1] == 4_999
    assert data["rows_in"][0] == 0


@pytest.mark.parametrize(("state", "shown"), [("ended", "Finished"), ("failed", "Failed"), ("stopped", "Stopped")])
def test_the_end_is_shown(state: str, shown: str) -> None:
    watch = new_watch()
    watch.end(state)  # type: ignore[arg-type]  # one of the three
    text = markup.status(watch, watch.seconds, None, final=False)
    assert f">{shown}<" in text
    assert markup.FINAL in text


def test_a_record_that_stops_in_the_middle_was_interrupted(tmp_path) -> None:
    watch = Watch.load(new_watch().save(tmp_path / "watch.json"))
    assert watch.state == "running"
    assert ">Interrupted<" in markup.status(watch, 1.0, None, final=False)
