"""Master data and streams: exact widths, three orders of the same rows, shares of defects, popularity that fits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.workloads.goodness import ENOUGH, chi_square_p

from dovetail.errors import PlanError
from dovetail.workloads import BLOCK_ROWS, Master, ZipfStream, master, streams, zipf, zipf_stream

ORDERS = ("key", "frequency", "shuffled")


@pytest.mark.parametrize("width", [16, 17, 24, 120, 223])
def test_tuples_have_exactly_the_width_asked_for(width: int) -> None:
    table = master(domain=1000, tuple_bytes=width).table()
    assert set(pc.binary_length(table["payload"]).to_pylist()) == {width - 16}
    assert table["key"].type == table["checksum"].type == pa.int64()


def test_rows_are_sorted_by_key_or_shuffled() -> None:
    n = 2 * BLOCK_ROWS + 5
    assert np.array_equal(master(domain=n, tuple_bytes=16).table()["key"], np.arange(1, n + 1))
    shuffled = master(domain=n, tuple_bytes=16, order="shuffled", seed=1).table()["key"].to_numpy()
    ups = (np.diff(shuffled) > 0).mean()
    assert abs(ups - 0.5) < 0.01
    assert np.array_equal(np.sort(shuffled), np.arange(1, n + 1))


@pytest.mark.parametrize("defects", [{}, {"missing": 0.1, "duplicates": 0.2, "nulls": 0.05}])
def test_all_orders_hold_the_same_rows(defects: dict[str, float]) -> None:
    by = [("key", "ascending"), ("checksum", "ascending")]
    tables = [Master(5000, 40, order, 3, **defects).table().combine_chunks().sort_by(by) for order in ORDERS]  # type: ignore[arg-type]  # a Literal
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@pytest.mark.parametrize("nulls", [0.0, 0.1])
@pytest.mark.parametrize("table_limit", [0, 1 << 20])
def test_the_most_popular_keys_of_the_stream_come_first(
    table_limit: int, nulls: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipf, "TABLE_LIMIT", table_limit)
    streams._ordered_keys.cache_clear()  # it was filled under the other limit
    stream = zipf_stream(rows=200_000, domain=3000, exponent=1.0, seed=9, scattered=True).table()["key"].to_numpy()
    table = master(domain=3000, tuple_bytes=16, order="frequency", seed=9, nulls=nulls).table()
    stored = table["key"].drop_null().to_numpy()
    rank_of = np.empty(3001, dtype=np.int64)
    rank_of[stored] = np.arange(1, 3001)
    law = 1.0 / np.arange(1, 3001)
    assert chi_square_p(rank_of[stream], law, first=1) > ENOUGH


def test_missing_duplicate_and_null_keys_have_their_shares() -> None:
    spec = Master(100_000, 16, "shuffled", 4, missing=0.1, duplicates=0.2, nulls=0.05)
    keys = spec.table()["key"]
    assert len(keys) == spec.rows
    assert keys.null_count == pytest.approx(0.05 * spec.rows, abs=1)
    copies = np.bincount(keys.drop_null().to_numpy(), minlength=100_001)[1:]
    # a key that both shares choose is missing
    assert chi_square_p(copies, np.array([0.1, 0.9 * 0.8, 0.9 * 0.2])) > ENOUGH


def test_nulls_are_first_by_key_and_last_by_frequency() -> None:
    by_key = Master(100, 16, "key", 1, nulls=0.2).table()["key"].to_pylist()
    by_frequency = Master(100, 16, "frequency", 1, nulls=0.2).table()["key"].to_pylist()
    assert by_key == [None] * 25 + list(range(1, 101))
    assert by_frequency[100:] == [None] * 25


def test_checksum_and_payload_depend_on_the_key_alone_and_tell_keys_apart() -> None:
    one = master(domain=70_000, tuple_bytes=40).table()
    two = master(domain=70_000, tuple_bytes=40, order="shuffled", seed=5).table().combine_chunks().sort_by("key")
    assert one.combine_chunks().equals(two)
    assert len(pc.unique(one["checksum"])) == 70_000
    assert len(pc.unique(one["payload"])) == 70_000


def test_payload_letters_are_spread_evenly() -> None:
    text = "".join(master(domain=2000, tuple_bytes=216).table()["payload"].to_pylist()).encode()
    letters = np.frombuffer(text, dtype=np.uint8).astype(np.int64)
    assert chi_square_p(letters, np.full(64, 1 / 64), first=0x30) > ENOUGH


def test_a_stream_has_ids_rising_times_and_a_payload() -> None:
    table = zipf_stream(rows=70_000, domain=10, arrivals="bursty(1000, 5)", tuple_bytes=30, seed=2).table()
    assert table.schema.names == ["id", "at", "key", "payload"]
    assert table["at"].type == pa.timestamp("us", tz="UTC")
    assert np.array_equal(table["id"], np.arange(70_000))
    assert np.all(np.diff(table["at"].cast(pa.int64()).to_numpy()) >= 0)
    assert set(pc.binary_length(table["payload"]).to_pylist()) == {6}
    first = zipf_stream(rows=1, domain=10).table()["at"][0].as_py()
    assert first.isoformat() == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"domain": 0}, "domain must be an integer >= 1"),
        ({"tuple_bytes": 15}, "tuple_bytes must be an integer >= 16"),
        ({"order": "sorted"}, "order is 'key', 'frequency' or 'shuffled'"),
        ({"missing": 1.0}, "missing is a share"),
        ({"nulls": -0.1}, "nulls is a share"),
    ],
)
def test_master_data_that_cannot_be_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        master(**arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_a_stream_narrower_than_its_columns_is_refused() -> None:
    with pytest.raises(PlanError, match="at least 24"):
        ZipfStream(rows=1, domain=1, tuple_bytes=20)
