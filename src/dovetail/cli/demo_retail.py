"""Makes the shop of the demonstration: its pipeline file and price lists, and the expected result of each join."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import parse_bytes
from dovetail.errors import ConfigError, DataError
from dovetail.pipeline.checkpoint import locked
from dovetail.workloads import PriceLists, register

STREAMED = ("orders_enriched", "orders_delivered")
"""The sinks that take a stream; both end with as many rows as there are orders."""

_MADE = ("pipeline.toml", "work", "warehouse", "prices")
_SUPPLIERS, _MONTHS = 6, 6
_OFFER = "_product long, price struct<_VALUE decimal(18,2), _currency string>, stock long"


@dataclass(frozen=True, slots=True)
class Shop:
    """The size of the shop, and how long its orders take to arrive; the same seed gives the same rows."""

    home: Path
    rows: int = 40_000
    products: int = 400_000
    seconds: float = 8.0
    memory: str = "10MB"
    seed: int = 7

    def __post_init__(self) -> None:
        parse_bytes(self.memory)  # a wrong size is an error before Spark starts

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.home / "pipeline.toml"

    def table(self, sink: str) -> Path:
        """Where a sink of the pipeline writes."""
        return self.home / "warehouse" / sink

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory for the block: another demonstration would remove the files of this one."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        taken = f"another demonstration runs in {self.home}. Wait for it to end, or choose another with --output."
        with locked(self.home, taken):
            yield

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot write to {self.home}: {error.strerror}. Choose another with --output.")

    def write(self) -> None:
        """Write the pipeline file and the price lists; files of an earlier demonstration are removed, and no others.

        ConfigError if the directory has files of these names that no demonstration wrote.
        """
        text = self._text()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            self._clear(text.partition("\n")[0])
            self.file.write_text(text, encoding="utf-8")
            self._price_lists().write(self.home / "prices")
        except OSError as error:
            raise self._unwritable(error) from error

    def _clear(self, first_line: str) -> None:
        """Remove an earlier demonstration, recognised by the first line of its pipeline."""
        old = [path for name in _MADE if (path := self.home / name).exists()]
        if old and not (
            self.file.is_file() and self.file.read_text(encoding="utf-8", errors="replace").startswith(first_line)
        ):
            raise ConfigError(f"{old[0]} is not of a demonstration and would be lost. Choose another with --output.")
        for path in old:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _price_lists(self) -> PriceLists:
        offers = max(1, self.rows // 24)
        return PriceLists(_SUPPLIERS, _MONTHS, offers, self.products, self.seed)

    def _text(self) -> str:
        """The pipeline file with its sizes filled in; orders take `seconds`, shipments a third more."""
        step_us = self.seconds * 1e6 / max(1, self.rows) * 255  # rows of a step of the bursts, on average
        sizes = {
            "rows": self.rows,
            "products": self.products,
            "promotions": max(1, self.products // 5),
            "seed": self.seed,
            "memory": self.memory,
            "online_memory": "2MB",
            "step_us": max(1, round(step_us)),
            "gap_us": max(1, round(self.seconds * 1e6 / max(1, self.rows) * 1.15)),
        }
        text = files("dovetail.cli").joinpath("demo_retail.toml").read_text(encoding="utf-8")
        for name, value in sizes.items():
            text = text.replace(f"@{name}@", str(value))
        return text


def verify(spark: SparkSession, shop: Shop, sink: str) -> int:
    """The number of rows of a sink; DataError if they are not exactly the rows of Spark's own join."""
    if not shop.table(sink).exists():
        raise DataError(
            f"{sink} got no rows before the run was stopped: the machine may have too much to do. Run it again, or "
            "with fewer rows: dovetail demo --rows 10000 --products 100000."
        )
    found = spark.read.parquet(str(shop.table(sink)))
    expected = _EXPECTED[sink](spark, shop).select(*[name for name in found.columns if name != "_phase"])
    result = found.select(*expected.columns)
    tally = F.sum("__times").alias("__times")
    both = result.withColumn("__times", F.lit(1)).unionAll(expected.withColumn("__times", F.lit(-1)))
    wrong = both.groupBy(*expected.columns).agg(tally).where("__times <> 0").limit(3).collect()
    if wrong:
        raise DataError(
            f"{sink} differs from Spark's own answer; rows with how often it has them too often (below 0: too "
            f"rarely): {wrong}. This is a defect of Dovetail: please report it with the output of `dovetail doctor`."
        )
    return result.count()


def _load(spark: SparkSession, shop: Shop, workload: str, **options: int) -> DataFrame:
    register(spark)
    every = {"products": shop.products, "seed": shop.seed}
    return spark.read.format(f"dovetail.{workload}").options(**every, **options).load()


def _enriched(spark: SparkSession, shop: Shop) -> DataFrame:
    return _load(spark, shop, "orders", rows=shop.rows).join(_load(spark, shop, "products"), "product_id")


def _delivered(spark: SparkSession, shop: Shop) -> DataFrame:
    shipments = _load(spark, shop, "shipments", rows=shop.rows).withColumnRenamed("product_id", "product_id_right")
    return _load(spark, shop, "orders", rows=shop.rows).join(shipments, "order_id")


def _promoted(spark: SparkSession, shop: Shop) -> DataFrame:
    sent = _load(spark, shop, "shipments", rows=shop.rows)
    promotions = _load(spark, shop, "promotions", rows=max(1, shop.products // 5))
    meets = (F.col("shipped_at") < F.col("ends_at")) & (F.col("starts_at") < F.col("received_at"))
    return sent.join(promotions, "product_id").where(meets)


def _offers(spark: SparkSession, shop: Shop) -> DataFrame:
    lists = spark.read.format("xml").option("rowTag", "offer").schema(_OFFER).load(str(shop.home / "prices"))
    kept = lists.where((F.col("price._currency") == "EUR") & (F.col("stock") > 0))
    return kept.select(
        F.col("_product").alias("product"),
        F.col("price._VALUE").cast("decimal(38, 18)").alias("price"),
        F.col("stock"),
    )


_EXPECTED: dict[str, Callable[[SparkSession, Shop], DataFrame]] = {
    "orders_enriched": _enriched,
    "orders_delivered": _delivered,
    "shipments_promoted": _promoted,
    "offers_in_euro": _offers,
}
SINKS = tuple(_EXPECTED)
