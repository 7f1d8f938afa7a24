"""The file of a pipeline: `keys` and `values` are its format, `read` takes its text, `problems` says what is wrong.

`locate` finds lines, `secrets` fills in the environment, `declared` is what comes out; `wiring` and `requests` check
how steps hang together and what joins are asked for, with `arguments` and `sql_tables`.
"""
