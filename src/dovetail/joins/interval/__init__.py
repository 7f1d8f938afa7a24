"""Interval joins: two finite inputs, on overlap and on all of Allen's relations.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments; `relation` defines the relations.
* `plan/`: statistics, the choice between the routes (native, ranges, index), and each route as a DataFrame.
* `bins`: the bin widths of the native route. `cost/`: the prices of the operators.
* `cell_join`: the join of one range inside a task, with `codes` for its bounds. `operators/`: the five local joins.
* `index/`: counts, semi joins, anti joins, first matches and the longest overlaps without pairs.
* `kernels/`: the compiled loops.
"""
