"""XQuery over collections of XML files, in parallel on Spark.

In the order in which a query passes them:

* `api`: the public functions. `request` checks their options. `syntax/`: text to syntax tree. `algebra/`:
  syntax tree to logical plan.
* `rules/`: ordered rewrite rules. `execute/`: the plan cut into parts, and what tasks do. `plan/`: the parts on Spark.
* `scan/`: XML text to the subtrees on a path, by the compiled loops of `kernels/`.
* `evaluate/`: the one evaluator, for pieces of the query and for plans. `xdm/`: values and nodes.

Constant queries, the last task of a query, chains over joins and scans by tuples all run by `execute.runner`, which
compiles operators and expressions by `evaluate/`. Simple scans run on columns instead, for speed: `execute.scan_work`
decides it, and texts that are not plain go to the same evaluator.
"""
