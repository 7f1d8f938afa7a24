"""Syntax tree to logical plan.

`normalise` makes the first plan, with `clauses` for FLWOR expressions and paths and `matching` for what a
piece of the query, or a plan, reads and asks. A plan consists of `operators` and their `expressions`; `properties` says
what is known of its values, `printer` writes it.
"""
