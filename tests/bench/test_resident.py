"""Resident memory of the process tree."""

import subprocess
import sys

import psutil
from bench.machine import tree_memory, tree_rss

MIB = 2**20


GROWTH = """
import numpy as np
from bench.machine import PeakMemory

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


def test_pages_that_forked_processes_share_count_once() -> None:
    """A child that only looks at what its parent made adds little."""
    code = "import os, time; held = b'x' * (128 << 20); os.fork(); os.write(1, b'up\\n'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            assert process.stdout.readline() == b"up\n"
            assert tree_rss(process.pid) > 256 * MIB
            assert 128 * MIB < tree_memory(process.pid) < 200 * MIB
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
