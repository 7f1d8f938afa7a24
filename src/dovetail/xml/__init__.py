"""XQuery over collections of XML files, in parallel on Spark.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their options. `syntax/`: text to syntax tree. `algebra/`: tree to plan.
* `rules/`: ordered rewrite rules. `execute/`: the plan cut into parts. `plan/`: the parts on Spark.
* `scan/`: XML text to the subtrees on a path. `evaluate/`: expressions as closures. `xdm/`: values and nodes.
* `kernels/`: the compiled loops of the scan.
"""
