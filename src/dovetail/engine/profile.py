"""Keeps the unit costs of this machine for cost models: measured by `dovetail calibrate`, else typical figures."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from dovetail.errors import ConfigError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds for one unit of work: the median of several measurements, and the spread between the quartiles."""

    seconds: float
    low: float
    high: float
    samples: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.seconds <= self.high < float("inf") or self.samples < 0:
            raise ValueError(
                f"a cost of {self.seconds} s between {self.low} and {self.high} from {self.samples} samples is not "
                f"possible; it must be finite, not negative, and inside its spread."
            )


@dataclass(frozen=True, slots=True)
class PageCost:
    """The cost of one page of a certain size."""

    nbytes: int
    cost: Cost


def _typical(seconds: float) -> Cost:
    return Cost(seconds, seconds / 2, seconds * 2, 0)


def _typical_pages(seconds: float, bytes_per_s: float) -> tuple[PageCost, ...]:
    return tuple(PageCost(n, _typical(seconds + n / bytes_per_s)) for n in (4096, 65_536, 1_048_576))


@dataclass(frozen=True, slots=True)
class Profile:
    """Unit costs of one machine. Values that were never measured are typical of a 2020s server with a flash disk.

    `probe`, `insert`, `evict`: one tuple in a hash table. `emit`: one result row gathered into a batch. `compare`: one
    predicate on two rows in a kernel. `sort`: one row and one level, so that n rows cost n * log2(n) of them.
    `python_to_jvm_row` and `shuffle_row`: one row of some eight columns. Pages by size, of a file outside the cache.
    `segment_load` and `segment_visit`: the fixed cost of a segment of master data, in a round of loads beside its
    read, and of one in memory that rows probe, beside a table over it.
    """

    page_read_random: tuple[PageCost, ...] = _typical_pages(100e-6, 500e6)
    page_read_sequential: tuple[PageCost, ...] = _typical_pages(3e-6, 1000e6)
    page_write: tuple[PageCost, ...] = _typical_pages(10e-6, 500e6)
    probe: Cost = field(default=_typical(50e-9))
    insert: Cost = field(default=_typical(80e-9))
    evict: Cost = field(default=_typical(80e-9))
    emit: Cost = field(default=_typical(30e-9))
    compare: Cost = field(default=_typical(1.5e-9))
    sort: Cost = field(default=_typical(5e-9))
    python_to_jvm_row: Cost = field(default=_typical(100e-9))
    shuffle_row: Cost = field(default=_typical(1e-6))
    segment_load: Cost = field(default=_typical(0.5e-6))
    segment_visit: Cost = field(default=_typical(40e-6))
    measured_at: str | None = None
    cpu: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.page_read_random and self.page_read_sequential and self.page_write):
            raise ValueError("a profile needs the cost of at least one page size for each way to read and write pages.")

    @property
    def measured(self) -> bool:
        """Whether these figures were measured, and are not the typical ones of this file."""
        return self.measured_at is not None

    def age_days(self, now: datetime | None = None) -> float | None:
        """Days since the measurement; None for typical figures."""
        if self.measured_at is None:
            return None
        return ((now or datetime.now(UTC)) - datetime.fromisoformat(self.measured_at)).total_seconds() / 86_400

    def page_read_s(self, nbytes: int, sequential: bool = False) -> float:
        """Seconds to read a page of this size: between measured sizes on a line, beyond the largest in proportion."""
        return _on_line(self.page_read_sequential if sequential else self.page_read_random, nbytes)

    def page_write_s(self, nbytes: int) -> float:
        """Seconds to write a page of this size, as `page_read_s`."""
        return _on_line(self.page_write, nbytes)

    def explain(self) -> str:
        """One line: what this is, and how old."""
        if self.measured_at is None:
            return "profile: typical figures (run `dovetail calibrate` to measure this machine)"
        return f"profile: measured {self.measured_at} on {self.cpu or 'an unnamed processor'}"

    def save(self, path: Path | None = None) -> Path:
        """Keep the profile in a file, which is replaced whole or not at all; returns where."""
        target = path or profile_path()
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace_file(target, text + "\n")
        except OSError as error:
            raise ConfigError(
                f"cannot keep the profile in {target} ({error.strerror}); set DOVETAIL_PROFILE to a file that can be "
                f"written."
            ) from error
        return target


def profile_path() -> Path:
    """Where the profile is kept: $DOVETAIL_PROFILE, else dovetail/profile.json among the user's settings."""
    named = os.environ.get("DOVETAIL_PROFILE")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/dovetail/profile.json").expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "dovetail" / "profile.json"


def load_profile(path: Path | None = None) -> Profile:
    """The profile kept for this machine; typical figures when none was measured. A damaged file is a `ConfigError`."""
    source = path or profile_path()
    try:
        body = json.loads(source.read_text("utf-8"))
    except FileNotFoundError:
        return Profile()
    except (OSError, ValueError) as error:
        raise _damaged(source, str(error)) from error
    try:
        return _profile_from(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(source, f"{type(error).__name__}: {error}") from error


def _damaged(source: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the profile {source} cannot be read ({reason}); run `dovetail calibrate` to measure again, or delete it."
    )


def _profile_from(body: dict[str, Any]) -> Profile:
    if body.pop("format") != _FORMAT:
        raise ValueError("it was written by another version of Dovetail")
    unknown = set(body) - {f.name for f in fields(Profile)}
    if unknown:
        raise ValueError(f"unknown entries {sorted(unknown)}")
    values = {name: _value_from(name, value) for name, value in body.items()}
    profile = replace(Profile(), **values)
    profile.age_days()  # an unreadable date should be found here, not in a cost model
    return profile


def _value_from(name: str, value: Any) -> Any:
    if name.startswith("page_"):
        return tuple(PageCost(int(page["nbytes"]), Cost(**page["cost"])) for page in value)
    return value if name in ("measured_at", "cpu", "versions") else Cost(**value)


def _on_line(pages: tuple[PageCost, ...], nbytes: int) -> float:
    known = sorted((page.nbytes, page.cost.seconds) for page in pages)
    if nbytes >= known[-1][0]:
        return known[-1][1] * nbytes / known[-1][0]
    if nbytes <= known[0][0]:
        return known[0][1]
    (n0, s0), (n1, s1) = next(pair for pair in pairwise(known) if nbytes <= pair[1][0])
    return s0 + (s1 - s0) * (nbytes - n0) / (n1 - n0)


def _replace_file(target: Path, text: str) -> None:
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
