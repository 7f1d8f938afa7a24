"""A rewritten plan executed in parallel.

On the driver: `parts` (the plan cut into parts and a rest) and `scan_work` (what scan tasks do for a part). In tasks:
`scan_task` (files to rows, by `columns` for conditions on texts), `tasks` (what all tasks are given, the tasks above
joins and the last one) and `rows` (what parts give, and how it is written and read).
"""
