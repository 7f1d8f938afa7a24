"""As-of joins: each left row with the last right row before it, the next one after it, or the nearest one.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments.
* `plan/`: `sides` (both inputs under the names of the result), `plan` (the choice of the way, explain, metrics),
  `cells` (which task a row goes to), `index` (rows exchanged and joined by tasks), `window` (Spark's own operators).
* `task`: one partition's rows of both sides, given to the operator.
* `spec`: the join as a value. `operator`: the join inside a budget. `right_index`: right rows sorted and searched.
* `kernels/`: the compiled loops.
"""
