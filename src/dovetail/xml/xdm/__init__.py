"""Items of XQuery's data model.

Atomic values: `atomic` (types and numbers), `temporal`, `values` (typed values and casts), `operators`, `regex`.
Nodes over lxml trees: `nodes` (with document order), `markup` (text to nodes and back).
"""
