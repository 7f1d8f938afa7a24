"""Nearest joins: the k nearest right intervals of each left one, with their distance.

In the order in which a call passes them:

* `api`: the public functions and the plan of a join: explain, metrics. `request` checks their arguments.
* `plan/`: `search` (which task a row goes to, and one search by tasks), `ties` (all ties, or the first ones).
* `operator`: the join as a value, inside a budget. `interval_index`: right rows sorted and searched.
* `kernels/`: the compiled loops.
"""
