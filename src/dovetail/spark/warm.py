"""Compiled kernels for every worker at the price of one compilation, done early and by one process at a time.

`dovetail.session()` starts `python -m dovetail.spark.warm` while the JVM boots. The worker daemon then finds the
kernels on disk, loads them, and forks workers that have them in memory. On an executor host the first daemon compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
from collections.abc import Iterator

_running: list[subprocess.Popen[bytes]] = []


def warm_alone() -> int:
    """The number of kernels ready to run in this process; waits while another process of this user compiles them."""
    from dovetail.kernels.compile import warm

    with _one_at_a_time():
        return warm()


def warm_in_background() -> subprocess.Popen[bytes]:
    """The process that now fills the kernel cache; it ends by itself, and with this process at the latest.

    A process and not a thread: Spark forks to start the JVM, and a fork beside a thread that compiles can deadlock.
    """
    command = [sys.executable, "-m", "dovetail.spark.warm"]
    quiet = subprocess.DEVNULL  # the daemon meets the same error, and its words reach Spark's log
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603  (our own module)
    if not _running:
        atexit.register(_stop_all)
    _running[:] = [other for other in _running if other.poll() is None] + [process]
    return process


def _stop_all() -> None:
    for process in _running:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A lock that the system releases when its holder dies; none where the cache directory cannot be written."""
    from dovetail.kernels.compile import cache_dir

    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            cache_dir().mkdir(parents=True, exist_ok=True)
            file = held.enter_context((cache_dir() / "warming").open("w"))
            _take(file.fileno())
        yield


def _take(lock: int) -> None:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Loading takes about a second, compiling all kernels up to a minute: whoever waits should know why.
        print("dovetail: kernels are being prepared for this machine, once per version; waiting", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)


if __name__ == "__main__":
    warm_alone()
