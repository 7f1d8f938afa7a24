"""The experiments on joins of a stream with master data: Naeem 2011, 2012 and 2014.

`points` are joins in a setting, `media` runs them on a simulated disk, a page file and a database. Experiments are in
`workload` (the stream), `mesh` and `mesh_by_clock` (chapters 3 and 4), `rates`, `times`, `tuning` and `proportions`
(chapters 5 to 8 and the appendices), and `position` (Naeem 2014); `printed` has the source's equations.
"""
