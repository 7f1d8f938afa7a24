"""Interval joins on Spark.

* `sides`: both inputs with the columns of the result, bounds and keys of one type. `statistics`: counts and samples.
* `choose`: the decision between the routes, for every question, with every limit and price.
* `route`: what every route does. `native`, `ranges`, `index`: the routes. `bins`: bins by price. `cells`: joins of rows
  that are in several cells.
* `slack`: gaps and least overlaps as bounds and conditions. `text`: codes of text bounds. `band`: band joins, which are
  interval joins; `grid`: cells for two inequalities.
* `write`: Parquet files from tasks.
"""
