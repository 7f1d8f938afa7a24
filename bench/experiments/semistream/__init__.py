"""The experiments on joins of a stream with master data: Naeem 2011, 2012 and 2014.

`points` are joins in a setting, `media` runs them on a simulated disk, a page file and a database. Figures are found by
`workload` (the stream), `mesh` and `mesh_by_clock` (chapters 3 and 4), `sweeps` (rates and proportions over any axis),
`times`, `tuning` and `position` (chapters 5 to 8, Naeem 2014); `printed` has the source's equations.
"""
