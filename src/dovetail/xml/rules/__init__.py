"""Rewrite rules of plans. `order` says when each of them runs, in groups:

`paths`, `subplans`, `scans` (with aggregates and joins). What several rules look for is in `algebra.matching`.
"""
