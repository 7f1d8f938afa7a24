"""The contract of multiway joins: trees, names, nulls, text keys, bands, budgets, state, metrics."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorError
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.graph import join_graph
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.operators.block_loop import BlockLoop
from dovetail.joins.online.operators.miner import Generations, Miner, MJoin
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Sizes

SHOP = {
    "orders": pa.table({"id": [1, 2, 3, None], "who": ["x", "y", "z", "w"]}),
    "items": pa.table({"order_id": [1, 1, 2, 9, None], "part": ["p", "q", "p", "p", "p"]}),
    "parts": pa.table({"id": ["p", "q", None], "supplier": [7, 8, 7]}),
    "suppliers": pa.table({"id": [7, 7, 9], "name": ["s", "t", "u"]}),
}
ON = (("orders.id", "items.order_id"), ("items.part", "parts.id"), ("parts.supplier", "suppliers.id"))


def run(spec: MultiJoin, tables: dict[str, pa.Table], budget: int = 1 << 20, rows: int = 7) -> list[dict[str, Any]]:
    """All rows of the answer, with inputs in turn and a pause after each round."""
    memory = MemoryBudget(budget)
    out: list[dict[str, Any]] = []
    with spec.open(memory, {name: table.schema for name, table in tables.items()}) as operator:
        for start in range(0, max(table.num_rows for table in tables.values()), rows):
            for name, table in tables.items():
                for piece in table.slice(start, rows).combine_chunks().to_batches():
                    out += [row for batch in operator.push(name, piece) for row in batch.to_pylist()]
            out += [row for batch in operator.idle(lambda: False) for row in batch.to_pylist()]
        out += [row for batch in operator.finish() for row in batch.to_pylist()]
    assert memory.used == 0
    assert memory.peak <= memory.limit
    return out


@pytest.mark.parametrize("algorithm", sorted(MULTIWAY))
@pytest.mark.parametrize("memory_rows", [2, 3, 100])
def test_the_shop_joins_over_four_inputs(algorithm: str, memory_rows: int) -> None:
    spec = MULTIWAY[algorithm](inputs=tuple(SHOP), on=ON, sizes=Sizes(memory_rows=memory_rows, block_rows=1))
    rows = run(spec, SHOP, rows=1)
    want = oracle.online_multijoin({name: table.to_pylist() for name, table in SHOP.items()}, list(ON))
    assert oracle.bag(tuple(row.values()) for row in rows) == oracle.bag(
        tuple(value for part in combination for value in part.values()) for combination in want
    )
    assert len(rows) == 4


def test_clashing_names_are_preceded_by_their_input() -> None:
    spec = Miner(inputs=tuple(SHOP), on=ON, with_phase=True)
    found = spec.schema({name: table.schema for name, table in SHOP.items()})
    names = ["orders_id", "who", "order_id", "part", "parts_id", "supplier", "suppliers_id", "name", "_phase"]
    assert found.names == names


def test_names_that_clash_all_the_same_are_refused() -> None:
    schemas = {"a": pa.schema({"k": pa.int64(), "b_k": pa.int64()}), "b": pa.schema({"k": pa.int64()})}
    with pytest.raises(PlanError, match="b_k"):
        Miner(inputs=("a", "b"), on=(("a.k", "b.k"),)).schema(schemas)


@pytest.mark.parametrize(
    ("inputs", "on", "message"),
    [
        (("a", "b", "c"), (("a.x", "b.x"), ("b.x", "c.x"), ("a.y", "c.y")), "cycle"),
        (("a", "b", "c"), (("a.x", "b.x"),), "nothing .* connects \\['c'\\]"),
        (("a", "b"), (("a.x", "q.x"),), "no column of an input"),
        (("a", "b"), (("a.x", "a.y"),), "of one input"),
        (("a", "a"), (("a.x", "a.y"),), "different names"),
        (("a", "b"), (("a.x", "b.x", 1),), "two bounds"),
    ],
)
def test_predicates_that_make_no_tree_are_refused(inputs: Any, on: Any, message: str) -> None:
    for cls in MULTIWAY.values():
        with pytest.raises(PlanError, match=message):
            cls(inputs=inputs, on=on)


def test_columns_and_types_must_fit() -> None:
    schemas = {
        "a": pa.schema({"x": pa.int64(), "f": pa.float64()}),
        "b": pa.schema({"x": pa.string(), "f": pa.float64()}),
    }
    with pytest.raises(PlanError, match=r"a\.x is int64 but b\.x is string"):
        Miner(inputs=("a", "b"), on=(("a.x", "b.x"),)).schema(schemas)
    twice = pa.schema([pa.field("x", pa.int64()), pa.field("x", pa.int64())])
    with pytest.raises(PlanError, match="more than once"):
        Miner(inputs=("a", "b"), on=(("a.x", "b.x"),)).schema({**schemas, "b": twice})
    with pytest.raises(PlanError, match="schemas are given"):
        Miner(inputs=("a", "b"), on=(("a.x", "b.x"),)).schema({"a": schemas["a"]})
    with pytest.raises(PlanError, match="no column"):
        Miner(inputs=("a", "b"), on=(("a.q", "b.x"),)).schema(schemas)
    with pytest.raises(PlanError, match="has no distance"):
        Miner(inputs=("a", "b"), on=(("a.x", "b.x", -1, 1),)).schema({"a": schemas["b"], "b": schemas["b"]})
    with pytest.raises(UnsupportedError, match="have 2 bands; give one"):
        Miner(inputs=("a", "b"), on=(("a.f", "b.f", -1, 1), ("a.x", "b.x", 0, 2)))


def test_specifications_say_what_they_are() -> None:
    spec = Miner(inputs=("a", "b", "c"), on=[["a.x", "b.x"], ["b.t", "c.t", -2, 5]])
    assert spec.explain() == "Miner: on a.x = b.x and -2 <= c.t - b.t <= 5, rows by budget, blocks of by budget"
    assert (
        MJoin(inputs=("a", "b"), on=[("a.x", "b.x")])
        .explain()
        .endswith("flush=largest, rows by budget, blocks of by budget")
    )
    with pytest.raises(PlanError, match="cleanup"):
        Miner(inputs=("a", "b"), on=(("a.x", "b.x"),), cleanup="never")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(PlanError, match="flush"):
        MJoin(inputs=("a", "b"), on=(("a.x", "b.x"),), flush="none")  # type: ignore[arg-type]  # on purpose


def test_mjoin_has_generations_where_one_attribute_is_common() -> None:
    assert join_graph("abc", [("a.x", "b.x"), ("b.x", "c.y")]).is_common
    assert not join_graph("abc", [("a.x", "b.x"), ("b.z", "c.y")]).is_common
    schemas = {name: pa.schema([("x", pa.int64())]) for name in "ab"}
    for band, disk in (((), Generations), ((0, 1), BlockLoop)):
        spec = MJoin(inputs=tuple("ab"), on=(("a.x", "b.x", *band),))
        with spec.open(MemoryBudget(1 << 20), schemas) as operator:
            operator.begin({})
            assert type(operator.disk) is disk


def text_tables(seed: int = 3, rows: int = 60) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    tables = {}
    for name in "abc":
        words = [None if rng.random() < 0.1 else f"word{rng.integers(9)}" for _ in range(rows)]
        numbers = pa.array(rng.integers(0, 3, rows))
        tables[name] = pa.table({f"{name}w": pa.array(words), f"{name}n": numbers, f"{name}i": np.arange(rows)})
    return tables


@pytest.mark.parametrize("algorithm", sorted(MULTIWAY))
@pytest.mark.parametrize("hash_bits", [2, 64])
def test_text_and_composite_keys_are_compared_and_not_only_hashed(algorithm: str, hash_bits: int) -> None:
    tables = text_tables()
    on = (("a.aw", "b.bw"), ("a.an", "b.bn"), ("b.bw", "c.cw"))
    spec = MULTIWAY[algorithm](
        inputs=tuple(tables), on=on, hash_bits=hash_bits, sizes=Sizes(memory_rows=30, block_rows=5)
    )
    got = Counter((row["ai"], row["bi"], row["ci"]) for row in run(spec, tables))
    want = oracle.online_multijoin({name: table.to_pylist() for name, table in tables.items()}, list(on))
    assert got == Counter((a["ai"], b["bi"], c["ci"]) for a, b, c in want)
    assert got.total() > 300


def test_a_band_of_times_is_not_turned_round() -> None:
    start = datetime(2026, 1, 1)
    tables = {
        name: pa.table(
            {f"{name}t": [start + timedelta(minutes=7 * i + shift) for i in range(40)], f"{name}i": range(40)}
        )
        for name, shift in (("a", 0), ("b", 3), ("c", 5))
    }
    bands = (
        ("b.bt", "a.at", timedelta(minutes=-20), timedelta(minutes=-1)),
        ("b.bt", "c.ct", timedelta(0), timedelta(minutes=9)),
    )
    spec = Miner(inputs=("a", "b", "c"), on=bands, sizes=Sizes(memory_rows=20, block_rows=4))
    got = Counter((row["ai"], row["bi"], row["ci"]) for row in run(spec, tables))
    minute = timedelta(minutes=1)
    rows = {name: table.to_pylist() for name, table in tables.items()}
    want = Counter(
        (a["ai"], b["bi"], c["ci"])
        for a in rows["a"]
        for b in rows["b"]
        if -20 * minute <= a["at"] - b["bt"] <= -minute
        for c in rows["c"]
        if timedelta(0) <= c["ct"] - b["bt"] <= 9 * minute
    )
    assert got == want
    assert want.total() > 100


def wide_tables(rows: int = 300) -> dict[str, pa.Table]:
    rng = np.random.default_rng(5)
    tables = {}
    for name in "abc":
        text = pa.array(["x" * int(n) for n in rng.integers(50, 250, rows)])
        keys = {f"{name}{k}": pa.array(rng.integers(0, 60, rows)) for k in "xy"}
        tables[name] = pa.table({**keys, f"{name}i": pa.array(np.arange(rows)), f"{name}t": text})
    return tables


@pytest.mark.parametrize("algorithm", sorted(MULTIWAY))
@pytest.mark.parametrize("common", [True, False])
def test_the_smallest_budget_that_a_refusal_names_is_enough(algorithm: str, common: bool) -> None:
    """For rows of fixed width, whose size is known before they come."""
    tables = {name: table.drop_columns([f"{name}t"]) for name, table in wide_tables(150).items()}
    on = (("a.ax", "b.bx"), ("b.bx" if common else "b.by", "c.cy"))
    spec = MULTIWAY[algorithm](inputs=tuple(tables), on=on)
    with pytest.raises(PlanError) as refused:
        spec.open(MemoryBudget(2000), {name: table.schema for name, table in tables.items()})
    least = int(str(refused.value).split("for this join is ")[1].split(" ")[0])
    got = Counter((row["ai"], row["bi"], row["ci"]) for row in run(spec, tables, least, rows=20))
    rows = {name: table.to_pylist() for name, table in tables.items()}
    pairs = [(a, b) for a in rows["a"] for b in rows["b"] if a["ax"] == b["bx"]]
    near = "bx" if common else "by"
    assert got == Counter((a["ai"], b["bi"], c["ci"]) for a, b in pairs for c in rows["c"] if b[near] == c["cy"])


@pytest.mark.parametrize("algorithm", sorted(MULTIWAY))
@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5, 2.0, 8.0])
def test_budgets_in_real_bytes_are_kept(algorithm: str, common: bool, share: float) -> None:
    """From the smallest legal budget, which the refusal names, to more than the input."""
    tables = wide_tables()
    on = (("a.ax", "b.bx"), ("b.bx" if common else "b.by", "c.cy"))
    spec = MULTIWAY[algorithm](inputs=tuple(tables), on=on)
    schemas = {name: table.schema for name, table in tables.items()}
    with pytest.raises(PlanError, match="the smallest for this join is") as refused:
        spec.open(MemoryBudget(2000), schemas)
    least = int(str(refused.value).split("for this join is ")[1].split(" ")[0])
    # Texts turn out to be wider than the guess that the refusal is made from.
    budget = max(4 * least, int(share * sum(table.nbytes for table in tables.values())))
    got = Counter((row["ai"], row["bi"], row["ci"]) for row in run(spec, tables, budget, rows=50))
    x, y, z = (tables[n].column(c).to_numpy() for n, c in (("a", "ax"), ("b", "bx"), ("c", "cy")))
    near = tables["b"].column("bx" if common else "by").to_numpy()
    pairs = [(int(i), int(j)) for i, j in zip(*np.nonzero(x[:, None] == y[None, :]), strict=True)]
    assert got == Counter((i, j, int(k)) for i, j in pairs for k in np.flatnonzero(near[j] == z))


def test_hosts_must_keep_the_contract() -> None:
    schemas = {name: table.schema for name, table in SHOP.items()}
    batch = SHOP["orders"].to_batches()[0]
    with Miner(inputs=tuple(SHOP), on=ON).open(MemoryBudget(1 << 20), schemas) as operator:
        assert list(operator.push("orders", batch)) == []
        with pytest.raises(OperatorError, match="not one of"):
            list(operator.push("unknown", batch))
        with pytest.raises(OperatorError, match="schema"):
            list(operator.push("items", batch))
        assert list(operator.finish()) == []
        with pytest.raises(OperatorError, match="after finish"):
            list(operator.push("orders", batch))


def test_what_was_done_is_counted() -> None:
    tables = wide_tables(200)
    spec = Miner(
        inputs=tuple(tables), on=(("a.ax", "b.bx"), ("b.by", "c.cy")), sizes=Sizes(memory_rows=60, block_rows=5)
    )
    with spec.open(MemoryBudget(128 << 10), {name: table.schema for name, table in tables.items()}) as operator:
        n = 0
        for name, table in tables.items():
            n += sum(batch.num_rows for batch in operator.push(name, table.combine_chunks().to_batches()[0]))
        n += sum(batch.num_rows for batch in operator.idle(lambda: True))
        n += sum(batch.num_rows for batch in operator.finish())
    found = operator.metrics
    assert sum(found.value(f"results_{phase}") for phase in ("arriving", "reactive", "cleanup")) == n
    assert found.value("rows", "a") == 200
    assert found.value("rows_flushed", "b") == 200
    assert sum(found.value(f"flushes_of_{region}", "a") for region in ("lower", "middle", "upper")) > 10
    assert found.value("arrivals_to_50_percent") > 0
    assert 0 < sum(found.value("runs_written", name) for name in "abc") < found.value("blocks_flushed", "a")
