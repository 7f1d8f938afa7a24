"""Multiway joins in buckets, without Spark: cells, text, replays, and how long rows must be kept."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.frame.test_online_hosted import Joins
from tests.online.multiway.multi_schedules import TREES, MultiCase, combinations_of, random_table

from dovetail.joins.online.bucket_join import BucketJoin, Tree
from dovetail.joins.online.bucket_rule import Cells, choose_cells, key_classes
from dovetail.joins.online.events import Event, Piece, pack_events
from dovetail.joins.online.graph import join_graph
from dovetail.joins.online.lateness import lateness_of
from dovetail.joins.online.operators.miner import Miner

BANDS: dict[str, tuple[Any, ...]] = {
    "band": (("a.x", "b.x", -1, 2), ("b.y", "c.y")),
    "doubles": (("a.f", "b.f", -0.5, 0.25), ("b.f", "c.f", 0.0, 0.5)),
    "both": (("a.x", "b.x"), ("a.z", "b.z", -1, 1), ("b.x", "c.x")),
}


def tables_of(on: tuple[Any, ...], rows: int = 25, seed: int = 3, domain: int = 6) -> dict[str, pa.Table]:
    names = sorted({end.split(".")[0] for term in on for end in term[:2]})
    rng = np.random.default_rng(seed)
    return {name: random_table(rng, rows, domain) for name in names}


def bucket_join(on: tuple[Any, ...], tables: dict[str, pa.Table], algorithm: str) -> BucketJoin:
    inputs = tuple((name, table.schema) for name, table in tables.items())
    return BucketJoin(algorithm, Tree(on), 1 << 17, False, inputs)


@pytest.mark.parametrize("buckets", [1, 5, 12])
@pytest.mark.parametrize("tree", ["chain3", "sstar4", "star4", "band", "doubles", "both"])
def test_every_combination_meets_in_exactly_one_bucket(tree: str, buckets: int) -> None:
    on: tuple[Any, ...] = (TREES | BANDS)[tree]
    tables = tables_of(on, 9)
    join = bucket_join(on, tables, "miner")
    spread, cells = join.bucket_rule(buckets), Tree(on).cells(join.names, buckets)
    met: Counter[tuple[int, ...]] = Counter()
    homes = [spread.homes(r, table.combine_chunks().to_batches()[0]) for r, table in enumerate(tables.values())]
    for bucket in range(spread.count):
        met.update(product(*(home.rows[home.buckets == bucket].tolist() for home in homes)))
    wanted = MultiCase(tables, Miner(inputs=tuple(tables), on=on), ()).expected()
    assert wanted
    assert {combination: met[combination] for combination in wanted} == dict.fromkeys(wanted, 1)
    for r, home in enumerate(homes):
        assert set(np.bincount(home.rows).tolist()) <= {0, cells.copies(r)}


def test_one_key_in_all_inputs_needs_no_copies_and_others_as_few_as_can_be() -> None:
    star = join_graph(["a", "b", "c"], TREES["sstar3"])
    assert [len(some) for some in key_classes(star)] == [3]
    assert (
        "all inputs have this key, so no row is copied; one key is in one partition"
        in choose_cells(star, 8, {}).explain()
    )
    chain = join_graph(["a", "b", "c"], TREES["chain3"])
    cells = choose_cells(chain, 8, {})
    assert cells.explain() == (
        "partitions 2 by (a.x = b.x) x 4 by (b.y = c.y): no key is in all inputs; copies of each row, chosen for least "
        "rows in each: a 4, b 1, c 2"
    )
    best = min(sum(1 / n for n in (s, s * t, t)) for s in range(1, 9) for t in range(1, 9) if s * t <= 8)
    assert sum(cells.copies(r) for r in range(3)) / cells.count == pytest.approx(best)
    assert choose_cells(chain, 8, {"c": 1000.0}).shares == (1, 8)
    assert Cells(chain, (1, 1)).explain() == "one partition: no row is copied"
    assert choose_cells(join_graph(tuple("abcdef"), TREES["snowflake6"]), 100_000, {}).count > 50_000


@pytest.mark.parametrize("algorithm", ["mjoin", "miner"])
@pytest.mark.parametrize("tree", ["sstar3", "chain3", "doubles", "both"])
def test_a_join_rebuilt_from_its_events_goes_on_as_before(algorithm: str, tree: str) -> None:
    on: tuple[Any, ...] = (TREES | BANDS)[tree]
    tables = tables_of(on, 60)
    join = bucket_join(on, tables, algorithm)
    lasting, again = (_played(join, tables, forgetful) for forgetful in (False, True))
    assert lasting == again
    case = MultiCase(tables, Miner(inputs=tuple(tables), on=on), ())
    schema = join.spec().schema(join.schemas)
    batches = [pa.ipc.read_record_batch(pa.py_buffer(data), schema) for call in lasting for data in call]
    assert combinations_of(batches, case) == case.expected()


def _played(join: BucketJoin, tables: dict[str, pa.Table], forgetful: bool) -> list[list[bytes]]:
    pool, log, nonce, given = Joins(), list[Piece](), "", []
    steps = [_rows(tables, start) for start in range(0, 60, 15)]
    calls = [events for some in steps for events in (some, [Event("idle", units=3, times=2)], [Event("settle")])]
    for number, events in enumerate([*calls, [Event("finish")]]):
        call = pool.call("x", "" if forgetful else nonce, f"n{number}", join, events, lambda: iter(log))
        answers = [bytes(answer) for answer in call]
        given.append(answers)
        log.append(Piece(pack_events(events), settled=False))
        nonce = f"n{number}"
    return given


def _rows(tables: dict[str, pa.Table], start: int) -> list[Event]:
    batches = [table.slice(start, 15).combine_chunks().to_batches()[0] for table in tables.values()]
    return [Event("push", r, rows=batch.serialize()) for r, batch in enumerate(batches)]


def test_rows_are_kept_while_any_other_input_can_bring_a_match() -> None:
    second = timedelta(seconds=1)
    on: tuple[Any, ...] = (
        ("a.k", "b.k"), ("a.t", "b.t", -2 * second, 3 * second), ("b.t", "c.t", -5 * second, 7 * second),
    )  # fmt: skip
    graph = join_graph(["a", "b", "c"], on)
    lateness = lateness_of(graph, [{"t": 1000}, {"t": 2000}, {"t": 0}])
    assert lateness is not None
    assert lateness.columns == ("t", "t", "t")
    assert lateness.reach == (10_000_000, 7_000_000, 7_000_000)
    assert lateness.watermark([10_000_000, None, 10_000_000]) is None
    assert lateness.watermark([10_000_000, 10_000_000, 9_000_000]) == 8_000_000
    assert lateness_of(graph, [{"t": 1000}, {}, {"t": 0}]) is None
    assert lateness_of(join_graph(["a", "b"], [("a.k", "b.k")]), [{"t": 0}, {"t": 0}]) is None
