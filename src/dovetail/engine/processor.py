"""Names the processor that kernels are compiled for: this host's own, or a portable one. Needs no Numba."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

NAME, FEATURES = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
_X86 = ("x86_64", "AMD64")
_NEEDED = frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})  # of x86-64-v3
_COMPILED_FOR = re.compile(r"\w*(avx|sse|bmi|fma|f16c|movbe|abm|popcnt|aes|sha|gfni|clmul|adx|amx|xop)\w*")


def portable() -> str:
    """The processor of kernels that run on most hosts of this family: x86-64-v3 (since 2013), else a generic one."""
    return "x86-64-v3" if platform.machine() in _X86 else "generic"


def runs_portable() -> bool:
    """Whether this host runs kernels that were compiled for the portable processor."""
    return platform.machine() not in _X86 or _flags() >= _NEEDED


def compile_for_portable() -> None:
    """Make Numba compile for the portable processor in this process, before it is imported, and in those it starts."""
    os.environ[NAME], os.environ[FEATURES] = portable(), ""


def target(env: Mapping[str, str] = os.environ) -> str:
    """A short name of the processor that this process compiles for: Numba's settings say which, else it is this one."""
    name, features = env.get(NAME), env.get(FEATURES)
    if (name, features) == (portable(), ""):
        return portable()
    if name is None and features is None:
        return host()
    return _digest(f"{name} {host() if features is None and name != 'generic' else features}")


@functools.cache
def host() -> str:
    """A short name of this host's processor, which differs where compiled kernels would."""
    known = [_field(name) for name in ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "Features")]
    return _digest(" ".join([platform.machine(), platform.processor(), *known, *sorted(_flags())]))


def _flags() -> frozenset[str]:
    return frozenset(flag for flag in _field("flags").split() if _COMPILED_FOR.fullmatch(flag))


def _field(name: str) -> str:
    found = re.search(rf"^{name}\s*: (.*)$", _cpuinfo(), re.MULTILINE)
    return found[1] if found else ""


@functools.cache
def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:  # not Linux
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
