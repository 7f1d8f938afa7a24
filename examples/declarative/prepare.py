"""The files that the example pipeline reads: orders, shipments and promotions as Parquet, products as a page file."""

from __future__ import annotations

import sys
from pathlib import Path

from dovetail import MasterStore, session
from dovetail.workloads.source import register


def prepare(place: Path) -> None:
    spark = session("prepare")
    register(spark)
    for name, rows in (("orders", 2_000), ("shipments", 2_000), ("promotions", 50)):
        table = spark.read.format(f"dovetail.{name}").option("rows", rows).option("products", 100).load()
        table.write.mode("overwrite").parquet(str(place / name))
    products = spark.read.format("dovetail.products").option("products", 100).load()
    MasterStore.build(products, place / "products.pages", key="product_id")
    (place / "prices").mkdir(exist_ok=True)
    (place / "prices" / "spring.xml").write_text("<list><price id='1'>10</price><price id='2'>20</price></list>")


if __name__ == "__main__":
    prepare(Path(sys.argv[1] if len(sys.argv) > 1 else "shop-data"))
