"""Pipelines declared in a file: sources, masters, joins and sinks, checked before they run, watched while they do.

`file/` reads the text, `check` holds it against its surroundings, `explain` shows the choices, `start` opens a session,
`steps/` are DataFrames, `sinks/` take their rows, `run` starts the queries over a `checkpoint`, `record/` is what
happened, and `terminal` shows it.
"""
