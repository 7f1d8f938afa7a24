"""Runs the command `dovetail`: `main` finds the subcommand, one module for each.

`demo` (with `demo_retail`), `run`, `check`, `explain`, `page`, `doctor`, `calibrate`, `xquery`.
"""
