"""Calibration: measures the unit costs of this machine for the cost models.

`measure` runs all measurements and makes a profile of them: pages (`page_costs`), kernels (`kernel_costs`), rows
through Spark. `unit_cost` repeats a measurement. `python -m dovetail.calibrate` measures at first use.
"""
