"""The index over the right side, sorted once, from which left rows are answered without pairs.

* `index`: the sorted right side. `keys`: equality keys as segments. `sorted`: the arrays of the index.
* `probe`: the positions of left bounds. `zones`: a relation as counts below boundaries.
* `count`: numbers of pairs. `spans` and `top`: the longest overlaps.
"""
