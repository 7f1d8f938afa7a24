"""Syntax tree to logical plan.

`normalise` makes the first plan, with `clauses` for FLWOR expressions and paths, and `matching` for tests on pieces of
the query and on plans. A plan consists of `operators` and their `expressions`; `properties` derives static properties
of its values, `printer` prints it.
"""
