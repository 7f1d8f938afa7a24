"""Rows as Arrow columns: taking them by number or name, codes and hashes of keys, codes of bounds, results, bytes."""
