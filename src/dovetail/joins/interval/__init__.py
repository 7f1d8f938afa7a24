"""Interval joins: finite by finite, on overlap and on all of Allen's relations."""
