"""Lists the kernels that this process holds compiled."""

from __future__ import annotations

from dovetail.engine.kernels import compile as compiling


def compiled_signatures() -> dict[str, int]:
    """For each kernel how many versions, one a combination of argument types, this process holds."""
    kernels = compiling._KERNELS
    return {f"{k.py_func.__module__}.{k.py_func.__qualname__}": len(k.signatures) for k in kernels}
