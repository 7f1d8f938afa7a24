"""Functions of sets of intervals: merge, cluster, depth, coverage, difference, complement, pieces and windows.

In the order in which a call passes them:

* `api/`: the public functions, the plan that all of them give, and helpers for columns. `request` checks the arguments.
* `plan/rows`: an input with its bounds as numbers. `plan/scale`: bounds of every type as numbers, and back.
* `plan/cuts`: tasks of equal size. `plan/sweep`: rows by start, their clusters and gaps. `plan/depth`: bounds in order,
  and how many rows are open between them. `plan/windows`: intervals over windows of equal width.
* `plan/pairs`: coverage, difference and pieces, by an index and by interval joins. `plan/coverage`: where left rows are
  looked up in an index of right rows. `cover_index`, `kernels/`: that index, inside a task and its budget.
"""
