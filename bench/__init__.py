"""Benchmarks of Dovetail beside its rivals, and the experiments of the sources; not part of the installed package.

`__main__` is the command, `catalogue` makes every entry from its table, `harness` runs them: counted experiments side
by side in processes, everything that is measured alone. Both kinds of entries are data. `cases/*.toml` say what each
`case` asks, at which points, of which rivals, and what it claims; the modules beside them prepare the rivals (with
`rivals`). `experiments/*.toml` say what each `experiment` repeats and varies, and what is stated and shown of the
figures that a function of `experiments/` finds (with `simulation` for master data on a disk that only counts); `judge`
decides the statements, whose texts and conditions `expression` evaluates. `context` holds what a run shares, `child`
calls functions in processes of their own, `machine` says where figures were measured. `report` makes tables of results,
`chart` draws them, `page` keeps them and makes one page of them all.
"""
