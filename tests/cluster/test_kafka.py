"""Pipelines from and to a real Kafka broker: the example as it stands, killed; and on the hosts of the cluster.

`CLUSTER_MOMENTS=20` kills the example at as many moments; a run prints its seed, which `CLUSTER_SEED` sets.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import dataset
from rich.console import Console
from tests.cluster.broker import ON_CLUSTER, SERVER, Broker
from tests.cluster.faults import MOMENTS, SEED
from tests.cluster.hosts import DATA
from tests.cluster.jars import EXAMPLE, connectors
from tests.pipeline.kills import Killer
from tests.pipeline.test_postgres import rows_of
from tests.semistream.master.server import Server

from dovetail import DataError
from dovetail.engine.storage.remote import Remote
from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.record.watch import Watch
from dovetail.pipeline.run import Run, watch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka", "ignore:read_text is deprecated")
START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = {"orders": 3, "shipments": 2, "deliveries": 2}
FIRST = 480
"""Messages of each topic that are there while the example is killed; the rest follows."""
Row = dict[str, Any]


class Shop:
    """Orders, some of them changed later, with known, unknown and no customers; shipments of some of them."""

    def __init__(self, n: int, seed: int) -> None:
        chance = random.Random(seed)
        self.customers = {at: f"customer {at}" for at in range(15)}
        self.orders: list[Row] = [
            {
                "order_id": at % (n * 3 // 4), "customer_id": chance.choice([None, *range(20)]),
                "amount": chance.randrange(1000) / 4, "at": (START + timedelta(seconds=at)).isoformat(),
            }
            for at in range(n)
        ]  # fmt: skip
        self.shipments: list[Row] = [
            {"order_id": chance.randrange(n), "carrier": chance.choice([None, "post", "rail"])} for _ in range(n)
        ]

    def newest(self) -> dict[int, tuple[Any, ...]]:
        """The newest of each order with the name of its customer."""
        return {
            row["order_id"]: (row["customer_id"], row["amount"], self.customers.get(row["customer_id"]))
            for row in self.orders
        }

    def delivered(self) -> Counter[tuple[Any, ...]]:
        """Every order with every shipment of it."""
        return Counter(
            (order["order_id"], order["amount"], shipment["carrier"])
            for order in self.orders
            for shipment in self.shipments
            if order["order_id"] == shipment["order_id"]
        )


def avro(shipment: Row) -> bytes:
    """A shipment in Avro's binary encoding, by the schema of the example."""
    carrier = shipment["carrier"]
    text = b"" if carrier is None else _long(len(carrier)) + carrier.encode()
    return _long(shipment["order_id"]) + _long(carrier is not None) + text + _long(1_767_225_600_000_000)


def _long(value: int) -> bytes:
    number, found = value << 1, b""  # zigzag of a number that is not negative
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(DATA / "kafka") as broker:
        yield broker


def example(place: Path) -> Path:
    """The example; its connectors are files that were fetched before, as these hosts cannot reach Maven Central."""
    place.mkdir()
    text, n = re.subn(r'\n"spark.jars.*" = ".*"', "", EXAMPLE.read_text())
    assert n == 3
    text = text.replace("[pipeline.spark]", f'[pipeline.spark]\n"spark.jars" = "{connectors()}"')
    file = place / EXAMPLE.name
    file.write_text(text)
    return file


def command(*words: object) -> str:
    dovetail = str(Path(sys.executable).with_name("dovetail"))
    done = subprocess.run([dovetail, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def compare(server: Server, broker: Broker, place: Path, shop: Shop) -> int:
    """Assert what the three sinks of the example must have; the number of repeated messages."""
    found = rows_of(server, "SELECT order_id, customer_id, amount, name FROM warehouse.orders")
    assert sorted(found) == sorted((key, *rest) for key, rest in shop.newest().items())
    files = dataset.dataset(place / "work" / "deliveries", format="parquet").to_table().to_pylist()
    assert Counter((row["order_id"], row["amount"], row["carrier"]) for row in files) == shop.delivered()
    messages = [(key, json.loads(value)) for key, value in broker.messages("deliveries")]
    assert all(key == str(row["order_id"]).encode() for key, row in messages)
    told = Counter((row["order_id"], row["amount"], row["carrier"]) for _, row in messages)
    assert set(told) == set(shop.delivered())
    assert not shop.delivered() - told, "a message was lost"
    return sum((told - shop.delivered()).values())


def forget_commits(checkpoint: Path) -> None:
    """The checkpoint as a process leaves it that dies after the last row is written, and before that is noted."""
    for commits in checkpoint.glob("*/commits"):
        newest = max(int(one.name) for one in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)


@pytest.mark.timeout(400 + 60 * MOMENTS)
def test_the_example_killed_and_continued(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files and PostgreSQL have every row once, the topic has every row at least once, and some of them twice."""
    file, shop = example(DATA / "example"), Shop(600, SEED)
    for topic, partitions in PARTITIONS.items():
        broker.create(topic, partitions)
    orders, shipments = [json.dumps(row).encode() for row in shop.orders], [avro(row) for row in shop.shipments]
    with Server() as server:
        monkeypatch.setenv("SHOP_URI", server.url)
        named = ", ".join(f"({key}, '{name}')" for key, name in shop.customers.items())
        server.execute(
            "CREATE SCHEMA warehouse",
            "CREATE TABLE customers (customer_id bigint PRIMARY KEY, name text)",
            f"INSERT INTO customers VALUES {named}",
        )
        broker.send("orders", orders[:FIRST], PARTITIONS["orders"])
        broker.send("shipments", shipments[:FIRST], PARTITIONS["shipments"])
        n_rows = FIRST // (MOMENTS + 2)  # so that there are micro-batches for all kills
        pace = [f"source.{name}.options.maxOffsetsPerTrigger={n_rows}" for name in ("orders", "shipments")]
        killer = Killer(file, "", pace, seed=SEED)
        killer.run(MOMENTS)
        assert killer.killed
        broker.send("orders", orders[FIRST:], PARTITIONS["orders"])
        broker.send("shipments", shipments[FIRST:], PARTITIONS["shipments"])
        command("run", file, "--once", "--page", file.parent / "page.html")
        repeated = compare(server, broker, file.parent, shop)
        watch = Watch.load(file.parent / "work" / "checkpoint" / "watch.json")
        forget_commits(file.parent / "work" / "checkpoint")
        command("run", file, "--once")
        assert compare(server, broker, file.parent, shop) > repeated, "the topic takes what is sent again"
    assert [(lag.topic, lag.partition, lag.read, lag.behind) for lag in watch.lags("orders")] == [
        ("orders", at, 200, 0) for at in range(3)
    ]
    assert [lag.read for lag in watch.lags("shipments")] == [300, 300]
    assert "Lag of 5 partitions" in (file.parent / "page.html").read_text()
    assert "at least once" in next(node.detail for node in watch.nodes if node.name == "announced")
    with capsys.disabled():
        moments = "; ".join(killer.moments)
        print(f"\nCLUSTER_SEED={SEED}, {killer.killed} kills, after {moments}; {repeated} messages repeated")


CODED = """
[pipeline]
name = "coded"
checkpoint = "{shared}/checkpoint"

[source.numbers]
type = "kafka"
{schema}
options = {{ "kafka.bootstrap.servers" = "{server}", subscribe = "numbers{of}", startingOffsets = "earliest" }}

[sink.copies]
type = "kafka"
from = "numbers"
key = "n"
avro = "number.avsc"
options = {{ "kafka.bootstrap.servers" = "{server}", topic = "copies{of}" }}

[sink.files]
type = "parquet"
from = "numbers"
path = "{shared}/files"
"""
NUMBER = '{"type": "record", "name": "number", "fields": [{"name": "n", "type": ["null", "long"]}]}'


def test_json_to_avro_and_back_on_the_cluster(spark: SparkSession, broker: Broker, shared: Remote) -> None:
    """Executors on three hosts read and write; a message that is not as declared fails the run."""
    (DATA / "number.avsc").write_text(NUMBER)
    broker.send("numbers", [json.dumps({"n": n}).encode() for n in range(90)], 1)

    def run(name: str, **parts: str) -> Watch:
        file = DATA / f"{name}.toml"
        file.write_text(CODED.format(shared=shared / name, server=ON_CLUSTER, **parts))
        pipeline = read_pipeline(file)
        assert check_pipeline(spark, pipeline) == []
        watch = watch_of(pipeline)
        Run(spark, pipeline, watch, once=True, console=Console(quiet=True)).go()
        return watch

    watch = run("json", of="", schema='schema = "n long"')
    assert [(lag.read, lag.newest) for lag in watch.lags("numbers")] == [(90, 90)]
    assert sorted(int(key or b"") for key, _ in broker.messages("copies")) == list(range(90))
    broker.send("numbers_again", [value for _, value in broker.messages("copies")], 1)
    run("avro", of="_again", schema='avro = "number.avsc"')
    assert sorted(row.n for row in spark.read.parquet(str(shared / "avro" / "files")).collect()) == list(range(90))
    broker.send("numbers", [b"not JSON"], 1)
    with pytest.raises(DataError, match="Malformed records"):
        run("json", of="", schema='schema = "n long"')


def test_what_a_check_says_of_avro(spark: SparkSession, shared: Remote) -> None:
    file = DATA / "p.toml"
    (DATA / "number.avsc").write_text(NUMBER.replace("long", "lang"))
    file.write_text(CODED.format(shared=shared, server=SERVER, of="", schema='avro = "none.avsc"'))
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert "none.avsc cannot be read: No such file or directory" in problem.text
    file.write_text(CODED.format(shared=shared, server=SERVER, of="", schema='schema = "n long, m long"'))
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert "avro is no Avro schema" in problem.text
    (DATA / "number.avsc").write_text(NUMBER)
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert "the schema has no field ['m']" in problem.text
