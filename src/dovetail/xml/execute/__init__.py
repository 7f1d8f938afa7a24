"""A rewritten plan executed in parallel.

On the driver: `result` (the columns of the answer), `parts` (the plan cut into parts and a rest), `scan_work` and
`joining` (what tasks do for a part). In tasks: `job` (what they are given, and the files), `scan_task` (files to rows,
by `columns` for conditions on texts), `runner` (operators tuple by tuple), `wire` (rows between tasks), `last_task`
(aggregates combined, the rest of the plan).
"""
