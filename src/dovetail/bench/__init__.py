"""Experiments: benchmark cases with rivals, and the calibration of unit costs."""
