"""Benchmarks of Dovetail beside its rivals, and the experiments of the sources; not part of the installed package.

`__main__` is the command, `catalogue` finds every entry by name, `harness` runs them: counted experiments side by side
in processes, everything that is measured alone. A `case` sets rivals beside each other (`cases/`, with `intervals`,
`enrichment`, `lookups`, `postgres`, `xquery_weather`, `xquery_saxon`); an `experiment` decides a claim.
Experiments are data: `experiments/*.toml` say what each repeats, claims, varies and compares, and which function of
`experiments/` runs it (with `simulation` for master data on a disk that only counts). `context` holds what
a run shares, `child` calls functions in processes of their own, `machine` says where figures were measured. `report`
makes tables of results, `chart` draws them, `page` keeps them and makes one page of them all.
"""
