"""Prices at the time of the order: a stream of orders, and products whose prices change (type 2 dimension).

Draws the price of one product and its orders into prices_at_order_time.svg (needs matplotlib).
"""

from pathlib import Path

from matplotlib.figure import Figure

import dovetail

spark, place = dovetail.session(app="prices"), str(Path.cwd())
prices = spark.sql("""
    select product, 20 + (product * 7 + version * version * 3) % 50 as price,
           date'2026-01-01' + 30 * version as valid_from,
           if(version = 5, null, date'2026-01-01' + 30 * (version + 1)) as valid_to
    from (select id % 100 as product, cast(id div 100 as int) as version from range(600))
""")
store = dovetail.MasterStore.build(prices, f"{place}/prices.pages", key="product")

spark.sql("""
    select id, pmod(xxhash64(id), 100) as product, date'2026-01-01' + cast(pmod(hash(id), 200) as int) as ordered_at
    from range(5000)
""").write.parquet(f"{place}/orders")
orders = spark.readStream.schema("id long, product long, ordered_at date").parquet(f"{place}/orders")

priced = dovetail.enrich(orders, store, on="product", at="ordered_at", how="left", memory="8MB")
writer = priced.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
writer.option("path", f"{place}/priced").trigger(availableNow=True).start().awaitTermination()
answers = spark.read.parquet(f"{place}/priced")
assert answers.count() == 5000
assert answers.where("price is null or ordered_at < valid_from or ordered_at >= valid_to").count() == 0

one = answers.where("product = 34").select("ordered_at", "price").orderBy("ordered_at").collect()
figure = Figure(figsize=(8, 2.5), layout="tight")
axes = figure.subplots()
axes.step([row.ordered_at for row in one], [row.price for row in one], where="post")
axes.plot([row.ordered_at for row in one], [row.price for row in one], ".")
axes.set_ylabel("price of product 34")
figure.savefig("prices_at_order_time.svg")
