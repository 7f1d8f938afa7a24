"""Sessions and clicks: two streams, each click with the sessions of its user that it falls into.

Sessions without a click come, too, once no click can come any more. Draws the time from the start of a session to its
clicks into sessions_and_clicks.svg (needs matplotlib).
"""

from pathlib import Path

from matplotlib.figure import Figure

import dovetail

spark, place = dovetail.session(app="clicks"), str(Path.cwd())
sessions = spark.sql("""
    select *, began + make_dt_interval(0, 0, 5 + session % 40) as ended
    from (select id as session, pmod(hash(id), 80) as user,
                 timestamp'2026-03-02 09:00:00' + make_dt_interval(0, 0, 0, pmod(xxhash64(id), 14400)) as began
          from range(400))
""")
sessions.write.parquet(f"{place}/sessions")
clicks = spark.sql("""
    select id as click, pmod(hash(-id), 60) as user,
           timestamp'2026-03-02 09:00:00' + make_dt_interval(0, 0, 0, pmod(xxhash64(-id), 15600)) as clicked
    from range(900)
""")
clicks.write.parquet(f"{place}/clicks")

sessions = spark.readStream.schema(sessions.schema).parquet(f"{place}/sessions")
clicks = spark.readStream.schema(clicks.schema).parquet(f"{place}/clicks")
joined = dovetail.online_join(
    sessions.withWatermark("began", "5 minutes"),
    clicks.withWatermark("clicked", "5 minutes"),
    on="user",
    relation="overlapping",
    left_interval=("began", "ended"),
    right_interval="clicked",
    how="left",
    owed="batch",
    memory="8MB",
)
writer = joined.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
writer.option("path", f"{place}/joined").trigger(availableNow=True).start().awaitTermination()
answers = spark.read.parquet(f"{place}/joined")
minutes = answers.where("click is not null").selectExpr("(unix_timestamp(clicked) - unix_timestamp(began)) / 60 as m")
outside = answers.where("clicked < began or clicked >= ended").count()
print(answers.count(), "rows,", answers.where("click is null").count(), "sessions without a click so far")
assert outside == 0

figure = Figure(figsize=(8, 2.5), layout="tight")
axes = figure.subplots()
axes.hist([row.m for row in minutes.collect()], bins=30)
axes.set_xlabel("minutes from the start of a session to a click")
figure.savefig("sessions_and_clicks.svg")
