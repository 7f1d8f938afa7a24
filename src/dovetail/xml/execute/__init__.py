"""A rewritten plan executed in parallel.

On the driver: `result` (the columns of the answer), `parts` (the plan cut into parts and a rest), `scan_work` and
`joining` (what tasks do for a part). In tasks: `tasks` (what each kind of task does), `job` (what they are given, and
the files), `scan_task` (files to rows, by `columns` for conditions on texts), `rows` (what parts give, and how it is
written and read) and `wire` (keys and values as cells).
"""
