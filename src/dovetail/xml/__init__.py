"""XQuery over collections of XML files, in parallel on Spark.

In the order in which a query passes them:

* `api`: the public functions. `request` checks their options. `syntax/`: text to syntax tree. `algebra/`: syntax tree
  to logical plan. `rules/`: ordered rewrite rules.
* `execute/`: the plan cut into parts, and the tasks that run them. `plan`: the parts on Spark, the only file besides
  `api` that knows it.
* `scan/`: files, and XML text to the subtrees on a path, by the compiled loops of `kernels/`.
* `evaluate/`: the evaluator of expressions and plans. `xdm/`: values and nodes.

There is one evaluator. Constant queries, the last task of a query, chains over joins and scans by tuples run by
`evaluate.plans`, which compiles operators and expressions to closures. Simple scans run on columns, for speed:
`execute.scan_work` decides it, and texts that are not plain go to the same evaluator.
"""

TASKS = ("dovetail.xml.execute.scan_task",)
"""Modules that tasks import; the worker daemon loads them after the kernels (see `spark.daemon`)."""
