"""The evaluator: expressions become Python closures once, and closures give sequences of items.

`compiler` has the registry, the scope and the context. `static` holds functions and global variables; `functions/` is
the library. Nodes of the syntax tree are compiled by `operators`, `control`, `paths` (over `axes`), `flwor`,
`constructors` and `types`; expressions of a plan by `plan_expressions`, which turns most of them into the same nodes.
"""
