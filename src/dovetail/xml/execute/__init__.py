"""Executes a rewritten plan in parallel. On the driver: `parts` (the plan cut into parts and a rest) and `scan_work`
(the work of scan tasks for a part). In tasks: `scan_task` (files to rows, by `columns` for conditions on texts),
`tasks` (the input of all tasks, the tasks above joins and the last one) and `rows` (the rows of parts, and how they are
written and read).
"""
