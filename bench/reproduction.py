"""The claims of the sources that do not hold here, each with the reason, on one page: `docs/reproduction.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.catalogue import load_experiments
from bench.experiment import FAULTS, Experiment, Statement
from bench.machine import digest
from bench.page import SOURCES, kept, telling

_HEAD = """# Which claims of the sources hold

Written by `python -m bench report` from the kept figures of the experiments; do not edit. Each experiment repeats a
figure, table or sentence of a source and makes one or more statements about it. A statement holds, does not hold, or
was not tested. One that does not hold has a cause:

* **the source's claim**: our code counts what the source defines, and the claim does not follow from it;
* **our code**: our operator or model differs from the source's where the claim depends on it;
* **the scale here**: the effect needs more rows, cores or a slower disk than the figures were measured with;
* **unexplained**: the cause is not known, or was not told yet when the figures were kept: older ones join several
  statements into one, with the verdict of each behind it.

Counted figures (operations, alone or times a table of costs) are the same on every machine. Measured figures depend on
it. `make bench` repeats all experiments at small scale but for some that take long, `make paper` at the sources' own
sizes; both keep commit and machine with the figures.

Figures of several commits stand together, and each names its own. They are figures of the same code: with each is kept
a digest of all the code that it depends on, and it is told only if the code of today has the same digest, or else as
"before": measured before the last change of the code that it depends on.

Figures of a cluster come from three workers on two cores of one machine: they show that rows are exchanged, that work
is balanced, and that answers stay the same. They show no speed-up, which needs a core for each worker.
"""
_ORDER = ("source", "ours", "scale", "")


@dataclass(frozen=True, slots=True)
class Told:
    """One statement of an experiment, with where and when it was measured."""

    experiment: Experiment
    statement: Statement
    scale: str
    measured_at: str
    commit: str
    stale: bool

    def line(self) -> str:
        """The statement as an item of a list."""
        reason = self.statement.reason.rstrip(".")
        why = f" {reason[0].upper()}{reason[1:]}." if reason else ""
        old = ", before" if self.stale else ""
        commit = f", commit {self.commit}" if self.commit else ""
        where = f"`{self.experiment.name}`, {self.experiment.ground}, {self.scale}, {self.measured_at}{commit}{old}"
        return f"* {', '.join(self.experiment.places)}: {self.statement.says}.{why} ({where})"


def write_claims(figures: Path, to: Path) -> Path:
    """Write the page from the kept figures; gives its path."""
    told = list(_told(kept(figures)))
    parts = [_HEAD, _totals(told)]
    parts += [_of_source(source, [one for one in told if one.experiment.source == source]) for source in _sources(told)]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(parts))
    return to


def _told(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Told]:
    """The statements on claims of sources, of the largest scale with figures of today's code, if there are any."""
    for name, experiment in load_experiments().items():
        whole = next(iter(telling(experiment, found.get(name, {}))), None)
        if experiment.source == "our own" or whole is None or whole["entry"]["findings"] is None:
            continue
        entry, commit = whole["entry"], str(whole.get("commit") or "")[:8]
        stale = entry["code"] != digest(experiment.measures)
        for one in entry["findings"]["statements"]:
            yield Told(experiment, Statement(**one), entry["scale"], entry["measured_at"][:10], commit, stale)


def _sources(told: Sequence[Told]) -> list[str]:
    return sorted({one.experiment.source for one in told})


def _totals(told: Sequence[Told]) -> str:
    heads = ("source", "statements", "hold", *(f"do not: {FAULTS[fault]}" for fault in _ORDER), "not tested")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for source in _sources(told):
        some = [one.statement for one in told if one.experiment.source == source]
        verdicts = Counter(one.verdict for one in some)
        faults = Counter(one.fault for one in some if one.verdict == "does not hold")
        cells = [
            source,
            len(some),
            verdicts["holds"],
            *(faults[fault] for fault in _ORDER),
            verdicts["not tested here"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    commits = ", ".join(sorted({one.commit for one in told if one.commit}))
    return "\n".join([*lines, "", f"Commits that the figures were measured with: {commits}.", ""])


def _of_source(source: str, told: Sequence[Told]) -> str:
    """The statements of one source that do not hold, by cause."""
    parts = [f"## {source}", "", *(f"{SOURCES[name]}." for name in SOURCES if name in source), ""]
    for fault in _ORDER:
        some = [one.line() for one in told if one.statement.verdict == "does not hold" and one.statement.fault == fault]
        if some:
            parts += [f"### {FAULTS[fault].capitalize()}", "", *some, ""]
    if len(parts) == 4:
        parts += ["Every statement that was tested holds.", ""]
    return "\n".join(parts)
