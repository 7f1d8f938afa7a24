"""Compiles kernels, caches them on disk, and loads them before the first query needs them.

Numba's own on-disk cache has two gaps that matter here. It looks only at the file of the function, so an edit to a
kernel that another file's kernel inlines is missed; and two processes that write one index at once can leave a name
that points to the machine code of another signature. The cache below stamps every kernel with its own source and that
of every dovetail module it imports, and takes a file lock around reads and writes.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.resources
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from dovetail.engine.cache import PACKAGE, cache_dir, kernel_files, read_only, takes_portable
from dovetail.engine.processor import compile_for_portable, portable

F = TypeVar("F", bound=Callable[..., Any])
W = TypeVar("W", bound=Callable[[], None])

# A plain `numba.njit(cache=True)` elsewhere in the process then shares our directory, unless the user chose one.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_dir()))
_IS_PORTABLE = takes_portable()
if _IS_PORTABLE:
    compile_for_portable()

import numba  # noqa: E402  (reads its settings from the environment when it is imported)
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator  # noqa: E402
from numba.core.dispatcher import Dispatcher  # noqa: E402

if _IS_PORTABLE:  # also where the program had imported Numba
    _config: Any = numba.config
    _config.CPU_NAME, _config.CPU_FEATURES = portable(), ""


@functools.cache
def _module_source(name: str) -> str | None:
    """The text of a dovetail module, read without importing it; None if there is no such module."""
    steps = name.split(".")[1:]
    here = importlib.resources.files("dovetail")
    for place in ([*steps, "__init__.py"], [*steps[:-1], f"{steps[-1]}.py"] if steps else []):
        if place and (found := here.joinpath(*place)).is_file():
            return found.read_text(encoding="utf-8")
    return None


def _dovetail_imports(source: str) -> Iterator[str]:
    """Dotted names that this source may import from dovetail; a name may turn out to be a function, not a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dovetail."))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("dovetail"):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _sources(source: str) -> tuple[str, ...]:
    """This source and the text of every dovetail module it imports, directly or not."""
    seen: dict[str, str] = {}
    waiting = list(_dovetail_imports(source))
    while waiting:
        name = waiting.pop()
        if name not in seen and (text := _module_source(name)) is not None:
            seen[name] = text
            waiting += _dovetail_imports(text)
    return source, *(seen[name] for name in sorted(seen))


@functools.cache
def source_stamp(source: str) -> str:
    """A digest that changes with `source` and with the text of every dovetail module it imports, directly or not."""
    return hashlib.sha256("\0".join(_sources(source)).encode()).hexdigest()


class _Locator(UserProvidedCacheLocator):
    """Places a kernel's files under `cache_dir()`, in a directory named after its module and all source it comes from.

    So every installation of one version shares its compiled kernels, and those of two versions do not displace each
    other.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        self._stamp = source_stamp("".join(inspect.findsource(py_func)[0]))
        self._cache_path = str(cache_dir() / f"{py_func.__module__}-{self._stamp[:16]}")

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_source_stamp(self) -> str:
        return self._stamp


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  (numba declares it so)


class _Cache(FunctionCache):
    """Numba's function cache with a lock; a file that cannot be read is compiled again."""

    _impl_class = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            with _locked(Path(self.cache_path), exclusive=False):
                return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]  # numba's
        except Exception:  # a damaged file can fail in any way that unpickling can; compiling is always right
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if read_only() or not _writable(self.cache_path):
            return
        with _locked(Path(self.cache_path), exclusive=True):
            try:
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]  # numba's
            except Exception:  # the index is damaged, see above
                self.flush()  # type: ignore[no-untyped-call]  # numba's
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]  # numba's


@functools.cache
def _writable(path: str) -> bool:
    """False on a read-only or missing home: kernels are then compiled in memory, which is slow but right."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(directory: Path, *, exclusive: bool) -> Iterator[None]:
    if sys.platform == "win32":  # no flock there; DOVETAIL_CACHE_READONLY in the workers is what keeps one writer
        yield
        return
    import fcntl

    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY, 0o600)
    except OSError:  # nothing was ever written, or nothing can be, so there is nothing to read half of
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


_KERNELS: list[Dispatcher] = []
_WARMUPS: list[Callable[[], None]] = []


def kernel(fn: F) -> F:
    """The function compiled by Numba on first use, cached on disk, running without the GIL.

    No bounds checks, no parallel loops, no fast-math: the same input gives the same bits. With NUMBA_DISABLE_JIT=1 the
    plain Python function comes back, for debugging.
    """
    compiled: Any = numba.njit(nogil=True, boundscheck=False)(fn)
    if isinstance(compiled, Dispatcher):
        _KERNELS.append(compiled)
        with contextlib.suppress(OSError):  # no source file (typed at a prompt): compiled in memory only
            compiled._cache = _Cache(fn)  # type: ignore[attr-defined,no-untyped-call]  # numba has no public hook
    return cast("F", compiled)


def register_warmup(fn: W) -> W:
    """The function itself, remembered: `warm` will call it, and it calls each kernel of its module on tiny arrays."""
    _WARMUPS.append(fn)
    return fn


def import_kernels() -> None:
    """Import every module of a `kernels` package, so that each has registered its kernels and its warm-up."""
    for file in kernel_files():
        importlib.import_module(_module_name(file))


def _module_name(file: PurePosixPath) -> str:
    return ".".join((PACKAGE.name, *file.with_suffix("").parts))


def warm(numbers: Iterable[int] | None = None, first_only: bool = False) -> int:
    """The number of kernels that are ready to run after loading or compiling every one of the package.

    With `numbers`, only these modules, until a number is beyond the last: several processes can share the work.
    Those that the default algorithms run, which a `kernels` package names in `FIRST`, come first, and alone if
    `first_only`; then those with the most to compile, as their source tells.

    Call it once in the driver, which writes the cache, and in a worker daemon before it forks, with
    DOVETAIL_CACHE_READONLY=1: the workers inherit machine code. A second call costs microseconds a kernel.
    """
    import_kernels()
    chosen = [warmup for warmup in _WARMUPS if _is_first(warmup) or not first_only]
    ordered = sorted(chosen, key=lambda warmup: (_is_first(warmup), _weight(warmup)), reverse=True)
    for number in count() if numbers is None else numbers:
        if number >= len(ordered):
            break
        ordered[number]()
    return len(_KERNELS) - len(cold_kernels())


def _is_first(warmup: Callable[[], None]) -> bool:
    package, _, name = warmup.__module__.rpartition(".")
    return name in getattr(sys.modules.get(package), "FIRST", ())


def loading() -> Iterator[str]:
    """`warm` in steps of some 20 ms, for a process that also does other work; gives the name of each module."""
    for file in kernel_files():
        known = len(_WARMUPS)
        name = _module_name(file)
        importlib.import_module(name)
        yield name
        for warmup in _WARMUPS[known:]:
            warmup()
            yield warmup.__module__


def _weight(warmup: Callable[[], None]) -> int:
    """The length of all source that the kernels of a warm-up are compiled from."""
    return sum(map(len, _sources(_module_source(warmup.__module__) or "")))


def cold_kernels() -> list[str]:
    """Names of the kernels that are neither in memory nor on disk; empty after `warm` if every module registered.

    A kernel that only other kernels call is part of their machine code and need not be in memory itself.
    """
    return [f"{k.py_func.__module__}.{k.py_func.__qualname__}" for k in _KERNELS if not (k.signatures or _on_disk(k))]


def _on_disk(compiled: Any) -> bool:
    cache = compiled._cache
    if not isinstance(cache, _Cache):
        return False
    with _locked(Path(cache.cache_path), exclusive=False):
        return Path(cache.cache_path).is_dir() and bool(cache._cache_file._load_index())  # type: ignore[no-untyped-call]  # numba's
