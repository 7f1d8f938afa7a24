"""From IP address to place: addresses are numbers, and each range of them belongs to one place.

Draws the requests of each country into ip_to_place.svg (needs matplotlib).
"""

from pathlib import Path

from matplotlib.figure import Figure

import dovetail

spark, place = dovetail.session(app="addresses"), str(Path.cwd())
ranges = spark.sql("""
    select 4096 * id as first_ip, 4096 * id + 1000 + id % 3000 as last_ip,
           element_at(array('AT', 'BR', 'CN', 'DE', 'EG'), cast(pmod(xxhash64(id), 5) + 1 as int)) as country
    from range(20000)
""")
store = dovetail.MasterStore.build(ranges, f"{place}/ranges.pages", key=(), bounds=("first_ip", "last_ip"), unique=True)

requests = spark.sql("select id as request, pmod(xxhash64(id), 80000000) as ip from range(10000)")
found = dovetail.enrich(requests, store, on=("ip", ("first_ip", "last_ip")), how="left", memory="8MB")
assert found.count() == 10_000
assert found.where("ip < first_ip or ip > last_ip").count() == 0

counts = found.groupBy("country").count().orderBy("country").collect()
print({row.country: row["count"] for row in counts})
figure = Figure(figsize=(8, 2.5), layout="tight")
axes = figure.subplots()
axes.bar([row.country or "unknown" for row in counts], [row["count"] for row in counts])
axes.set_ylabel("requests")
figure.savefig("ip_to_place.svg")
