"""Runs pipelines that a file declares: sources, masters, joins and sinks.

In the order of a run:

* `file/`: reads the text and checks it.
* `start`: opens the Spark session.
* `check`: checks columns, files and servers without running a job.
* `run`: runs the queries. `checkpoint`: the directory that they continue from.
* `steps/`: makes DataFrames of the steps. `sinks/`: writes their rows.
* `record/`: records the progress of a run. `terminal`: prints it.
"""
