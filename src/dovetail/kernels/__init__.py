"""Numba and NumPy on plain arrays: hash multimap, linked queue, sorted index, gathers, interning, sweeps.

Importing this package settles where compiled code is kept (`compile.cache_dir`) before Numba compiles anything.
"""

from dovetail.kernels.compile import cache_dir, kernel, register_warmup, warm

__all__ = ["cache_dir", "kernel", "register_warmup", "warm"]
