"""The experiments of the online joins: shares of results that come while rows arrive, and rows that wait in pauses.

`streams` are the inputs and what the source prints, `counting` counts results, `pausing` simulates pauses, `shares`
compares and proves. Experiments are in `laws`, `recorded`, `pauses` and `many`.
"""
