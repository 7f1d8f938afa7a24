"""What a contestant with little memory does in its own process: limits itself, answers, and says what it found."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_MIB = 512
"""Java does not start Spark with much less."""

Answer: TypeAlias = Callable[[int, Path, list[str]], int]
"""Of mebibytes, a directory and further words: the number of answers."""


def limit(mib: int) -> None:
    """What this process may write to, beyond what its libraries and inputs took so far."""
    held = 1024 * int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_DATA, (held + mib * 2**20,) * 2)


def heap(mib: int) -> int:
    """Mebibytes of Java's heap where a library may have so many."""
    return max(HEAP_MIB, mib)


def session(mib: int) -> SparkSession:
    """Spark with a heap of so many mebibytes, and silent; Java ends when its heap is full, as clusters have it do."""
    from dovetail.spark.session import session as start

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    java = {"spark.driver.memory": f"{heap(mib)}m", "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError"}
    return start("short memory", conf={**quiet, **java})


def main(answers: Mapping[str, Answer]) -> None:
    """Run the contestant that the command line names, and print what it found."""
    name, mib, place, *further = sys.argv[1:]
    print(json.dumps({"answers": answers[name](int(mib), Path(place), further)}), flush=True)
