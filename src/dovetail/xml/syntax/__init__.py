"""Query text to syntax tree.

`parser` (whole queries: prolog, operators) calls the functions of `paths` (with primary expressions), `direct` (direct
constructors) and `clauses` (FLWOR and other expressions that start with a keyword). All of them read from one `Reader`
(tokens, namespaces, types). They give the nodes of `tree`.
"""
