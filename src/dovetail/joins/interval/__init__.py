"""Interval joins: two finite inputs, on overlap and on all of Allen's relations.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments; `relation` defines the relations.
* `plan/`: statistics, the choice of a route and its price, and each route as a DataFrame.
* `codes`: bounds as int64 codes. `bins`: the bin width of the native route.
* `cell_join`: the join of one partition inside a task. `operators/`: the five local joins (`algorithms` names them).
* `index/` and `answers`: counts, semi joins, anti joins and first matches without pairs.
* `cost/`: the cost models. `kernels/`: the compiled loops.
"""
