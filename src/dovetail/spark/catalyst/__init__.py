"""Extends Spark's planner, in Scala: range joins of every client of a session, and cheaper batches for tasks.

PySpark ships the compiler. The wheel has the classes compiled for one version of Spark (`ship`); for another one they
are compiled on this machine, once, into the cache directory. The rule of range joins runs on the driver only, and plans
Spark's own operators. Batches are made on executors, which get the classes as they get a user's jar.

* `RangeJoin.scala`: the rule: which joins it takes over, and why it leaves others.
* `Positions.scala`: bounds as numbers. `Layout.scala`: statistics of the inputs, and widths of bins by price.
* `Bins.scala`: the join over bins.
* `SizedBatches.scala`: `mapInArrow` with batches bounded by the sizes of their rows (`size_batches`).

`python -m dovetail.spark.catalyst` prints the settings with which a server (Spark Connect, Thrift) loads the rule.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from py4j.protocol import Py4JError

from dovetail.engine.cache import cache_root, is_prepared, read_only
from dovetail.errors import ConfigError
from dovetail.spark.frames import is_connect, require_classic
from dovetail.spark.java import find_java
from dovetail.spark.settings import spark_home
from dovetail.spark.warm import beside, one_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXTENSIONS = "org.apache.spark.sql.dovetail.RangeJoinExtensions"
RULE = "org.apache.spark.sql.dovetail.RangeJoin$"
BATCHES = "org.apache.spark.sql.execution.python.SizedBatches$"
OFF = "DOVETAIL_SIZED_BATCHES"  # "off" leaves batches to Spark
SUPPORTED = "4.3."
_COMPILE_SECONDS = 300


def install_rule(spark: SparkSession) -> str | None:
    """Add the rule to a session; returns why it cannot be added, if so."""
    if is_connect(spark):
        return "over Spark Connect the server loads the rule; `python -m dovetail.spark.catalyst` prints its settings"
    try:
        _rule(spark).install(spark._jsparkSession)
    except ConfigError as error:
        return str(error)
    return None


def uninstall_rule(spark: SparkSession) -> None:
    """Remove the rule from a session, if it has it."""
    if not is_connect(spark) and _loaded.cache_info().currsize:
        _rule(spark).uninstall(spark._jsparkSession)


def explain_joins(frame: DataFrame) -> str:
    """A line for each join of a query: what the rule of `dovetail.install` makes of it, and why.

    A line begins with "by bins" or with "left to Spark". Planning may run small jobs. A text without lines: the query
    has no join, or the session does not have the rule.

    >>> dovetail.install(spark)
    >>> stays = spark.range(3).selectExpr("id as start", "id + 2 as end")
    >>> calls = spark.range(4).selectExpr("id as at")
    >>> joined = stays.join(calls, calls.at.between(stays.start, stays.end))
    >>> print(dovetail.explain_joins(joined).rpartition(",")[0])
    left to Spark: INNER join on ((at >= start) AND (at <= end)): there are few pairs to compare
    >>> dovetail.uninstall(spark)
    """
    require_classic(frame, "explain_joins", "use frame.explain(), which shows bins as columns that begin with __dt_.")
    return str(_rule(frame.sparkSession).explain(frame._jdf))


def size_batches(spark: SparkSession) -> None:
    """Bound batches for tasks of this session by the sizes of their rows: rows become batches in half the time.

    Where this cannot be done, and until the classes are compiled, which this starts, Spark bounds them as it does.
    """
    if is_connect(spark) or spark in _SIZED or os.environ.get(OFF, "").strip().lower() == "off":
        return
    try:
        _size_batches(spark)
    except (ConfigError, OSError, Py4JError) as error:
        _SIZED.add(spark)  # so that it is said once
        _LOG.info("Spark bounds the batches of tasks: %s", error)


def _size_batches(spark: SparkSession) -> None:
    if not spark.version.startswith(SUPPORTED) or spark.conf.get(_ISOLATED, "false") == "true":
        return
    jar = _jar()
    if not jar.is_file():
        if is_prepared() and not _STARTED:  # kernels are compiled first
            _STARTED.append(beside("dovetail.spark.catalyst", "background"))
        return
    context = spark.sparkContext
    if context.applicationId not in _SENT:
        context._jsc.sc().addJar(str(jar))
        _SENT.add(context.applicationId)
    _loaded(context._gateway, BATCHES).install(spark._jsparkSession)
    _SIZED.add(spark)


_LOG = logging.getLogger(__name__)
_ISOLATED = "spark.sql.artifact.isolation.enabled"  # tasks of such a session do not see the jars of the application
_SIZED: WeakSet[SparkSession] = WeakSet()
_SENT: set[str] = set()  # applications whose executors get the classes
_STARTED: list[Any] = []


def _rule(spark: Any) -> Any:
    """The rule in the JVM of this session, loaded once."""
    if not spark.version.startswith(SUPPORTED):
        raise ConfigError(f"the rule is for Spark {SUPPORTED}x; this is {spark.version}")
    return _loaded(spark.sparkContext._gateway, RULE)


@functools.lru_cache(maxsize=2)
def _loaded(gateway: Any, name: str) -> Any:
    return _classes(gateway).loadClass(name).getField("MODULE$").get(None)


@functools.lru_cache(maxsize=1)
def _classes(gateway: Any) -> Any:
    jvm = gateway.jvm
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(compiled())).toURI().toURL()
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.net.URLClassLoader(urls, parent)


def _sources() -> dict[str, str]:
    return {each.name: each.read_text() for each in files(__package__).iterdir() if each.name.endswith(".scala")}


def _jar() -> Path:
    """The path of the jar for the Spark of this machine: in the wheel, or in the cache, where it may not be yet."""
    spark = sorted((file.name, file.stat().st_size) for file in (spark_home() / "jars").glob("spark-*.jar"))
    name = hashlib.sha256(repr((sorted(_sources().items()), spark)).encode()).hexdigest()[:16]
    jar = cache_root(os.environ) / "planner" / f"planner-{name}.jar"
    shipped = files(__package__) / jar.name
    return shipped if isinstance(shipped, Path) and shipped.is_file() else jar


def compiled() -> Path:
    """The jar of the classes for the Spark of this machine, which the wheel has; else compiled, into the cache.

    A `ConfigError` if it cannot be compiled.
    """
    jar, sources, jars = _jar(), _sources(), spark_home() / "jars"
    if jar.is_file():
        return jar
    if read_only():
        raise ConfigError(
            "DOVETAIL_CACHE_READONLY is set, so our planner cannot be compiled into the cache; unset it once"
        )
    if not any(jars.glob("scala-compiler*.jar")):
        raise ConfigError(f"{jars} has no Scala compiler, which our planner is compiled with")
    with one_at_a_time(jar.parent, "our planner for Spark"):
        if not jar.is_file():
            _compile(sources, jars, jar)
    return jar


def ship() -> Path:
    """Put the jar beside its sources, where the wheel takes it from; jars of other sources or versions are removed."""
    jar, home = compiled(), Path(__file__).parent
    for other in home.glob("planner-*.jar"):
        if other != jar:
            other.unlink()
    return jar if jar.parent == home else Path(shutil.copy(jar, home))


def _compile(sources: dict[str, str], jars: Path, jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".planner-") as folder:
        paths = [Path(folder) / name for name in sources]
        for path in paths:
            path.write_text(sources[path.name])
        made = Path(folder) / jar.name
        java = [str(find_java().home / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        scala = ["scala.tools.nsc.Main", "-usejavacp", "-nowarn", "-d", str(made), *map(str, paths)]
        try:
            run = subprocess.run([*java, *scala], capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)  # noqa: S603  (the user's own java)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"our planner cannot be compiled: {error}") from error
        if run.returncode or not made.is_file():
            raise ConfigError(f"our planner cannot be compiled: {(run.stdout + run.stderr)[-600:]}")
        made.replace(jar)
