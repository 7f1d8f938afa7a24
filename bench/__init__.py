"""Benchmarks of Dovetail beside its rivals, and the experiments of the sources; not part of the installed package."""
