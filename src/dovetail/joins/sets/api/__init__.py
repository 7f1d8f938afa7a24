"""The public functions of interval sets: each gives a lazy DataFrame, its `plan_` twin the plan of it.

* `plan`: the plan that all of them give.
* `clusters`: merge, cluster, complement. `depth`: depth and disjoint pieces. `cover`: coverage, subtract, setdiff.
* `windows`: windows and pivot. `intervals`: helpers that give columns.
"""

from dovetail.joins.sets.api import intervals as intervals
