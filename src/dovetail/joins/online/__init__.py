"""Online joins: stream against stream, results as early as possible, inside a memory budget.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments; `predicate` and `graph` say when rows match: two inputs
  are a tree with one edge.
* `plan/`: the plan, its tasks, and the state of a bucket. `bucket_rule`: the bucket of a row. `lateness`: when rows may
  leave.
* `event_log`, `state_header`: what the state of a bucket consists of. `running`: its join, which lives on in the
  resident process and is taken up from the state. `bucket_join`: that join as a value.
* `operators/`: the running join of any number of inputs, and the algorithms, each made of an index of rows in memory
  and of work on disk. `kernels/`: the compiled loops.
* What operators are built from: `keys`, `sizes` (the split of the budget), `row_pages` (rows in memory), `blocks` (rows
  on disk), `answers`, `phases`. `row_order`: an order of rows that follows from their values.
"""
