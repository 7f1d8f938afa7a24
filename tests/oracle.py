"""Defines every join in one comprehension; everything that Dovetail computes is compared with this.

Rows are dicts (`pa.Table.to_pylist()` gives them). A join gives pairs `(left row, right row)`, with None for a missing
side; semi and anti joins give `(left row, None)`. Order means nothing: compare with `bag(flat(...))`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

Row = Mapping[str, Any]
Pair = tuple[Row | None, Row | None]
Match = Callable[[Row, Row], bool]
Keys = Sequence[tuple[str, str]]

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
CLOSED = ("left", "right", "both", "neither")

# The bounds of the left interval, then those of the right one. Reference: docs/algorithms/interval.md, 1.3.
TABLE: dict[str, Callable[[Any, Any, Any, Any], bool]] = {
    "before": lambda ls, le, rs, re: le < rs,
    "after": lambda ls, le, rs, re: re < ls,
    "meets": lambda ls, le, rs, re: le == rs,
    "met_by": lambda ls, le, rs, re: re == ls,
    "overlaps": lambda ls, le, rs, re: ls < rs < le < re,
    "overlapped_by": lambda ls, le, rs, re: rs < ls < re < le,
    "starts": lambda ls, le, rs, re: ls == rs and le <= re,
    "started_by": lambda ls, le, rs, re: ls == rs and re <= le,
    "ends": lambda ls, le, rs, re: le == re and ls >= rs,
    "ended_by": lambda ls, le, rs, re: le == re and rs >= ls,
    "covers": lambda ls, le, rs, re: ls <= rs and re <= le,
    "covered_by": lambda ls, le, rs, re: rs <= ls and le <= re,
    "equals": lambda ls, le, rs, re: ls == rs and le == re,
}
ALLEN = TABLE | {
    "starts": lambda ls, le, rs, re: ls == rs and le < re,
    "started_by": lambda ls, le, rs, re: ls == rs and re < le,
    "ends": lambda ls, le, rs, re: le == re and ls > rs,
    "ended_by": lambda ls, le, rs, re: le == re and rs > ls,
    "covers": lambda ls, le, rs, re: ls < rs and re < le,
    "covered_by": lambda ls, le, rs, re: rs < ls and le < re,
}
ALIASES = {"contains": "covers", "during": "covered_by", "finishes": "ends", "finished_by": "ended_by"}
RELATIONS = ("overlapping", *TABLE)


def join(left: Sequence[Row], right: Sequence[Row], matches: Match, how: str = "inner") -> list[Pair]:
    """Any join, from what it means for two rows to match."""
    hits = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if matches(a, b)]
    met_left, met_right = {i for i, _ in hits}, {j for _, j in hits}
    pairs: list[Pair] = [(left[i], right[j]) for i, j in hits]
    met: list[Pair] = [(left[i], None) for i in sorted(met_left)]
    left_only: list[Pair] = [(a, None) for i, a in enumerate(left) if i not in met_left]
    right_only: list[Pair] = [(None, b) for j, b in enumerate(right) if j not in met_right]
    return {
        "inner": pairs,
        "left": pairs + left_only,
        "right": pairs + right_only,
        "full": pairs + left_only + right_only,
        "left_semi": met,
        "left_anti": left_only,
    }[how]


def same(a: Any, b: Any) -> bool:
    """Equality of keys: null equals nothing, NaN equals NaN, and 0.0 equals -0.0, as in Spark."""
    return a is not None and b is not None and (a == b or (a != a and b != b))


def equal(on: Keys) -> Match:
    """Rows match when all their keys are the same."""
    return lambda a, b: all(same(a[x], b[y]) for x, y in on)


def equi_join(left: Sequence[Row], right: Sequence[Row], on: Keys, how: str = "inner") -> list[Pair]:
    """The join on equality of keys."""
    return join(left, right, equal(on), how)


def is_empty(start: Any, end: Any, closed: str) -> bool:
    """Whether no point lies between the bounds, in a dense domain; null and NaN bounds hold no point either."""
    if start is None or end is None:
        return True
    return not (start < end or (start == end and closed == "both"))


def share_a_point(ls: Any, le: Any, rs: Any, re: Any, closed: tuple[str, str] = ("left", "left")) -> bool:
    """Whether two non-empty intervals of a dense domain have a point in common."""
    a, b = closed
    reaches_right = rs < le or (rs == le and b in ("left", "both") and a in ("right", "both"))
    reaches_left = ls < re or (ls == re and a in ("left", "both") and b in ("right", "both"))
    return reaches_right and reaches_left


def related(
    relation: str | Iterable[str] = "overlapping",
    left_interval: tuple[str, str] = ("start", "end"),
    right_interval: tuple[str, str] = ("start", "end"),
    on: Keys = (),
    closed: str | tuple[str, str] = "left",
    strict: bool = False,
    condition: Match | None = None,
) -> Match:
    """Rows match when their intervals stand in (one of) the relation(s), their keys are the same and the rest holds.

    `closed` decides which intervals are empty, and overlapping; the thirteen relations compare the bounds as given.
    """
    names = [relation] if isinstance(relation, str) else list(relation)
    table, ends = (ALLEN if strict else TABLE), ((closed, closed) if isinstance(closed, str) else closed)

    def holds(name: str, ls: Any, le: Any, rs: Any, re: Any) -> bool:
        bounds = ls, le, rs, re
        return share_a_point(*bounds, closed=ends) if name == "overlapping" else table[ALIASES.get(name, name)](*bounds)

    def matches(a: Row, b: Row) -> bool:
        ls, le, rs, re = a[left_interval[0]], a[left_interval[1]], b[right_interval[0]], b[right_interval[1]]
        if is_empty(ls, le, ends[0]) or is_empty(rs, re, ends[1]) or not equal(on)(a, b):
            return False
        return any(holds(name, ls, le, rs, re) for name in names) and (condition is None or condition(a, b))

    return matches


def interval_join(left: Sequence[Row], right: Sequence[Row], how: str = "inner", **related_by: Any) -> list[Pair]:
    """The interval join; `related_by` as in `related`."""
    return join(left, right, related(**related_by), how)


def interval_count(left: Sequence[Row], right: Sequence[Row], **related_by: Any) -> int:
    """How many pairs an inner interval join has."""
    return len(interval_join(left, right, **related_by))


def count_overlaps(left: Sequence[Row], right: Sequence[Row], **related_by: Any) -> list[tuple[Row, int]]:
    """Each left row with the number of its matches."""
    matches = related(**related_by)
    return [(a, sum(matches(a, b) for b in right)) for a in left]


def longest_overlaps(left: Sequence[Row], right: Sequence[Row], k: int, **related_by: Any) -> list[Any]:
    """The lengths of the k longest overlaps, longest first; which of equally long pairs is chosen is open."""
    ls, le = related_by.get("left_interval", ("start", "end"))
    rs, re = related_by.get("right_interval", ("start", "end"))
    pairs = interval_join(left, right, **related_by)
    return sorted((min(a[le], b[re]) - max(a[ls], b[rs]) for a, b in pairs if a and b), reverse=True)[:k]


def kept(
    left: Sequence[Row], right: Sequence[Row], keep: str = "any", how: str = "inner", **related_by: Any
) -> list[tuple[Row, list[Row | None]]]:
    """Each left row of the answer with the right rows that may stand beside it (exactly one of them does).

    `any` allows every match; `first` and `last` those with the smallest and largest (start, end). Rows without a match
    appear for how="left" only, with [None].
    """
    start, end = related_by.get("right_interval", ("start", "end"))
    matches = related(**related_by)
    found = [(a, [b for b in right if matches(a, b)]) for a in left]
    choose: dict[str, Callable[[list[Any]], Any]] = {"any": lambda places: None, "first": min, "last": max}

    def allowed(rows: list[Row]) -> list[Row | None]:
        place = choose[keep]([(b[start], b[end]) for b in rows])
        return [b for b in rows if place in (None, (b[start], b[end]))]

    return [(a, allowed(bs) if bs else [None]) for a, bs in found if bs or how == "left"]


def agrees_with_kept(answer: Iterable[Pair], expected: list[tuple[Row, list[Row | None]]]) -> bool:
    """Whether the answer has every expected left row as often as expected, each beside a right row that is allowed."""
    answer = list(answer)
    choices = {_frozen(a): {_frozen(b) for b in bs} for a, bs in expected}
    lefts = Counter(_frozen(a) for a, _ in answer)
    return lefts == Counter(_frozen(a) for a, _ in expected) and all(
        _frozen(b) in choices[_frozen(a)] for a, b in answer
    )


def lies_in(value: Any, start: Any, end: Any, closed: str = "left") -> bool:
    """Whether the value lies between the bounds; a null bound is none, and a null value lies nowhere."""
    if value is None:
        return False
    after = start is None or value > start or (value == start and closed in ("left", "both"))
    until = end is None or value < end or (value == end and closed in ("right", "both"))
    return after and until


def enrich(
    stream: Sequence[Row],
    master: Sequence[Row],
    on: Keys,
    how: str = "inner",
    within: Sequence[tuple[str, str, str, str]] = (),
) -> list[Pair]:
    """Stream rows with the master rows of their key: inner, left, left_semi or left_anti.

    Each of `within` is (value, start, end, closed): the stream's value lies between the master's bounds.
    """
    return join(stream, master, lambda a, b: equal(on)(a, b) and _all_in(a, b, within), how)


def _all_in(a: Row, b: Row, within: Sequence[tuple[str, str, str, str]]) -> bool:
    return all(lies_in(a[value], b[start], b[end], closed) for value, start, end, closed in within)


def online_join(
    left: Sequence[Row],
    right: Sequence[Row],
    on: Keys = (),
    within: tuple[str, str, Any, Any] | None = None,
    how: str = "inner",
    closed: str = "both",
    null_safe: bool = False,
    **related_by: Any,
) -> list[Pair]:
    """Pairs of equal keys and, where `within=(l, r, lo, hi)` is given, with lo <= right[r] - left[l] <= hi.

    `closed` says which of both bounds are part of the band; `null_safe` that null keys equal each other; a `relation`
    is as in `related`. Of streams, rows are all that were not late; those that left before a partner came are this
    join's only with each other.
    """

    def matches(a: Row, b: Row) -> bool:
        if not all(same(a[x], b[y]) or (null_safe and a[x] is b[y] is None) for x, y in on):
            return False
        near = within is None or _in_band(a, b, *within, closed)
        return near and (not related_by or related(closed=closed, **related_by)(a, b))

    return join(left, right, matches, how)


def online_multijoin(inputs: Mapping[str, Sequence[Row]], on: Sequence[tuple[str, str]]) -> list[tuple[Row, ...]]:
    """Combinations of one row per input in which every pair of "input.column" names in `on` is equal."""
    names = list(inputs)
    terms = [[name.split(".", 1) for name in pair] for pair in on]
    rows = (dict(zip(names, combination, strict=True)) for combination in product(*inputs.values()))
    return [tuple(r.values()) for r in rows if all(same(r[a][x], r[b][y]) for (a, x), (b, y) in terms)]


def asof_join(
    left: Sequence[Row],
    right: Sequence[Row],
    on: tuple[str, str],
    by: Keys = (),
    direction: str = "backward",
    tolerance: Any = None,
    allow_exact: bool = True,
    how: str = "inner",
    prefer: Callable[[Row], Any] | None = None,
    last: bool = True,
) -> list[Pair]:
    """Each left row with the right row of its keys that is last before it, next after it, or nearest to it.

    Of rows at one time the one that `prefer` puts last (or first) is taken; of equally near ones the earlier.
    """
    first, second = on

    def allowed(a: Row, b: Row) -> bool:
        x, y = a[first], b[second]
        if x is None or y is None or x != x or y != y or not equal(by)(a, b):
            return False
        near = x == y or tolerance is None or abs(x - y) <= tolerance
        return near and (allow_exact if x == y else direction != ("backward" if y > x else "forward"))

    def best(a: Row) -> Row | None:
        rows = [b for b in right if allowed(a, b)]
        before = [b[second] for b in rows if b[second] <= a[first]]
        after = [b[second] for b in rows if b[second] >= a[first]]
        times = [*([max(before)] if before else []), *([min(after)] if after else [])]
        if not times:
            return None
        time = min(times, key=lambda y: (0 if a[first] == y else abs(a[first] - y), y))
        tied = sorted((b for b in rows if b[second] == time), key=prefer or (lambda _: 0))
        return tied[-1 if last else 0]

    return [(a, b) for a, b in ((a, best(a)) for a in left) if b is not None or how == "left"]


def by_key(rows: Sequence[Row], on: Sequence[str] = (), closed: str = "left") -> dict[Any, list[Row]]:
    """The rows that have an interval and a key, by key."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in on)
        if None not in key and not is_empty(row["start"], row["end"], closed):
            groups.setdefault(key, []).append(row)
    return groups


def clusters(rows: Sequence[Row], gap: Any = 0, on: Sequence[str] = (), closed: str = "left") -> list[list[Row]]:
    """Connected components: two rows are linked that share a point, or are at most `gap` apart; in order of start."""

    def linked(a: Row, b: Row) -> bool:
        if gap is None:
            return share_a_point(a["start"], a["end"], b["start"], b["end"], (closed, closed))
        first, last = min(a["end"], b["end"]), max(a["start"], b["start"])
        return bool(last <= first or (gap and last - first <= gap))  # texts have no differences

    found = []
    for group in by_key(rows, on, closed).values():
        left = list(group)
        while left:
            component, waiting = [], [min(left, key=lambda row: row["start"])]
            left = [row for row in left if row is not waiting[0]]
            while waiting:
                component.append(waiting.pop())
                near = [row for row in left if linked(component[-1], row)]
                left = [row for row in left if not any(row is other for other in near)]
                waiting += near
            found.append(component)
    return found


def pieces(rows: Sequence[Row], more: Iterable[Any] = ()) -> list[tuple[Any, Any]]:
    """The pieces between neighbouring bounds of these rows, and of `more` points."""
    points = sorted({*(row[bound] for row in rows for bound in ("start", "end")), *more})
    return list(pairwise(points))


def open_rows(rows: Sequence[Row], start: Any, end: Any, closed: str) -> int:
    """How many rows hold all of a piece; of a point, if it has length zero."""
    if start < end:
        return sum(row["start"] <= start and row["end"] >= end for row in rows)
    at_start, at_end = closed in ("left", "both"), closed in ("right", "both")
    after = [row for row in rows if row["start"] < start or (row["start"] == start and at_start)]
    return sum(row["end"] > start or (row["end"] == start and at_end) for row in after)


def interval_depth(rows: Sequence[Row], closed: str = "left") -> list[tuple[Any, Any, int]]:
    """Pieces of constant depth above zero, of rows of one key; a point that differs from both sides is a piece."""
    found: list[list[Any]] = []
    steps = [(start, start, end) for start, end in pieces(rows)]
    ends = [(row["end"],) * 3 for row in rows]
    for point, start, end in [*steps, *([max(ends)] if ends else [])]:
        at, depth = open_rows(rows, point, point, closed), open_rows(rows, start, end, closed) if start < end else 0
        before = found[-1][2] if found and found[-1][1] == point else 0
        if at not in (before, depth):
            found += [[point, point, at], [start, end, depth]]
        elif found and before == at == depth:
            found[-1][1] = end
        else:
            found.append([start, end, depth])
    return [(start, end, depth) for start, end, depth in found if depth > 0]


def uncovered(rows: Sequence[Row], start: Any, end: Any) -> list[tuple[Any, Any]]:
    """The parts of a range that no row covers, cut at rows of length zero."""
    inside = [piece for piece in pieces(rows, (start, end)) if piece[0] >= start and piece[1] <= end]
    free = [piece for piece in inside if not open_rows(rows, *piece, "left")]
    bounds = {row[bound] for row in rows for bound in ("start", "end")}
    joined: list[tuple[Any, Any]] = []
    for low, high in free:
        if joined and joined[-1][1] == low and low not in bounds:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


def covered(rows: Sequence[Row], start: Any, end: Any) -> Any:
    """How much of a range the rows cover together."""
    free = sum((high - low for low, high in uncovered(rows, start, end)), start - start)
    return end - start - free


def flat(
    pairs: Iterable[Pair], left_columns: Sequence[str], right_columns: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Pairs as plain tuples: the left columns, then the right ones, None where a side is missing."""
    return [
        tuple(a[c] if a else None for c in left_columns) + tuple(b[c] if b else None for c in right_columns)
        for a, b in pairs
    ]


def bag(rows: Iterable[Any]) -> Counter[Any]:
    """Rows with their multiplicities: equal bags are equal answers. NaN equals NaN in here, and 0.0 equals -0.0."""
    return Counter(_frozen(row) for row in rows)


def _in_band(a: Row, b: Row, left: str, right: str, lo: Any, hi: Any, closed: str) -> bool:
    if a[left] is None or b[right] is None:
        return False
    apart = b[right] - a[left]
    low = lo <= apart if closed in ("both", "left") else lo < apart
    return bool(low and (apart <= hi if closed in ("both", "right") else apart < hi))


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return "NaN" if value != value else value


def interval_nearest(
    left: Sequence[Row],
    right: Sequence[Row],
    bounds: tuple[tuple[str, str], tuple[str, str]] = (("start", "end"), ("start", "end")),
    by: Keys = (),
    k: int = 1,
    direction: str = "any",
    ignore_overlaps: bool = False,
    max_distance: Any = None,
    closed: tuple[str, str] = ("left", "left"),
) -> list[tuple[Row, list[tuple[Any, Row]]]]:
    """Each left row with all right rows that count, as (distance, row), nearest first: `k` of them, and all ties.

    Rows that overlap have distance 0 and count in every direction, unless they are ignored.
    """

    def usable(row: Row, names: tuple[str, str], side: str) -> bool:
        start, end = (row[name] for name in names)
        return start is not None and end is not None and (start < end or (side == "both" and start == end))

    def distance(a: Row, b: Row) -> Any:
        (s, e), (x, y) = (tuple(map(row.get, names)) for row, names in zip((a, b), bounds, strict=True))
        at_end = closed[0] in ("right", "both") and closed[1] in ("left", "both")
        at_start = closed[0] in ("left", "both") and closed[1] in ("right", "both")
        before = y < s or (y == s and not at_start)
        after = x > e or (x == e and not at_end)
        if not before and not after:
            return None if ignore_overlaps else s - s
        if direction == ("downstream" if before else "upstream"):
            return None
        return s - y if before else x - e

    found = []
    for a in left:
        near: list[tuple[Any, Row]] = []
        for b in right if usable(a, bounds[0], closed[0]) else []:
            if not usable(b, bounds[1], closed[1]) or not equal(by)(a, b):
                continue
            gap = distance(a, b)
            if gap is not None and (max_distance is None or gap <= max_distance):
                near.append((gap, b))
        near.sort(key=lambda each: each[0])
        found.append((a, [each for each in near if len(near) <= k or each[0] <= near[k - 1][0]]))
    return found


def within(bands: Sequence[tuple[str, str, Any, Any]], on: Keys = (), closed: str = "both") -> Match:
    """Rows match when low <= b - a <= high for every band (a, b, low, high), and their keys are the same.

    `closed` says which limits are included.
    """

    def inside(a: Any, b: Any, low: Any, high: Any) -> bool:
        if a is None or b is None or a != a or b != b:
            return False
        above = low is None or a + low < b or (closed in ("left", "both") and a + low == b)
        return above and (high is None or b < a + high or (closed in ("right", "both") and b == a + high))

    return lambda a, b: equal(on)(a, b) and all(inside(a[x], b[y], low, high) for x, y, low, high in bands)


def share_enough(
    min_overlap: Any = None, min_fraction: float | None = None, reciprocal: bool = False
) -> Callable[[Row, Row], bool]:
    """Rows whose intervals `start` to `end` share a least length, or a least part of the left one, or of both."""

    def enough(a: Row, b: Row) -> bool:
        shared = min(a["end"], b["end"]) - max(a["start"], b["start"])
        parts = [a, b] if reciprocal else [a]
        long = min_overlap is None or shared >= min_overlap
        part = Fraction(str(min_fraction or 0))
        return long and all(Fraction(shared) >= part * Fraction(row["end"] - row["start"]) for row in parts)

    return enough


def no_farther_than(gap: Any, on: Keys = (), closed: str = "left") -> Match:
    """Rows whose intervals `start` to `end` overlap, touch, or are apart by at most the gap."""

    def near(a: Row, b: Row) -> bool:
        if any(is_empty(row["start"], row["end"], closed) for row in (a, b)) or not equal(on)(a, b):
            return False
        return a["start"] - b["end"] <= gap and b["start"] - a["end"] <= gap

    return near


def after_changes(
    rows: Iterable[Row], changes: Iterable[Row], key: Sequence[str], sequence: Sequence[str], stored: bool = False
) -> list[Row]:
    """Rows of a unique key after changes, one after the other; if rows have their sequence, older ones do nothing."""
    found = {tuple(row[name] for name in key): row for row in rows}
    for change in sorted(changes, key=lambda row: [row[name] for name in sequence]):
        at = tuple(change[name] for name in key)
        known = found.get(at)
        if stored and known is not None and [change[n] for n in sequence] < [known[n] for n in sequence]:
            continue
        found.pop(at, None)
        if change["op"] != "d":
            found[at] = change
    return list(found.values())


Events = dict[tuple[Any, ...], dict[Any, Row | None]]


def add_events(events: Events, changes: Iterable[Row], key: Sequence[str], time: str) -> None:
    """Take changes of one micro-batch to the history of their key; a deletion of what is not there leaves no trace."""
    for change in changes:
        events.setdefault(tuple(change[n] for n in key), {})[change[time]] = None if change["op"] == "d" else change
    for history in events.values():
        before = None
        for at in sorted(history):
            if before is None and history[at] is None:
                del history[at]
            else:
                before = history[at]


def periods(events: Events) -> list[tuple[Row, Any, Any]]:
    """Each row with the time from which it is valid, and the next one of its key, None if it is still valid."""
    found = []
    for history in events.values():
        times = sorted(history)
        for at, until in zip(times, [*times[1:], *([None] if times else [])], strict=True):
            row = history[at]
            if row is not None:
                found.append((row, at, until))
    return found
