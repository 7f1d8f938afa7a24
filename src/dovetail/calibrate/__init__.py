"""Calibration: measures the unit costs of this machine, which the cost models read.

`measure` runs the measurements of `kernel_costs`, `page_costs` and `spark_costs` and makes a profile of them.
"""
