"""The context that the rivals of one benchmark run share: one Spark session, a scratch directory, data made once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from dovetail.spark.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.case import Scale

T = TypeVar("T")


def _memory() -> str | None:
    """What the largest rivals need, the window of 20 million rows among them, if the machine has it to spare."""
    return "10g" if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >= 20 << 30 else None


class BenchContext:
    """Shared resources of a run, made when first asked for and released by `close`.

    `scratch` is a directory of this run alone. `spark` is one session for all rivals and all cases. `once` makes data
    for the current point once, so that rivals read the same arrays, and none are generated twice. What is
    `lasting` stays open until the run ends.
    """

    def __init__(self, scale: Scale, seed: int = 0) -> None:
        self.scale, self.seed = scale, seed
        self.scratch = Path(tempfile.mkdtemp(prefix="dovetail-bench-"))
        self._spark: SparkSession | None = None
        self._owns_session = False
        self._made: dict[Hashable, Any] = {}
        self._lasting: dict[Hashable, Any] = {}
        self._open = ExitStack()

    @property
    def spark(self) -> SparkSession:
        """The session that every Spark rival uses; the first to ask for it starts it."""
        if self._spark is None:
            self._spark, self._owns_session = quiet_session("dovetail benchmarks", _memory())
        return self._spark

    @property
    def spark_started(self) -> bool:
        """Whether any rival has asked for Spark."""
        return self._spark is not None

    def fresh(self) -> Path:
        """A new directory of this run."""
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `make`, made at the first call with this key and kept until the point is done."""
        if key not in self._made:
            self._made[key] = make()
        return cast(T, self._made[key])

    def lasting(self, key: Hashable, enter: Callable[[], AbstractContextManager[T]]) -> T:
        """The value of the context, entered at the first call with this key and left when the run ends."""
        if key not in self._lasting:
            self._lasting[key] = self._open.enter_context(enter())
        return cast(T, self._lasting[key])

    def next_point(self) -> None:
        """Forget the data of the point that is done."""
        self._made.clear()

    def close(self) -> None:
        """Leave what lasted, stop Spark, if it was started here, and remove the scratch directory."""
        self._made.clear()
        self._lasting.clear()
        try:
            self._open.close()
        finally:
            self._stop()

    def _stop(self) -> None:
        try:
            if self._spark is not None and self._owns_session:
                self._spark.stop()
        finally:
            self._spark = None
            shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """These settings of Spark, and then again those that the session had."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
