"""Functions that run in a process of their own, watched and with a limit: `python -m bench.child MODULE FUNCTION JSON`.

The function gets the arguments that the JSON lists; what it returns is printed as JSON, on the last line.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # ships no type information

from bench.machine import tree_memory
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_MIB = 512
"""Java does not start Spark with much less."""
_LOOK_S = 0.25
_TELLING = ("rror", "memory", "panicked", "Exception")


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process: what its function returned, or how it failed; its time and the most that it held."""

    outcome: str
    answer: Any
    seconds: float
    peak: int

    def answered(self) -> Any:
        """The result of the function; DovetailError if there is none."""
        if self.outcome != "finished":
            raise DovetailError(f"a process of its own failed: {self.outcome}")
        return self.answer


def run_child(
    function: Callable[..., Any],
    *arguments: Any,
    scratch: Path,
    env: Mapping[str, str] | None = None,
    patience_s: float,
) -> Ended:
    """Call a module's function in a new process, its temporary files in `scratch`; it ends with this call."""
    place = tempfile.mkdtemp(dir=scratch)
    command = [sys.executable, "-m", "bench.child", function.__module__, function.__name__, json.dumps(arguments)]
    there = os.environ | {"TMPDIR": place} | dict(env or {})  # what it leaves when it dies goes away with the run
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=there)  # noqa: S603  (our own module)
        peak, by_itself = _watched(process, patience_s)
        seconds = time.perf_counter() - began
        out.seek(0)
        errors.seek(0)
        said, complaint = out.read().decode().strip(), errors.read().decode(errors="replace")
    if process.returncode == 0:
        return Ended("finished", json.loads(said.splitlines()[-1]), seconds, peak)
    how = _reason(process.returncode, f"{said}\n{complaint}") if by_itself else f"not done after {patience_s:.0f} s"
    return Ended(how, None, seconds, peak)


def _watched(process: subprocess.Popen[bytes], patience_s: float) -> tuple[int, bool]:
    """Wait for the process, up to a limit; the most that it and its children held, and whether it ended by itself."""
    peak, over, by_itself = [0], threading.Event(), True

    def look() -> None:
        while not over.wait(_LOOK_S):
            try:
                peak[0] = max(peak[0], tree_memory(process.pid))
            except psutil.Error:
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        by_itself = False
    finally:  # it has ended, has used up its time, or the caller has stopped waiting
        _end(process)
        over.set()
        thread.join()
    return peak[0], by_itself


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started, if it still runs."""
    if process.poll() is None:
        started: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


def _reason(code: int, complaint: str) -> str:
    """How it failed: the line that speaks of memory, otherwise its last words."""
    words = [line.strip() for line in complaint.splitlines() if any(word in line for word in _TELLING)]
    words = [line for line in words if "OutOfMemory" in line or "out of memory" in line][:1] or words
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {words[-1][:140]}" if words else how


def limit(mib: int) -> None:
    """Limit the memory that this process may use, beyond what its libraries and inputs took so far."""
    held = 1024 * int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_DATA, (held + mib * 2**20,) * 2)


def heap(mib: int) -> int:
    """Mebibytes of Java's heap where a library may have `mib`."""
    return max(HEAP_MIB, mib)


def short_session(mib: int) -> SparkSession:
    """Spark with a heap for `mib` mebibytes, and silent; Java ends when its heap is full, as clusters have it do."""
    from dovetail.spark.session import session

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    java = {"spark.driver.memory": f"{heap(mib)}m", "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError"}
    return session("short memory", conf={**quiet, **java})


if __name__ == "__main__":
    module, name, given = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(given))), flush=True)
