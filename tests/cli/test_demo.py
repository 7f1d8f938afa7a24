"""`dovetail demo`: the shop's pipeline from start to end, and what its verification would notice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from dovetail.cli.demo_retail import SINKS, Shop, verify
from dovetail.cli.main import app
from dovetail.errors import DataError, PlanError
from dovetail.pipeline.record.watch import Watch

if TYPE_CHECKING:
    from click.testing import Result
    from pyspark.sql import SparkSession

runner = CliRunner()
ROWS = 600


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, Result]:
    """A small demonstration after its end."""
    shop = Shop(tmp_path_factory.mktemp("demo") / "out", rows=ROWS, products=2_000, seconds=1.0, memory="1MB")
    sizes = ["--rows", str(ROWS), "--products", "2000", "--seconds", "1", "--memory", "1MB", "--no-ui"]
    return shop, runner.invoke(app, ["demo", *sizes, "--output", str(shop.home)], env={"COLUMNS": "200"})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_ends_with_what_was_verified_and_where_it_is(ran: tuple[Shop, Result], spark: SparkSession) -> None:
    shop, result = ran
    assert result.exit_code == 0, result.output
    counts = {sink: spark.read.parquet(str(shop.table(sink))).count() for sink in SINKS}
    assert counts["orders_enriched"] == counts["orders_delivered"] == ROWS
    assert counts["shipments_promoted"] > 0
    assert counts["offers_in_euro"] > 0
    assert f"verified: {sum(counts.values()):,} rows equal" in result.stdout
    assert f"result: {shop.home / 'warehouse'}" in result.stdout
    assert "cache hits" in result.stdout
    assert spark.range(3).count() == 3, "a session that was running is left running"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_record_of_the_run_is_kept(ran: tuple[Shop, Result]) -> None:
    shop, _ = ran
    watch = Watch.load(shop.home / "work" / "checkpoint" / "watch.json")
    assert watch.latest("enriched")["rows_out"] == ROWS
    assert 0 < watch.latest("enriched")["memory_peak"] <= watch.latest("enriched")["memory_budget"]
    assert watch.latest("delivered")["rows_out"] == ROWS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wrong_rows_are_not_verified(ran: tuple[Shop, Result], spark: SparkSession, tmp_path: Path) -> None:
    shop, _ = ran
    other = Shop(tmp_path, shop.rows, shop.products, shop.seconds, shop.memory)
    shutil.copytree(shop.home / "prices", tmp_path / "prices")
    right = spark.read.parquet(str(shop.table("offers_in_euro")))
    price = right.select("product", "stock", (right.price + 1).cast("decimal(38, 18)").alias("price"))
    for wrong in (right.limit(5), right.unionAll(right.limit(1)), price):
        wrong.select("product", "price", "stock").write.mode("overwrite").parquet(str(other.table("offers_in_euro")))
        with pytest.raises(DataError, match="Spark's own answer"):
            verify(spark, other, "offers_in_euro")


def test_a_wrong_size_is_told_before_anything_starts() -> None:
    with pytest.raises(PlanError, match=r"memory='.*' is not a size"):
        Shop(Path("demo-output"), memory="much")


@pytest.mark.parametrize("name", ["work", "warehouse", "prices", "pipeline.toml"])
def test_what_no_demonstration_wrote_is_left_alone(name: str, tmp_path: Path) -> None:
    mine = tmp_path / name / "mine" if name != "pipeline.toml" else tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    result = runner.invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert name in result.stderr
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_earlier_demonstration_gives_way(tmp_path: Path) -> None:
    shop = Shop(tmp_path, rows=30, products=10)
    shop.write()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_text("")
    (tmp_path / "mine").write_text("mine")
    shop.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "pipeline.toml", "prices"]


def test_a_second_demonstration_leaves_the_one_that_runs_alone(tmp_path: Path) -> None:
    shop = Shop(tmp_path, rows=30, products=10)
    with shop.held():
        shop.write()
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "running").write_text("")
        result = runner.invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert "another demonstration runs in" in result.stderr
    assert (tmp_path / "work" / "running").exists()


def test_an_unwritable_place_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = runner.invoke(app, ["demo", "--output", str(blocked / "out")])
    assert result.exit_code == 2
    assert "--output" in result.stderr
