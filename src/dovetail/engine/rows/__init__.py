"""Rows as Arrow columns: taking them by number, codes for keys and bounds, names of results, bytes."""
