"""Spark's Python worker daemon, with our kernels loaded before it forks.

Spark starts it as `python -m dovetail.spark.daemon` where `spark.python.daemon.module` says so, which
`dovetail.session()` does. Workers that it forks inherit compiled code. The Python of every executor must be able to
import dovetail, as it must for any of our joins; where it cannot, Spark cannot start Python workers, and
`session(**{"spark.python.daemon.module": "pyspark.daemon"})` brings them back, without our joins.
"""

from __future__ import annotations

import os
import sys
import traceback


def load_kernels() -> None:
    """Loads the kernels into this process; a failure is printed and left to the worker that needs the kernel."""
    # Spark reads the daemon's address from stdout: nothing else may be written there first.
    address_channel = os.dup(1)
    os.dup2(2, 1)
    try:
        from dovetail.spark.warm import load

        load()
    except Exception:  # workers without kernels are slow, workers that do not start are useless
        traceback.print_exc(file=sys.stderr)
    finally:
        os.dup2(address_channel, 1)
        os.close(address_channel)


if __name__ == "__main__":
    from pyspark.daemon import manager

    load_kernels()
    manager()
