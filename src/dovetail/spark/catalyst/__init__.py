"""A rule for Spark's optimizer, in Scala, that plans range joins of every client of a session; and how it is loaded.

PySpark ships the compiler. The wheel has the rule compiled for one version of Spark (`ship`); for another one it is
compiled on this machine, once, into the cache directory. The rule runs on the driver only, and plans Spark's own
operators.

* `RangeJoin.scala`: the rule: which joins it takes over, and why it leaves others.
* `Positions.scala`: bounds as numbers. `Layout.scala`: statistics of the inputs, and widths of bins by price.
* `Bins.scala`: the join over bins.

`python -m dovetail.spark.catalyst` prints the settings with which a server (Spark Connect, Thrift) loads the rule.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.engine.cache import cache_root, read_only
from dovetail.errors import ConfigError
from dovetail.spark.frames import is_connect, require_classic
from dovetail.spark.java import find_java
from dovetail.spark.settings import spark_home
from dovetail.spark.warm import one_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCH = "spark.dovetail.rangeJoin"
LEAST_PAIRS = "spark.dovetail.rangeJoin.leastPairs"
WIDTHS = "spark.dovetail.rangeJoin.widths"
EXTENSIONS = "org.apache.spark.sql.dovetail.RangeJoinExtensions"
RULE = "org.apache.spark.sql.dovetail.RangeJoin$"
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


def _rule(spark: Any) -> Any:
    """The rule in the JVM of this session, loaded once."""
    if not spark.version.startswith(SUPPORTED):
        raise ConfigError(f"the rule is for Spark {SUPPORTED}x; this is {spark.version}")
    return _loaded(spark.sparkContext._gateway)


@functools.lru_cache(maxsize=1)
def _loaded(gateway: Any) -> Any:
    jvm = gateway.jvm
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(compiled())).toURI().toURL()
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.net.URLClassLoader(urls, parent).loadClass(RULE).getField("MODULE$").get(None)


def compiled() -> Path:
    """The jar of the rule for the Spark of this machine, which the wheel has; else compiled, into the cache.

    A `ConfigError` if it cannot be compiled.
    """
    home = files(__package__)
    sources = {each.name: each.read_text() for each in home.iterdir() if each.name.endswith(".scala")}
    jars = spark_home() / "jars"
    spark = sorted((file.name, file.stat().st_size) for file in jars.glob("spark-*.jar"))
    name = hashlib.sha256(repr((sorted(sources.items()), spark)).encode()).hexdigest()[:16]
    jar = cache_root(os.environ) / "rule" / f"range-join-{name}.jar"
    shipped = home / jar.name
    if isinstance(shipped, Path) and shipped.is_file():
        return shipped
    if jar.is_file():
        return jar
    if read_only():
        raise ConfigError(
            "DOVETAIL_CACHE_READONLY is set, so the rule cannot be compiled into the cache; unset it once"
        )
    if not any(jars.glob("scala-compiler*.jar")):
        raise ConfigError(f"{jars} has no Scala compiler, which the rule is compiled with")
    with one_at_a_time(jar.parent, "the rule for Spark's optimizer"):
        if not jar.is_file():
            _compile(sources, jars, jar)
    return jar


def ship() -> Path:
    """Put the jar beside its sources, where the wheel takes it from; jars of other sources or versions are removed."""
    jar, home = compiled(), Path(__file__).parent
    for other in home.glob("range-join-*.jar"):
        if other != jar:
            other.unlink()
    return jar if jar.parent == home else Path(shutil.copy(jar, home))


def _compile(sources: dict[str, str], jars: Path, jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".rule-") as folder:
        paths = [Path(folder) / name for name in sources]
        for path in paths:
            path.write_text(sources[path.name])
        made = Path(folder) / jar.name
        java = [str(find_java().home / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        scala = ["scala.tools.nsc.Main", "-usejavacp", "-nowarn", "-d", str(made), *map(str, paths)]
        try:
            run = subprocess.run([*java, *scala], capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)  # noqa: S603  (the user's own java)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"the rule for Spark's optimizer cannot be compiled: {error}") from error
        if run.returncode or not made.is_file():
            raise ConfigError(f"the rule for Spark's optimizer cannot be compiled: {(run.stdout + run.stderr)[-600:]}")
        made.replace(jar)
