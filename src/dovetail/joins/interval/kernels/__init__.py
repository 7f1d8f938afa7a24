"""Kernels of interval joins: sweeps over sorted sides, and ranks for counting."""
