"""Writes a log of events as the state of online joins has it, and the answers of every join to each of them.

State is restored with answers discarded: settled rows are loaded, later events are replayed. A join that gives other
answers, or the same in another order, to the same events would lose pairs or give them twice. So where the order
changes, `EPOCH` in `bucket_state.py` is raised by one, and `python -m tests.online.frame.golden_log` writes the
files of this test again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.joins.online.bucket_join import BucketJoin, Pair, Running, Tree
from dovetail.joins.online.bucket_state import EPOCH
from dovetail.joins.online.events import Event, Piece, pack_events, unpack_events
from dovetail.joins.online.graph import SIDES, Band
from dovetail.joins.online.operators import ALGORITHMS, MULTIWAY

PLACE = Path(__file__).with_name("golden")
ANSWERS = PLACE / "answers.json"
_SCHEMAS = [pa.schema([("k", pa.int64()), ("x", pa.int64()), (name, pa.string())]) for name in "abc"]
_ROUNDS, _ROWS = 5, 45
WAYS = ("replayed", "loaded")


def joins() -> Iterator[tuple[str, BucketJoin]]:
    """Every algorithm, with equal columns, with a band beside them, and with a band alone where it can."""
    pair, three = tuple(zip(SIDES, _SCHEMAS[:2], strict=True)), tuple(zip("abc", _SCHEMAS, strict=True))
    for name, kind in ALGORITHMS.items():
        memory = (1 << 20) if name == "shj" else (24 << 10)
        for on in (("k",), ()) if kind.bands else (("k",),):
            for band in (None, Band("x", "x", -9, 4)) if on else (Band("x", "x", -9, 4),):
                yield f"{name} on {list(on)} within {band}", BucketJoin(name, Pair(on, band), memory, True, pair)
    for name in MULTIWAY:
        for last in (("b.x", "c.x"), ("b.x", "c.x", -9, 4), ("b.k", "c.k")):
            on = (("a.k", "b.k"), last)
            yield f"{name} on {on}", BucketJoin(name, Tree(on), 80 << 10, True, three)


def log_of(inputs: int) -> Path:
    """The file of events of `inputs` inputs."""
    return PLACE / f"events_{inputs}.bin"


def answers_of(join: BucketJoin, log: bytes, loads: bool) -> list[str]:
    """For each event how many rows it brought, and a digest of these in their order.

    If it `loads`, the events up to the settlement are settled rows.
    """
    running, events, found = Running(join), list(unpack_events(log)), []
    if loads:
        at = [event.kind for event in events].index("settle")
        running.take_up([Piece(pack_events(events[:at]), settled=True)])
        events = events[at + 1 :]
    try:
        for event in events:
            rows = [list(row.values()) for batch in running.apply(event) for row in batch.to_pylist()]
            digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]
            found.append(f"{len(rows)} {digest}")
    finally:
        running.close()
    return found


def events_of(inputs: int) -> Iterator[Event]:
    """Rows of all inputs in turn, pauses, a settlement, and the end."""
    rng = np.random.default_rng(inputs)
    for number in range(_ROUNDS):
        for side in range(inputs):
            keys, near = rng.integers(0, 12, _ROWS), rng.integers(0, 200, _ROWS)
            names = [f"{number}-{n}" for n in range(_ROWS)]
            columns: list[Any] = [pa.array(keys), pa.array(near), pa.array(names)]
            yield Event("push", side, rows=pa.RecordBatch.from_arrays(columns, schema=_SCHEMAS[side]).serialize())
        yield Event("settle") if number == 2 else Event("idle", units=3, times=2)
    yield Event("finish")


def write() -> None:
    """The files, as this version writes and answers them."""
    PLACE.mkdir(exist_ok=True)
    for inputs in (2, 3):
        log_of(inputs).write_bytes(pack_events(events_of(inputs)))
    answers = {
        name: {way: answers_of(join, log_of(len(join.names)).read_bytes(), way == "loaded") for way in WAYS}
        for name, join in joins()
    }
    ANSWERS.write_text(json.dumps({"epoch": EPOCH, "answers": answers}, indent=1) + "\n")


if __name__ == "__main__":
    write()
