"""Counts what a run did: named numbers with units, per side, that add up across tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Literal, cast

from dovetail.engine.frequent import FrequentItems
from dovetail.engine.memory import format_bytes
from dovetail.errors import DataError

Kind = Literal["counter", "peak", "timer"]
_Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One number: `value` over all tasks, `largest` of a single task, and the value of each task where kept."""

    name: str
    side: str | None
    kind: Kind
    unit: str
    value: int
    largest: int
    per_task: tuple[int, ...] | None = None

    @property
    def skew(self) -> float | None:
        """Largest task over median task, of the tasks that recorded this; None when the tasks were not kept apart."""
        if self.per_task is None:
            return None
        middle, largest = median(self.per_task), max(self.per_task)
        return largest / middle if middle else (1.0 if largest == 0 else float("inf"))

    def joined(self, other: Entry) -> Entry:
        """Both entries as one: peaks by maximum, counters and timers by sum."""
        _check_same_kind(self, other)
        return replace(
            self,
            value=max(self.value, other.value) if self.kind == "peak" else self.value + other.value,
            largest=max(self.largest, other.largest),
            per_task=_both_or_neither(self.per_task, other.per_task),
        )


@dataclass
class _Task:
    """The numbers recorded in one object, which counts as one task."""

    entries: dict[_Key, Entry] = field(default_factory=dict)

    def record(self, entry: Entry) -> None:
        """Add to, or raise, what this task recorded before under the same name and side."""
        before = self.entries.get((entry.name, entry.side))
        if before is not None:
            _check_same_kind(before, entry)
            together = max if entry.kind == "peak" else int.__add__
            value = together(before.value, entry.value)
            tasks = None if before.per_task is None and entry.per_task is None else (value,)
            entry = replace(entry, value=value, largest=value, per_task=tasks)
        self.entries[entry.name, entry.side] = entry


class Metrics:
    """Counters, peaks and timers of one task, and of every task merged into it.

    Counters and timers of several tasks add up and keep the largest task; peaks keep the maximum. Where a counter
    was added with `per_task=True` the value of every task is kept, for the skew. Merging is associative and
    commutative, and survives JSON and pickle. Notes are remarks for readers of the numbers, such as that a device was
    simulated. Frequent items are counted within bounds, in any order. Not for concurrent use: one object per operator.

    >>> metrics = Metrics()
    >>> metrics.add("rows", 3); metrics.add("rows", 4)
    >>> metrics.value("rows")
    7
    """

    def __init__(self) -> None:
        self._own = _Task()
        self._merged: dict[_Key, Entry] = {}
        self._merged_tasks = 0
        self._notes: set[str] = set()
        self._ratios: dict[str, tuple[str, str]] = {}
        self._frequent: dict[_Key, FrequentItems] = {}

    def add(self, name: str, n: int = 1, side: str | None = None, unit: str = "rows", per_task: bool = False) -> None:
        """Count `n` more of something."""
        n = int(n)
        self._own.record(Entry(name, side, "counter", unit, n, n, (n,) if per_task else None))

    def peak(self, name: str, n: int, side: str | None = None, unit: str = "bytes") -> None:
        """Record `n` if it is the largest so far."""
        n = int(n)
        self._own.record(Entry(name, side, "peak", unit, n, n))

    def add_ns(self, name: str, nanoseconds: int, side: str | None = None, per_task: bool = False) -> None:
        """Add time that was measured elsewhere."""
        n = int(nanoseconds)
        self._own.record(Entry(name, side, "timer", "ns", n, n, (n,) if per_task else None))

    def count_items(self, name: str, counts: Mapping[str, int], total: int, side: str | None = None) -> None:
        """Count items, of which only the most frequent are kept: see `FrequentItems.add`."""
        self._frequent.setdefault((name, side), FrequentItems()).add(counts, total)

    def frequent(self, name: str, side: str | None = None) -> FrequentItems:
        """The most frequent items of one side; none if never counted."""
        return self._frequent.get((name, side), FrequentItems())

    def note(self, text: str) -> None:
        """Attach a remark; the same remark from many tasks appears once."""
        self._notes.add(text)

    def ratio(self, name: str, over: str, under: str) -> None:
        """Show, for every side that has both, the number called `over` divided by the one called `under`."""
        self._ratios[name] = over, under

    def merge(self, other: Metrics) -> Metrics:
        """Take in everything of `other`, which stays as it is; returns self."""
        self.include(other)
        self._merged_tasks += other.tasks
        return self

    def include(self, other: Metrics) -> Metrics:
        """As `merge`, but `other` is no task of its own: the numbers of a part of a task, or of the driver."""
        for entry in other.entries():
            key = entry.name, entry.side
            before = self._merged.get(key)
            self._merged[key] = entry if before is None else before.joined(entry)
        self._notes |= other._notes
        self._ratios |= other._ratios
        for (name, side), items in other._frequent.items():
            self.count_items(name, items.counts, items.total, side)
        return self

    def exchanged(self, one: str, other: str) -> Metrics:
        """The same numbers with two sides exchanged."""
        new, sides = Metrics().merge(self), {one: other, other: one}
        entries = [replace(entry, side=sides.get(entry.side or "", entry.side)) for entry in self.entries()]
        new._merged = {(entry.name, entry.side): entry for entry in entries}
        new._merged_tasks = self.tasks
        return new

    @property
    def tasks(self) -> int:
        """Number of tasks whose numbers are included."""
        return self._merged_tasks + bool(self._own.entries)

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks, in alphabetical order."""
        return tuple(sorted(self._notes))

    def entries(self) -> tuple[Entry, ...]:
        """Every number, by name and then side; a number without a side comes before those with one."""
        together = dict(self._merged)
        for key, own in self._own.entries.items():
            together[key] = together[key].joined(own) if key in together else own
        return tuple(together[key] for key in sorted(together, key=lambda key: (key[0], key[1] or "")))

    def value(self, name: str, side: str | None = None) -> int:
        """The number called `name` of one side, or over all sides when `side` is None; 0 if never recorded."""
        found = [e for e in self.entries() if e.name == name and side in (None, e.side)]
        if found and found[0].kind == "peak":
            return max(e.value for e in found)
        return sum(e.value for e in found)

    def seconds(self, name: str, side: str | None = None) -> float:
        """A timer in seconds, over all tasks."""
        return self.value(name, side) / 1e9

    def skew(self, name: str, side: str | None = None) -> float | None:
        """Largest task over median task of a counter kept per task; None when it was not."""
        return next((e.skew for e in self.entries() if (e.name, e.side) == (name, side)), None)

    def as_dict(self) -> dict[str, int | float]:
        """Plain numbers by "name" or "name.side"; with ".max" a timer's largest task, with ".skew" a counter's skew."""
        out: dict[str, int | float] = {}
        for entry in self.entries():
            label = _label(entry)
            out[label] = entry.value
            if entry.kind == "timer":
                out[f"{label}.max"] = entry.largest
            if entry.skew is not None:
                out[f"{label}.skew"] = entry.skew
        return out | {_name(name, side): value for name, side, value in self.ratios()}

    def ratios(self) -> tuple[tuple[str, str | None, float], ...]:
        """Name, side and value of every ratio that has both its numbers, and not 0 below."""
        values = {(entry.name, entry.side): entry.value for entry in self.entries()}
        sides = sorted({side for _, side in values}, key=lambda side: side or "")
        return tuple(
            (name, side, values[over, side] / values[under, side])
            for name, (over, under) in sorted(self._ratios.items())
            for side in sides
            if (over, side) in values and values.get((under, side))
        )

    def to_json(self) -> str:
        """Everything as one line of JSON, in a fixed order."""
        entries = [asdict(entry) for entry in self.entries()]
        body = {"tasks": self.tasks, "notes": self.notes, "ratios": self._ratios, "entries": entries}
        if self._frequent:
            body["frequent"] = [
                (*key, items.total, items.counts) for key, items in sorted(self._frequent.items(), key=str)
            ]
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Metrics:
        """The metrics that `to_json` wrote; they merge as the originals would."""
        metrics = cls()
        try:
            body = json.loads(text)
            entries = [_entry_from(item) for item in body["entries"]]
            metrics._merged_tasks = int(body["tasks"])
            metrics._notes = set(body["notes"])
            metrics._ratios = {name: (str(over), str(under)) for name, (over, under) in body["ratios"].items()}
            for name, side, total, counts in body.get("frequent", ()):
                metrics.count_items(name, counts, total, side)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"these are not metrics as to_json writes them: {text[:80]!r} ({error!r}).") from error
        metrics._merged = {(entry.name, entry.side): entry for entry in entries}
        return metrics

    def __str__(self) -> str:
        rows = [("metric", "side", "value", "largest task", "skew"), *map(_shown, self.entries())]
        rows += [(name, side or "", f"{value:.3f}", "", "") for name, side, value in self.ratios()]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        frequent = [f"most frequent {_name(*key)}: {items}" for key, items in self._frequent.items() if items.counts]
        return "\n".join([*lines, *frequent, *(f"note: {note}" for note in self.notes)])


def _check_same_kind(one: Entry, other: Entry) -> None:
    if (one.kind, one.unit) != (other.kind, other.unit):
        raise ValueError(
            f"metric {_label(one)!r} is a {one.kind} in {one.unit}; it cannot also be a {other.kind} in {other.unit}. "
            f"Use another name."
        )


def _both_or_neither(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    # Sorted, so that merging in any order gives the same bytes. There is no skew if a task did not keep the value.
    return None if one is None or other is None else tuple(sorted(one + other))


def _entry_from(item: dict[str, Any]) -> Entry:
    tasks = item["per_task"]
    kind = item["kind"]
    if kind not in ("counter", "peak", "timer"):
        raise ValueError(f"unknown kind {kind!r}")
    number = Entry(item["name"], item["side"], cast(Kind, kind), item["unit"], int(item["value"]), int(item["largest"]))
    return replace(number, per_task=None if tasks is None else tuple(int(t) for t in tasks))


def _label(entry: Entry) -> str:
    return _name(entry.name, entry.side)


def _name(name: str, side: str | None) -> str:
    return name if side is None else f"{name}.{side}"


def _shown(entry: Entry) -> tuple[str, str, str, str, str]:
    skew = "" if entry.skew is None else f"{entry.skew:.2f}"
    largest = "" if entry.kind == "peak" else _amount(entry.largest, entry.unit)
    return entry.name, entry.side or "", _amount(entry.value, entry.unit), largest, skew


def _amount(value: int, unit: str) -> str:
    if unit == "ns":
        return f"{value / 1e9:.3f} s"
    return format_bytes(value) if unit == "bytes" else f"{value:,} {unit}"
