"""Compiled loops that several families share: hash multimap, gathers, interning, hashing, sorting.

Importing this package decides where compiled code is kept (`cache.cache_dir`) before Numba compiles anything.
"""

from dovetail.engine.kernels.compile import kernel, register_warmup, warm

__all__ = ["kernel", "register_warmup", "warm"]

FIRST = ("gather", "hashing", "interning", "multimap")
"""Modules whose kernels the default algorithms run: they are compiled first."""
