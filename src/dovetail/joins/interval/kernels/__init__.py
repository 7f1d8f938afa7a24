"""Kernels of interval joins.

* `sweep`: rows, the pair rule and the state that the operators' kernels share, with a heap and a bitmap. Then a file an
  algorithm: `sort_merge`, `time_sweep`, `forward_scan`, `spill` (for these three), `slots` (OIP), `disjoint` (DIP).
* `search`, `wavelet`, `overlap_length`: sorted bounds for counts, first matches and the longest overlaps.
"""

FIRST = ("search",)
"""Modules whose kernels the default algorithms run: they are compiled first."""
