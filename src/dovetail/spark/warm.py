"""Compiles all kernels into the cache on disk, early and by one process at a time.

`dovetail.session()` starts `python -m dovetail.spark.warm` while the JVM boots. A worker loads the kernels of its task
from disk, and the worker daemon loads all of them while it waits, for workers that it forks later. On the very first
run of a version they are not all on disk yet: then each worker compiles the few that its query needs, and finds on disk
what is there by then. To spare the first run that, in a container image or after an upgrade, run the command above
once; with `--first` it compiles only what the default algorithms run. On an executor host the first daemon starts that
process. Kernels are compiled for the processor of this host; with `--portable` for one that most hosts have, so that an
image serves executors of several kinds. Hosts that find no kernels of their own in the cache take portable ones.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from dovetail.engine.cache import cache_dir, is_prepared, prepared_marker, read_only
from dovetail.engine.processor import compile_for_portable
from dovetail.engine.profile import profile_path
from dovetail.errors import ConfigError

_running: list[subprocess.Popen[bytes]] = []
_KEEP_S = 60 * 24 * 3600.0
_FIRST, _PORTABLE = "--first", "--portable"
CALIBRATE = "DOVETAIL_CALIBRATE"


def prepare(first_only: bool = False) -> None:
    """Compiles every kernel into the cache on disk, unless it is there; waits while another process does so.

    With `first_only`, only the kernels of the default algorithms. Raises ConfigError if the cache cannot be written:
    what is compiled would be lost.
    """
    if is_prepared():
        return
    if read_only():
        raise ConfigError("DOVETAIL_CACHE_READONLY is set, so kernels cannot be compiled into the cache; unset it once")
    marker = prepared_marker()  # of the source as it is now: it may be edited while it is compiled
    with one_at_a_time(cache_dir(), "compiled kernels"):
        if not marker.is_file():
            _remove_old()  # before, so that what is marked as prepared is there
            _compile(first_only)
            if not first_only:
                marker.touch()


def _remove_old() -> None:
    """Remove compiled kernels that were written long ago, by other versions: an installation in use compiles again."""
    oldest = time.time() - _KEEP_S
    for entry in cache_dir().iterdir():
        if entry.stat().st_mtime < oldest and (entry.is_dir() or entry.name.startswith("prepared-")):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _compile(first_only: bool) -> None:
    """The kernels into the cache, with as many processes as there are cores, up to four."""
    from dovetail.engine.kernels.compile import warm

    processes = min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    taken = cache_dir() / "taken"
    taken.write_text("0")
    helpers = [_helper(taken, first_only) for _ in range(1, processes)]
    try:
        warm(_numbers(taken), first_only)
        done = [helper.wait() == 0 for helper in helpers]
    finally:
        for helper in helpers:
            helper.kill()
        taken.unlink(missing_ok=True)
    if not all(done):
        warm(first_only=first_only)  # repeats what failed there, or fails here with a visible error


def _numbers(taken: Path) -> Iterator[int]:
    """Numbers that no other process has: the file holds how many were taken."""
    import fcntl

    while True:
        with taken.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(file.read())
            file.seek(0)
            file.write(str(number + 1))
        yield number


def _helper(taken: Path, first_only: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dovetail.spark.warm", *([_FIRST] if first_only else []), str(taken)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)  # noqa: S603  (our own module)


def _help(taken: Path, first_only: bool) -> None:
    """Compile in turn with others; ends with the process that asked for it, whose end closes our input."""
    from dovetail.engine.kernels.compile import warm

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    warm(_numbers(taken), first_only)


def prepare_in_background(errors: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """The process that now prepares the kernels, with low priority."""
    return beside("dovetail.spark.warm", errors=errors)


def calibrate_in_background() -> None:
    """Have unit costs measured, with low priority, if this machine has no profile and DOVETAIL_CALIBRATE is not off."""
    if os.environ.get(CALIBRATE, "").strip().lower() != "off" and not profile_path().exists():
        beside("dovetail.calibrate")


def beside(module: str, *arguments: str, errors: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A process that runs one of our modules; it ends with this process at the latest.

    A process and not a thread: Spark forks to start the JVM, and a fork beside a thread that compiles can deadlock.
    """
    command = [sys.executable, "-m", module, *arguments]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=errors)  # noqa: S603  (our own module)
    if not _running:
        atexit.register(_stop_all)
    _running[:] = [other for other in _running if other.poll() is None] + [process]
    return process


def steps() -> Iterator[str]:
    """Loads all kernels into this process, one module at each step, if they are on disk.

    If not, it starts the process that compiles them and does not wait for it: all kernels take half a minute, the few
    that one query needs a second or two.
    """
    from dovetail.engine.kernels.compile import loading

    if is_prepared():
        yield from loading()
        return
    prepare_in_background(errors=None)
    print("dovetail: kernels are being compiled for this machine; first queries are slower until then", file=sys.stderr)


def _stop_all() -> None:
    for process in _running:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def one_at_a_time(folder: Path, what: str) -> Iterator[None]:
    """Lock a cache directory for the block; the system releases the lock if its holder dies."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "preparing").open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write {what} to {folder}: {error}. Set DOVETAIL_CACHE to a writable directory."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    os.nice(19)  # a running query, or an installation, has priority
    only_first, places = _FIRST in sys.argv, [word for word in sys.argv[1:] if not word.startswith("--")]
    if _PORTABLE in sys.argv:
        compile_for_portable()
    if places:
        _help(Path(places[0]), only_first)
    else:
        prepare(only_first)
