"""Spark's Python worker daemon, with our kernels loaded before it forks.

Spark starts it as `python -m dovetail.spark.daemon` when `spark.python.daemon.module` says so; workers that it forks
inherit compiled code. Dovetail must be importable on every executor: where it is not, Spark cannot start Python
workers at all, so `dovetail.session()` sets it and nothing else does.
"""

from __future__ import annotations

import os
import sys
import traceback


def load_kernels() -> None:
    """Loads every kernel into this process; a failure is printed and left to the worker that needs the kernel."""
    # Spark reads the daemon's port from stdout: nothing else may be written there first.
    port_channel = os.dup(1)
    os.dup2(2, 1)
    try:
        from dovetail.kernels.compile import warm

        warm()
    except Exception:
        traceback.print_exc(file=sys.stderr)
    finally:
        os.dup2(port_channel, 1)
        os.close(port_channel)


if __name__ == "__main__":
    from pyspark.daemon import manager

    load_kernels()
    manager()
