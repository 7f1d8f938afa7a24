"""Interval joins: two finite inputs, on overlap and on all of Allen's relations.

In the order in which a call passes them:

* `api`: the public functions and the plan of a join. `request` checks their arguments; `relation` defines the relations
  and the codes of bounds.
* `plan/`: statistics, the choice between the routes (native, ranges, index), and each route as a DataFrame.
* `cost/`: the prices of the operators.
* `cell_join`: the join of one range inside a task. `operators/`: the five local joins.
* `index/`: counts, semi joins, anti joins, first matches and the longest overlaps without pairs.
* `kernels/`: the compiled loops.
"""
