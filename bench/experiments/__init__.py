"""Experiments of the sources and our own, one family a folder; every module holds `EXPERIMENTS`."""
