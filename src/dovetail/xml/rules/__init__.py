"""Rewrite rules of plans. `order` says when each of them runs, in groups:

`paths`, `subplans`, `scans` (with aggregates and joins). Patterns of several rules are in `algebra.matching`.
"""
