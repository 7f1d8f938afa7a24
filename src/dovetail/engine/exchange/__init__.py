"""Rows on their way between tasks: bundled or sorted before an exchange, delivered to an operator behind it."""
