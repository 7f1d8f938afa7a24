"""Measures the cost of reading a store: timed on a few of its pages, and compared with the reads of a join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import queued_ns
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.storage.device import Device
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.setting import Points, ReadCosts
from dovetail.joins.semistream.master.pages import KeyedPages, Pages

_SIZES = (1, 4, 16, 64, 256)  # pages of a run

_PAGES_OF_A_ROUND = 256

_KEYS = 256  # that are looked up together

_KEY_PAGES = 16  # from which they are taken, at least: keys of one page would be found faster

_ATTEMPTS = 6

_FEWEST = 3  # attempts, if they are short: other processes slow single attempts down

_TIMED_S = 0.02  # of reading one size

_PATIENCE_S = 0.1

_MOST_BYTES = 2 << 20


def store_reads(pages: Pages) -> ReadCosts:
    """c_IO of this store as joins use it: random segments read in rounds, or single keys if the store finds them.

    Some hundred pages are read, fewer where that takes long, and at most `_MOST_BYTES` at a time; pages in the
    system's cache are read from there. The fastest of several attempts counts, since the others also waited for the
    processor.
    """
    n_pages = len(pages.starts) - 1
    if n_pages < 1:
        raise PlanError("the store has no pages; there is nothing to read.")
    rng, in_turn = np.random.default_rng(0), {}
    pages.read_many(np.zeros(1, np.int64), np.ones(1, np.int64))  # kernels may have to be loaded first
    for count in _counts(pages):
        places = iter(rng.integers(0, n_pages - count + 1, _ATTEMPTS).tolist())
        seconds = _quickest(pages, partial(_read_run, pages, places, count))
        in_turn[float(pages.stored_bytes(0, count))] = seconds
        if count > 1 and seconds > _TIMED_S:  # longer runs are extrapolated
            break
    is_server = isinstance(pages, KeyedPages) and not pages.reads_homes  # a database has no sequential reads
    return ReadCosts(_rising(in_turn if is_server else _rounds_s(pages, rng)), _rising(in_turn))


def _counts(pages: Pages) -> list[int]:
    """The lengths of runs that are timed, in pages."""
    n_pages = len(pages.starts) - 1
    return [n for n in _SIZES if n == 1 or (n <= n_pages and pages.stored_bytes(0, n) <= _MOST_BYTES)]


def _rounds_s(pages: Pages, rng: np.random.Generator) -> dict[float, float]:
    """Seconds of a run of pages by its bytes, several runs being read in one round."""
    n_pages, found = len(pages.starts) - 1, {}
    quick = _TIMED_S / max(1e-6, _quickest(pages, lambda: pages.read(0, 1)))
    if pages.device.at_once > 1:  # so that reads are timed as they are made: many under way
        quick = max(quick, 2 * pages.device.at_once)
    few = min(_PAGES_OF_A_ROUND, quick, _MOST_BYTES / max(1, pages.stored_bytes(0, 1)))
    for count in _counts(pages):
        runs = max(1, min(int(few) // count, n_pages // count))
        counts = np.full(runs, count, np.int64)
        draws = (rng.choice(n_pages // count, runs, replace=False) for _ in range(_ATTEMPTS))
        firsts = (np.sort(drawn).astype(np.int64) * count for drawn in draws)
        each = _quickest(pages, partial(_read_round, pages, firsts, counts))
        found[float(pages.stored_bytes(0, count))] = each / runs
    return found


def _read_run(pages: Pages, places: Iterator[int], count: int) -> None:
    pages.read(next(places), count)


def _read_round(pages: Pages, firsts: Iterator[I64], counts: I64) -> None:
    pages.read_many(next(firsts), counts)


def look_up_s(pages: Pages) -> float | None:
    """Seconds per key, or home page, when many are looked up together; None if the store does not find keys.

    Looks up some hundred random keys, of as many pages as can be read quickly.
    """
    n_pages = len(pages.starts) - 1
    if n_pages < 1 or not isinstance(pages, KeyedPages) or not pages.finds_keys:
        return None
    single_s = _quickest(pages, lambda: pages.read(0, 1))
    spread = int(min(_KEYS, max(_KEY_PAGES, 2 * pages.device.at_once, _TIMED_S / max(1e-6, single_s))))
    places = np.unique(np.random.default_rng(0).integers(0, n_pages, spread)).astype(np.int64)
    rows, starts = pages.read_many(places, np.ones(len(places), np.int64))
    each = np.minimum(np.diff(starts), -(-_KEYS // spread))
    rows = rows.take(pa.array(expand_runs(int64s(starts[:-1]), int64s(each))))
    keys = [rows.column(name) for name in pages.key]
    units = len(places) if pages.reads_homes else len(keys[0])
    return _quickest(pages, lambda: pages.read_keys(keys, _MOST_BYTES)) / max(1, units)


def _quickest(pages: Pages, work: Callable[[], object]) -> float:
    """Seconds of the fastest attempt among those without a wait for the processor, or of all if each had one."""
    times: list[tuple[bool, float]] = []
    spent = 0.0
    while len(times) < _ATTEMPTS and spent < (_TIMED_S if len(times) >= _FEWEST else _PATIENCE_S):
        before = queued_ns()
        spent += (seconds := _seconds(pages, work))
        times.append((queued_ns() > before, seconds))
    return min(times)[1]


def _seconds(pages: Pages, work: Callable[[], object]) -> float:
    clock = pages.device.clock
    start = clock.now_ns()
    work()
    return (clock.now_ns() - start) / 1e9


def _rising(points: dict[float, float]) -> Points:
    """Points by size, made monotonic: no size costs more than a larger one, as disturbances only add time."""
    sizes = sorted(points)
    costs = np.minimum.accumulate([points[size] for size in reversed(sizes)])[::-1]
    return tuple(zip(sizes, costs.tolist(), strict=True))


LARGE_PAGE = 2 << 20  # bytes; such as row groups of Parquet files that were not written for look-ups

MOVED = 3.0  # ratio to the assumed cost; smaller changes may be noise, or the system's cache

_COMPARED_S = 0.02  # seconds of reading that suffice to compare its cost


@dataclass(frozen=True, slots=True)
class IoCosts:
    """Seconds of a read by its size, of one key if the store finds keys, and of a micro-batch without its rows.

    `by_page`: keys of one page share a look-up.
    """

    read: ReadCosts
    look_up: float | None = None
    micro_batch: float = 0.0
    by_page: bool = False

    def times(self, ratio: float) -> IoCosts:
        """The costs with reads and look-ups multiplied by `ratio`."""
        return replace(
            self, read=self.read.times(ratio), look_up=None if self.look_up is None else self.look_up * ratio
        )


@dataclass(frozen=True, slots=True)
class IoDone:
    """Reads made: how many, their bytes, and the time they took on the device's clock."""

    requests: int = 0
    nbytes: int = 0
    busy_s: float = 0.0

    @classmethod
    def by(cls, device: Device) -> IoDone:
        """All reads of a device so far."""
        return cls(device.requests, device.bytes_read, device.busy_ns / 1e9)

    def since(self, before: IoDone) -> IoDone:
        """The reads after `before`."""
        return IoDone(self.requests - before.requests, self.nbytes - before.nbytes, self.busy_s - before.busy_s)


def io_costs(pages: Pages) -> IoCosts | None:
    """The costs of this store: from the model of a simulated device, else timed on a few pages.

    None if the store has large pages, which would take too long, or no rows.
    """
    if not int(pages.starts[-1]):
        return None
    if pages.device.simulated:
        return IoCosts(ReadCosts.of_device(pages.device.model))
    if pages.stored_bytes(0, 1) > LARGE_PAGE:
        return None
    by_page = isinstance(pages, KeyedPages) and pages.reads_homes
    return IoCosts(store_reads(pages), look_up_s(pages), by_page=by_page)


def dearer(costs: IoCosts | None, done: IoDone, pages: Pages) -> float | None:
    """The ratio of these reads' cost to the assumed one; None if it is about 1, or if there were too few reads."""
    if costs is None or not done.requests or done.busy_s < _COMPARED_S:
        return None
    expected = _expected_s(costs, done, pages)
    ratio = done.busy_s / expected if expected else 1.0
    return None if 1 / MOVED <= ratio <= MOVED else ratio


def _expected_s(costs: IoCosts, done: IoDone, pages: Pages) -> float:
    if costs.look_up is not None and isinstance(pages, KeyedPages) and pages.finds_keys:
        n_pages, rows = len(pages.starts) - 1, int(pages.starts[-1])
        stored = pages.stored_bytes(0, n_pages) / max(1, n_pages if pages.reads_homes else rows)
        return costs.look_up * done.nbytes / max(1.0, stored)
    return done.requests * costs.read.seconds(done.nbytes / done.requests)
