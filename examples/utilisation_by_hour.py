"""Utilisation by hour: bookings of rooms, cut into hours, with free times and double bookings.

Draws the booked minutes of each hour into utilisation_by_hour.svg (needs matplotlib).
"""

from matplotlib.figure import Figure
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail

spark = dovetail.session(app="rooms")
bookings = spark.sql("""
    select id as booking, concat('room ', id % 4) as room, start,
           start + make_dt_interval(0, 0, 20 + id * 13 % 90) as end
    from (
        select id, timestamp'2026-03-02 08:00:00' + make_dt_interval(0, 0, pmod(hash(id), 600)) as start
        from range(60)
    )
""")

hours = dovetail.interval_pivot(bookings, width="1 hour", on="room").orderBy("room", "window_start")
hours.show(4, truncate=False)

busy = dovetail.interval_merge(bookings, on="room", aggregates={"bookings": "collect_list(booking)"})
day = spark.sql("select timestamp'2026-03-02 08:00:00', timestamp'2026-03-02 20:00:00'").first()
free = dovetail.interval_complement(bookings, on="room", limits=tuple(day))
print(busy.count(), "busy times,", free.count(), "free times")

twice = dovetail.interval_depth(bookings, on="room").where("depth > 1")
print(twice.count(), "times at which a room is booked twice or more")

used = hours.groupBy(F.hour("window_start").alias("hour")).agg(F.sum("overlap").alias("used")).orderBy("hour").collect()
figure = Figure(figsize=(8, 2.5), layout="tight")
axes = figure.subplots()
axes.bar([row[0] for row in used], [row[1] / 60 for row in used])
axes.set_xlabel("hour")
axes.set_ylabel("booked minutes")
figure.savefig("utilisation_by_hour.svg")
