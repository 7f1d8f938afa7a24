"""The evaluator: compiles expressions to Python closures, which return sequences of items.

`plans` runs plans: operators become clauses of `flwor`. `operators` compiles literals, variables, operators and the
calls of plans. `paths` (over `axes`), `control` and `constructors` compile the other nodes of the syntax tree.
`calls` compiles calls of functions, those of the library in `functions/` and declared ones, and holds the static
context. `compiler` has the registry of all these, the scope, the context and sequence types.
"""

from dovetail.xml.evaluate import constructors, control, flwor, functions, operators, paths

__all__ = ["constructors", "control", "flwor", "functions", "operators", "paths"]  # each registers itself
