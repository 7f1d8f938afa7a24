"""Resident memory of the process tree."""

import subprocess
import sys

import numpy as np
import psutil

from dovetail.bench.resident import PeakMemory, tree_rss

MIB = 2**20


def test_growth_sees_an_allocation_that_is_still_there() -> None:
    with PeakMemory() as memory:
        held = np.ones(64 * MIB, dtype=np.int8)
    assert memory.growth >= 60 * MIB
    assert held.nbytes == 64 * MIB


def test_the_tree_includes_children() -> None:
    code = "import sys; x = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_rss() >= psutil.Process().memory_info().rss + 60 * MIB
        child.communicate()
