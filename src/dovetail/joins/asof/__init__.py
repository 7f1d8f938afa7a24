"""As-of joins: each left row with the last right row before it, the next one after it, or the nearest one.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments.
* `plan/`: `sides` (both inputs under the names of the result), `plan` (the choice of the way, explain, metrics),
  `index` (which task a row goes to, and the join by tasks), `window` (Spark's own operators).
* `spec`: the join as a value. `operator`: the join inside a budget, and inside a task. `right_index`: right rows
  sorted and searched.
* `kernels/`: the compiled loops.
"""
