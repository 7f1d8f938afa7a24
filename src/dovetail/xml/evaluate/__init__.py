"""The evaluator: expressions become Python closures once, and closures give sequences of items.

`plans` runs plans: operators become clauses of `flwor`, expressions closures by `plan_expressions`, which turns most of
them into nodes of the syntax tree. Those are compiled by `operators`, `control`, `paths` (over `axes`), `flwor`,
`constructors` and `types`. `compiler` has the registry, the scope and the context. `static` holds functions and global
variables; `functions/` is the library.
"""
