"""Parses and checks the arguments that all joins share: one name, one meaning, one message.

* `options`: the options of a public function as a value, and the function's signature.
* `choices`: one of several words, such as `how` with Spark's aliases. `amounts`: sizes, durations, counts, flags.
* `columns`: keys, output columns and suffixes.

A family's `request.py` has the options of that family only. Every error names its argument: `PlanError.argument`.
"""
