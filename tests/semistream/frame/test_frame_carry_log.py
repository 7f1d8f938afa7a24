"""The log of states: the first attempt's stands, and rows that wait in it are recognised by value."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.semistream.frame.cases import rows_of

from dovetail.errors import ConfigError
from dovetail.joins.semistream import state as state_module
from dovetail.joins.semistream.decision import Decision
from dovetail.joins.semistream.sizes import Sizes
from dovetail.joins.semistream.state import FORMAT, NEXT, Carried, StateLog, WaitingRows

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.list_(pa.int32()))])


def state(rows: list[dict[str, Any]], parked: list[dict[str, Any]] | None = None, matched: int = 0) -> Carried:
    """A state in which these rows wait, and before them some that were answered and still pass pages."""
    passing = [{"a": -1, "b": "passing"}] * matched
    waits = {"age_ns": [0] * (len(rows) + matched), "matched": [True] * matched + [False] * len(rows)}
    tables = {"rows": pa.Table.from_pylist(passing + rows, COLUMNS), "waits": pa.table(waits)}
    later = None
    if parked is not None:
        table = pa.Table.from_pylist(parked, COLUMNS)
        later = table.append_column(NEXT, pa.array(range(len(parked)), pa.int64()))
    return Carried("1-a", Decision("meshjoin", Sizes(), "carried"), 0, tables, later, 3, "name")


def batches(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    return pa.Table.from_pylist(rows, COLUMNS).to_batches(max_chunksize=size)


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_rows_are_kept_or_others_each_as_often_as_it_is_there(size: int) -> None:
    rng = random.Random(size)  # noqa: S311  (rows, not secrets)
    pool = [
        {"a": rng.choice([None, 0, 1]), "b": rng.choice([None, "", "x"]), "c": rng.choice([None, 0.5]), "d": d}
        for d in (None, [], [1], [1, None])
        for _ in range(5)
    ]
    rows = [rng.choice(pool) for _ in range(200)]
    chosen = rng.sample(range(200), 60)
    kept = WaitingRows(state([rows[at] for at in chosen[:40]], [rows[at] for at in chosen[40:]], matched=3), COLUMNS)
    others = [batch.to_pylist() for batch in kept.others(iter(batches(rows, size)))]
    expected = Counter(repr(row) for at, row in enumerate(rows) if at not in chosen)
    assert Counter(repr(row) for some in others for row in some) == expected
    assert len(kept) == 0


def test_state_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = state([{"a": 1}]).to_bytes()
    monkeypatch.setattr(state_module, "FORMAT", state_module.FORMAT + 1)
    with pytest.raises(ConfigError, match=rf"state of format {FORMAT}, not {FORMAT + 1}; use a new checkpoint"):
        Carried.from_bytes(data)


def test_not_a_number_equals_itself_and_what_was_not_given_is_left() -> None:
    kept = WaitingRows(state([{"a": 1, "c": float("nan")}, {"a": 2}]), COLUMNS)
    others = list(kept.others(iter(batches([{"a": 1, "c": float("nan")}, {"a": 1, "c": float("nan")}], 5))))
    assert [batch.num_rows for batch in others] == [1]
    assert len(kept) == 1


def test_the_first_state_stands_and_old_ones_go(tmp_path: Path) -> None:
    first, second = state([{"a": 1}]).to_bytes(), state([{"a": 2}]).to_bytes()
    log = StateLog(tmp_path / "query", "name", 7, False)
    assert log.read() is None
    log.write(first)
    log.write(first)
    with pytest.raises(ConfigError, match="written by another attempt"):
        log.write(second)
    found = log.read()
    assert found is not None
    assert (found.name, found.micro_batches) == ("name", 3)
    assert rows_of(found.snapshot["rows"].select(["a"])) == {(1,): 1}
    assert StateLog(tmp_path / "query", "name", 7, True).read() is None, "a call without rows is another one"
    assert StateLog(tmp_path / "query", "other", 7, False).read() is None, "so is that of another bucket or join"
    StateLog(tmp_path / "query", "other", 3, False).write(first)
    for number in (8, 9):
        StateLog(tmp_path / "query", "name", number, False).write(second)
    assert sorted(file.name for file in (tmp_path / "query").iterdir()) == [
        "name.8.state", "name.9.state", "other.3.state",
    ]  # fmt: skip


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "query").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*query .*versions="):
        StateLog(tmp_path / "query", "name", 0, False).write(b"")


@pytest.mark.parametrize("damage", [b"", b"\xff\x00garbage", b"\x02\x00\x00\x00{}", 50, 8])
def test_a_damaged_state_is_told_with_its_file(tmp_path: Path, damage: bytes | int) -> None:
    log, data = StateLog(tmp_path / "query", "name", 7, False), state([{"a": 1}]).to_bytes()
    log.write(data)
    log.place.write_bytes(damage if isinstance(damage, bytes) else data[:-damage])
    with pytest.raises(
        ConfigError, match=r"name\.7\.state is damaged; restore it, or remove it to answer micro-batch 7"
    ):
        log.read()
    log.place.unlink()
    assert log.read() is None
