"""Compares the memory that joins hold outside the JVM with what executors have for it, before a job starts.

YARN and Kubernetes end a container that holds more than the JVM's memory and `spark.executor.memoryOverhead`. The joins
of a stream's buckets stay in one process of each executor, so that their budgets count together.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from dovetail.engine.memory import format_bytes
from dovetail.errors import ConfigError
from dovetail.spark.frames import is_connect

PYTHON_BYTES = 500 << 20
"""Python itself: interpreters of workers share what the daemon loaded; the resident process is one more."""
_LIMITED = ("yarn", "k8s:")  # masters that end an executor whose processes hold too much
_LEAST_OVERHEAD = "384m"
_OVERHEAD = "spark.executor.memoryOverhead"


def resident_limit(spark: SparkSession, memory: int, buckets: int) -> int | None:
    """Bytes that the joins in the resident process of an executor may hold; None where nothing ends an executor for it.

    Warns, with the setting that helps, where the budgets of an executor's buckets are more than that. If the joins hold
    more, the least recently used ones are closed, and rebuilt from the stored state for later rows.
    """
    if is_connect(spark):
        return None
    room, trouble = limit_of(spark.sparkContext.getConf().get, memory, buckets, partial(_registered, spark))
    if trouble:
        warnings.warn(trouble, stacklevel=2)
    return room


def limit_of(
    get: Callable[..., Any], memory: int, buckets: int, registered: Callable[[], int]
) -> tuple[int | None, str]:
    """The limit by these settings of Spark, and a warning if the buckets of an executor may need more."""
    if not str(get("spark.master", "")).startswith(_LIMITED) and get(_OVERHEAD, None) is None:
        return None, ""
    asked = get("spark.dynamicAllocation.maxExecutors", None) or get("spark.executor.instances", None)
    executors = int(asked) if asked is not None and str(asked).isdigit() else registered()
    room = max(memory, overhead_bytes(get) - PYTHON_BYTES)
    here = -(-buckets // max(1, executors))
    return room, _too_little(here, memory, overhead_bytes(get)) if here * memory > room else ""


def _too_little(buckets: int, memory: int, overhead: int) -> str:
    wanted = (buckets * memory + PYTHON_BYTES >> 20) + 1
    return (
        f"the joins of {buckets} buckets with memory={format_bytes(memory)} each, and Python itself, may need {wanted} "
        f"MiB of an executor beside the JVM; {_OVERHEAD} gives {overhead >> 20} MiB. Beyond that, joins are closed and "
        f"rebuilt from stored state in every micro-batch: set {_OVERHEAD}={wanted}m, or give less memory=."
    )


def overhead_bytes(get: Callable[..., Any]) -> int:
    """The memory of an executor beside the JVM's, as Spark computes it from its settings."""
    given = get(_OVERHEAD, None)
    if given is not None:
        return _bytes(str(given))
    factor = get("spark.executor.memoryOverheadFactor", None)
    if factor is None and str(get("spark.master", "")).startswith("k8s:"):
        factor = get("spark.kubernetes.memoryOverheadFactor", None)
    least = _bytes(str(get("spark.executor.minMemoryOverhead", _LEAST_OVERHEAD)))
    return max(least, int(float(factor or 0.1) * _bytes(str(get("spark.executor.memory", "1g")))))


def _bytes(text: str) -> int:
    """A size as Spark writes it: 512m, 2g, 1073741824b, or a number of MiB."""
    found = re.fullmatch(r"([0-9.]+)\s*([kmgtp]?)(i?b)?", text.strip().lower())
    if found is None:
        raise ConfigError(f"{text!r} is no size as Spark writes one; give a number with k, m, g, t or p, such as 512m.")
    number, prefix, bytes_ = found.groups()
    unit = 1 if bytes_ and not prefix else 1 << 10 * (" kmgtp".index(prefix) if prefix else 2)
    return int(float(number) * unit)


def _registered(spark: SparkSession) -> int:
    """Executors that there are."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # one of them is the driver
