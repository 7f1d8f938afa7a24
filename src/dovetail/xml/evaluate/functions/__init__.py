"""The functions that queries can call, one file an area."""
