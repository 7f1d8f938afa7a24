"""Kernels of as-of joins: `search` finds times in sorted runs and places rows between boundaries."""
