"""Online joins: stream against stream, results as early as possible, inside a memory budget.

In the order in which a call passes them:

* `api` and `multijoin`: the public functions. `request` checks their arguments; `predicate` says when rows match.
* `plan/`: the plan, and buckets as the batch host and the stateful host take them. `bucket_rule` and `hot_keys`: the
  bucket of a row.
* `event_log`, `state_header`, `schema_text`: the state of a bucket. `running`: its join, which lives on in the resident
  process and is taken up from the state.
* `bucket_join`: the join of a bucket as a value. `operators/`: the joins of two inputs (`registry` names them);
  `multiway/`: those of many. Their shared parts: `joining`, `phases`, `keys`, `sizes`, `row_pages`, `blocks`,
  `block_file`, `directory`, `nested_loop`, `answers`.
* `lateness`: when rows may leave. `progress`: how early results came. `kernels/`: the compiled loops.
"""
