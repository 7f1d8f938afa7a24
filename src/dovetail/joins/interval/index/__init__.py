"""The index over the right side, sorted once, from which left rows are answered without forming pairs.

* `answers`: questions about left rows, answered batch by batch inside a task.
* `overlap_index`: the index and the positions of left bounds in it. `sorted`: its arrays. `zones`: a relation as counts
  below boundaries.
* `count`: the number of pairs of two whole inputs. `top`: the pairs that overlap longest.
"""
