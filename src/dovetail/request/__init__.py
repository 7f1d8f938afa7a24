"""The arguments that all joins share, parsed and checked once: one name, one meaning, one message.

* `options`: the options of a public function as a value, and the function's signature made from it.
* `choices`: words out of a few, `how` with Spark's aliases among them. `amounts`: sizes, durations, counts, flags.
* `columns`: keys, output columns and suffixes.

A family's `request.py` holds what only that family is asked. Every error names its argument: `PlanError.argument`.
"""
