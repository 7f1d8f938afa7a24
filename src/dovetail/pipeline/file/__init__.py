"""Reads pipeline files.

* `read`: reads the text and checks each table against the format, which `keys` defines.
* `declared`: the pipeline that results: steps, their inputs, secrets from the environment.
* `wiring`: checks the references between steps. `requests`: checks the options of joins.
* `problems`: the problems that were found, each with its line.
"""
