"""Parses query text to a syntax tree. `parser` (whole queries: prolog, operators) calls the functions of `expressions`
(keywords, paths, primary expressions) and `direct` (direct constructors). All of them read from one `Reader` (tokens,
namespaces, types). They give the nodes of `tree`.
"""
