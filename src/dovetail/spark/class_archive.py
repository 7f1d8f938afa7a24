"""Makes an archive of Java's classes, once a machine and in the background; JVMs with it start a third faster.

Spark spends most of its start on finding, checking and linking thousands of classes. Java can keep the classes of one
run in a file: an AOT cache from release 25 on, a dynamic class data archive before. Java itself checks that the file
fits its version and its class path, and runs without it if not. DOVETAIL_CLASS_ARCHIVE=off turns this off;
`python -m dovetail.spark.class_archive` makes the archive at once, as for a container image.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.engine.cache import cache_root, is_prepared
from dovetail.errors import ConfigError
from dovetail.spark.java import Java, find_java
from dovetail.spark.settings import spark_home
from dovetail.spark.warm import one_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AOT = 25  # the first release whose AOT cache is made in one run
_RUNNING: list[subprocess.Popen[bytes]] = []  # keeps Python from warning that it is not waited for
_KEPT = 2  # archives, of some 150 MB each: this one, and that of the version before
_SECONDS_TO_WRITE = 300
_QUIET = {True: "-Xlog:aot*=off", False: "-Xlog:cds*=off"}  # Java logs every class that it leaves out


def options(java: Java) -> str:
    """The options with which a JVM uses the archive of this Java; if there is none, it is made in the background."""
    if _is_off():
        return ""
    path = archive(java)
    if path.is_file():
        return f"{_option(java, path, make=False)} {_QUIET[java.major >= _AOT]}"
    if is_prepared() and not _failure(path).exists():  # kernels are compiled first
        _make_in_background()
    return ""


def archive(java: Java) -> Path:
    """The path of the archive of this Java and this Spark."""
    home = spark_home()
    jars = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in (home / "jars").glob("*.jar"))
    place = hashlib.sha256(repr((str(java.home), str(home), os.environ.get("SPARK_HOME"), jars)).encode()).hexdigest()
    version = next((name.rpartition("-")[2][:-4] for name, _, _ in jars if name.startswith("spark-core_")), "")
    name = f"classes-spark-{version}-java-{java.version}-{place[:12]}"
    return cache_root(os.environ) / "java" / f"{name}.{'aot' if java.major >= _AOT else 'jsa'}"


def make() -> Path | None:
    """Make the archive of this machine's Java, unless it exists; None if this Java cannot make one.

    One process at a time; the file appears when it is complete.
    """
    java = find_java()
    path = archive(java)
    with one_at_a_time(path.parent, "Java's classes"):
        if path.is_file():
            return path
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".classes-") as folder:
            made = Path(folder) / path.name
            _train(_option(java, made, make=True), _QUIET[java.major >= _AOT], Path(folder))
            if not made.is_file():
                _failure(path).touch()
                return None
            made.replace(path)
        for old in sorted(path.parent.glob("classes-*"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path


def _option(java: Java, path: Path, *, make: bool) -> str:
    if java.major >= _AOT:
        return f"-XX:{'AOTCacheOutput' if make else 'AOTCache'}={path}"
    return f"-XX:{'ArchiveClassesAtExit' if make else 'SharedArchiveFile'}={path}"


def _is_off() -> bool:
    """Whether archives are turned off, or impossible: Spark cannot pass a path with a space to Java."""
    off = os.environ.get("DOVETAIL_CLASS_ARCHIVE", "").strip().lower() in {"off", "0", "false", "no"}
    return off or " " in str(cache_root(os.environ))


def _failure(path: Path) -> Path:
    """A file that marks a Java that cannot make an archive, so that it is not tried at every start."""
    return path.with_suffix(".failed")


def _make_in_background() -> None:
    """Start a process that outlives this one, so that short programs get an archive too."""
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail.spark.class_archive", "background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _RUNNING.append(process)


def _train(option: str, quiet: str, folder: Path) -> None:
    """Run typical queries in a JVM that records the classes that it loads."""
    from pyspark import SparkContext

    from dovetail.spark.launch import launch

    if SparkContext._gateway is not None:
        raise ConfigError("a JVM runs in this process; run `python -m dovetail.spark.class_archive` in a shell instead")
    conf = {
        "spark.driver.defaultJavaOptions": f"{option} {quiet}",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = launch("dovetail: class archive", conf)
    _queries(spark, folder)
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:  # Java writes the archive when it exits, at the end of its input
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_SECONDS_TO_WRITE)


def _queries(spark: SparkSession, folder: Path) -> None:
    """Run a few rows through the features that our joins use: Arrow, joins, files, and a stream with state."""
    from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as text", "timestamp_seconds(id) as at")
    rows.write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    read.mapInArrow(_same, read.schema).groupBy("k").count().orderBy("k").toArrow()
    read.join(read.withColumnRenamed("id", "other"), "k").where("id < other").agg({"id": "max"}).collect()
    both = [
        spark.readStream.schema(read.schema).parquet(str(folder / "rows")).withWatermark("at", "1 second")
        for _ in range(2)
    ]
    joined = both[0].join(both[1].selectExpr("id as other", "at as then"), F.expr("id = other and at = then"))
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def _same(batches: Iterator[object]) -> Iterator[object]:
    return batches


def main(arguments: list[str]) -> None:
    """Make the archive; in the background with low priority."""
    if arguments:
        os.nice(19)
        time.sleep(5)  # the session that asked for it is starting
    print(make() or "this Java cannot make an archive of its classes")


if __name__ == "__main__":
    main(sys.argv[1:])
