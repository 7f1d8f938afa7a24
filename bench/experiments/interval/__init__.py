"""The experiments on interval joins of Carman 2020.

`runs` has the inputs and local runs, `tasks` runs over Spark tasks. Experiments are in `counts` and `model_errors`
(counted), `local` (measured on one core) and `spread` (measured over tasks).
"""
