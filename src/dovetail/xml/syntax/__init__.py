"""Query text to syntax tree.

`parser` (whole queries: prolog, operators) calls `parse_path`, `parse_direct` (constructors) and `parse_flwor`, which
stand on `reader` (tokens, namespaces, types) and `lexer`. They give the nodes of `tree`, with the names of `names`.
`stack` makes room for nested queries.
"""
