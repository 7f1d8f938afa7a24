"""Runs Spark's Python worker daemon, and loads our kernels while it waits for work.

Spark starts it as `python -m dovetail.spark.daemon` where `spark.python.daemon.module` says so, which
`dovetail.session()` does. Workers that it forks inherit the compiled code that it has loaded by then. The Python of
every executor must be able to import dovetail, as it must for any of our joins; where it cannot, Spark cannot start
Python workers, and `session(**{"spark.python.daemon.module": "pyspark.daemon"})` brings them back, without our joins.

It also starts the resident process, which keeps running joins between tasks and ends with the daemon, and starts it
again if it dies.

With `--ahead` and a socket it is the interpreter of `ahead`, which daemons are forked from.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dovetail.spark.ahead import AHEAD, fork_daemons, hand_over


@contextmanager
def quiet() -> Iterator[None]:
    """Redirect output to stderr; an error is printed and does not stop the daemon."""
    # Spark reads the daemon's address from stdout, so nothing else may be written there first.
    address_channel = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    except Exception:  # workers without kernels are slow, workers that do not start are useless
        traceback.print_exc(file=sys.stderr)
    finally:
        os.dup2(address_channel, 1)
        os.close(address_channel)


_SOCKET_DIRECTORY = "PYTHON_WORKER_FACTORY_SOCK_DIR"  # Spark's name for it
_FIRST_STEP, _NEXT_STEP = 3.0, 0.1  # seconds after the start, and between two steps


def load_in_steps() -> None:
    """Loads everything that tasks may need into this process while it waits for work, a small step at a time.

    The first workers do not wait for it: each loads the few kernels of its task from disk. Workers that are forked
    later find all of them in memory. Steps run in the main thread, which a timer interrupts, as a fork beside another
    thread that loads code could deadlock; children inherit no timer.
    """
    steps = _steps()

    def step(_signal: int, _frame: object) -> None:
        done = _quietly(steps) is None
        gc.freeze()
        if done:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        else:
            signal.setitimer(signal.ITIMER_REAL, _NEXT_STEP)

    signal.signal(signal.SIGALRM, step)
    signal.setitimer(signal.ITIMER_REAL, _FIRST_STEP)


def _steps() -> Iterator[str]:
    from dovetail.spark.warm import steps

    yield from steps()
    load_tasks()
    yield "tasks"


def start_resident() -> None:
    """Forks the process that keeps running joins; without it they live in workers, and are rebuilt more often."""
    with quiet():
        from dovetail.spark.hosts.resident.process import start

        start()


def load_tasks() -> None:
    """Imports the modules in `TASKS` of each family, which each new worker would import by itself otherwise."""
    for name in registered("TASKS"):
        # An extra may be missing; without it there are no such tasks.
        with quiet(), suppress(ModuleNotFoundError):
            importlib.import_module(name)


def registered(constant: str) -> Iterator[str]:
    """The modules that families name in this constant of their package; a family is a package that has kernels."""
    from dovetail.engine.cache import PACKAGE, kernel_files

    for family in sorted({file.parents[1] for file in kernel_files()}):
        yield from getattr(importlib.import_module(".".join((PACKAGE.name, *family.parts))), constant, ())


def spare_collections() -> None:
    """Exclude everything that is loaded from garbage collection, in this process and in those it forks.

    A worker collects garbage after each task; with Numba in memory that took a tenth of a second.
    """
    gc.collect()
    gc.freeze()


def sparing_collections(worker: Callable[..., Any]) -> Callable[..., Any]:
    """A worker that also excludes the modules which its tasks import: they are most of what a collection looks at."""
    known = 0

    def work(*arguments: Any) -> Any:
        nonlocal known
        code = worker(*arguments)
        if len(sys.modules) != known:
            gc.freeze()
            known = len(sys.modules)
        return code

    return work


def leaving_quietly(worker: Callable[..., Any]) -> Callable[..., Any]:
    """A worker whose rows are no longer read, as after LIMIT, ends without a traceback on the user's terminal."""

    def work(*arguments: Any) -> Any:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1  # not to be used again

    return work


_PLANNERS = "pyspark.sql."  # modules of workers that plan queries and data sources, and run no tasks


def installed_path(path: list[str]) -> list[str]:
    """The path without Spark's zip files of PySpark and Py4J, if the same packages are installed.

    The zip files hold no compiled code, so that each interpreter would compile them.
    """
    found = [entry for entry in path if not entry.endswith(("pyspark.zip", "-src.zip"))]
    zipped = {Path(entry).parents[2] for entry in path if entry.endswith("pyspark.zip")}
    spec = importlib.machinery.PathFinder.find_spec("pyspark", found)
    is_same = spec is not None and {Path(str(spec.origin)).parent} == zipped
    return found if is_same and importlib.machinery.PathFinder.find_spec("py4j", found) is not None else path


_LOADED = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyarrow.compute",
    "pyarrow.pandas_compat",  # with pandas, which Arrow imports to see whether an array is of it
    "dovetail.engine.rows.columns",  # NumPy, Numba and Arrow
    "dovetail.spark.hosts.resident.client",
)
"""Modules that the first task of every worker would import."""


def load() -> None:
    """Import what workers need, before they are forked."""
    for name in _LOADED:
        with quiet():
            importlib.import_module(name)
    spare_collections()


def _quietly(steps: Iterator[str]) -> str | None:
    """The next step. Between steps output is as it was: a daemon may be forked there, and says its address on it."""
    with quiet():
        return next(steps, None)
    return None


def load_first() -> Iterator[str]:
    """Loads what tasks import, and kernels that are on disk, in steps; garbage collections spare it."""
    from dovetail.engine.cache import is_prepared

    # What tasks of streams import: the interpreter that was started ahead has time for it.
    for name in ("dovetail.spark.hosts.stateful", *registered("TASKS_AHEAD")):
        with quiet():
            importlib.import_module(name)
        yield name
    if is_prepared():
        from dovetail.engine.kernels.compile import loading

        kernels = loading()
        while (loaded := _quietly(kernels)) is not None:
            yield loaded
    gc.freeze()


def run() -> None:
    """Run the daemon until Spark closes its input."""
    from pyspark import daemon

    if not any(word.startswith(_PLANNERS) for word in sys.argv):
        load()
        start_resident()
        load_in_steps()
    spare_collections()
    daemon.worker = leaving_quietly(sparing_collections(daemon.worker))
    with private_sockets():
        daemon.manager()


@contextmanager
def private_sockets() -> Iterator[None]:
    """Have Spark's daemon make its socket in a directory that only this user can enter."""
    given = os.environ.get(_SOCKET_DIRECTORY)
    if given is None or not Path(given).stat().st_mode & 0o077:
        yield
        return
    from dovetail.spark.settings import LONGEST_SOCKET_PLACE  # a daemon that hands over does not need it

    place, owner = tempfile.mkdtemp(prefix="dovetail-sockets-"), os.getpid()
    if len(place) <= LONGEST_SOCKET_PLACE:
        os.environ[_SOCKET_DIRECTORY] = place
    try:
        yield
    finally:
        if os.getpid() == owner:  # and not a worker, which ends here too
            shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Run as a fork of the interpreter that was started ahead, or by itself."""
    sys.path[:] = installed_path(sys.path)
    if sys.argv[1:2] == ["--ahead"]:
        if fork_daemons(int(sys.argv[2]), load, load_first()):
            run()
        return
    code = hand_over(os.environ.get(AHEAD, ""))
    if code is not None:
        sys.exit(code)
    run()


if __name__ == "__main__":
    main()
