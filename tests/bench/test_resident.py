"""Resident memory of the process tree."""

import subprocess
import sys

import psutil

from dovetail.bench.resident import tree_rss

MIB = 2**20


GROWTH = """
import numpy as np
from dovetail.bench.resident import PeakMemory

with PeakMemory() as memory:
    held = np.ones(64 << 20, dtype=np.int8)
print(memory.growth, held.nbytes)
"""


def test_growth_sees_an_allocation_that_is_still_there() -> None:
    # In a process of its own: a JVM or workers that other tests started come and go as they like.
    run = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    growth, held = map(int, run.stdout.split())
    assert growth >= 60 * MIB
    assert held == 64 * MIB


def test_the_tree_includes_children() -> None:
    code = "import sys; x = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_rss() >= psutil.Process().memory_info().rss + 60 * MIB
        child.communicate()
