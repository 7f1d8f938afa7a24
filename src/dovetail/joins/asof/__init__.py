"""As-of joins: each left row with the last right row before it, the next one after it, or the nearest one.

In the order in which a call passes them:

* `api`: the public functions and the plan of a join: the choice of the algorithm, explain, metrics. `request` checks
  their arguments.
* `plan/`: `sides` (both inputs under the names of the result), `index` (which task a row goes to, and the join by
  tasks), `window` (Spark's own operators).
* `cells`: the cell of each row, and copies of right rows for other cells.
* `operator`: the join as a value, inside a budget, and inside a task. `right_index`: right rows sorted and searched.
* `kernels/`: the compiled loops.
"""
