"""Places of the steps: order, distance, and lines that keep clear of boxes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.page.graph import place


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    count = draw(st.integers(1, 9))
    names = [f"s{number}" for number in range(count)]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return draw(st.permutations(names)), draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(graphs())
@settings(deadline=None, derandomize=True)
def test_readers_stand_right_and_nothing_shares_a_place(graph: tuple[list[str], list[tuple[str, str]]]) -> None:
    names, edges = graph
    places = place(names, edges)
    assert all(places.of[source][0] < places.of[target][0] for source, target in edges)
    bends = [spot for line in places.lines.values() for spot in line[1:-1]]
    spots = [*places.of.values(), *bends]
    assert len(set(spots)) == len(spots)
    assert {column for column, _ in places.of.values()} == set(map(float, range(places.columns)))
    assert all(abs(row) <= (places.rows - 1) / 2 for _, row in spots)


@given(graphs())
@settings(deadline=None, derandomize=True)
def test_lines_go_from_step_to_step_column_by_column(graph: tuple[list[str], list[tuple[str, str]]]) -> None:
    names, edges = graph
    places = place(names, edges)
    assert set(places.lines) == set(edges)
    for (source, target), line in places.lines.items():
        assert (line[0], line[-1]) == (places.of[source], places.of[target])
        assert [column - line[0][0] for column, _ in line] == list(range(len(line)))


def test_a_source_stands_next_to_its_reader() -> None:
    places = place(["a", "b", "c", "late"], [("a", "b"), ("b", "c"), ("late", "c")])
    assert [places.of[name][0] for name in ("a", "b", "late", "c")] == [0, 1, 1, 2]


def test_two_chains_do_not_cross() -> None:
    places = place(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert (places.of["a"][1] > places.of["b"][1]) == (places.of["y"][1] > places.of["x"][1])


def test_a_pipeline_without_steps_or_with_a_cycle_is_still_a_picture() -> None:
    assert place([], []).columns == 0
    assert set(place(["a", "b"], [("a", "b"), ("b", "a")]).of) == {"a", "b"}
