"""Online joins: stream against stream, results as early as possible, inside a memory budget.

In the order in which a call passes them:

* `api` and `multijoin`: the public functions. `request` checks their arguments; `predicate` and `graph` say when rows
  match: of two inputs, which are a tree with one edge, and of many.
* `plan/`: the plan, and buckets as the batch host and the stateful host take them. `bucket_rule`: the bucket of a row.
* `event_log`, `state_header`, `schema_text`: the state of a bucket. `running`: its join, which lives on in the resident
  process and is taken up from the state.
* `bucket_join`: the join of a bucket as a value. `operators/`: the running join of any number of inputs, and the
  algorithms, each made of an index of rows in memory and of work on disk.
* What all of them share: `joining`, `keys`, `sizes`, `row_pages` (rows in memory), `blocks` (rows on disk), `answers`,
  `phases`.
* `lateness`: when rows may leave. `progress`: how early results came. `kernels/`: the compiled loops.
"""
