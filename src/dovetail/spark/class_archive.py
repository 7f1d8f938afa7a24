"""An archive of Java's classes: made once a machine in the background, later JVMs map it and start a third faster.

Most of the time that Spark takes to start goes into finding, checking and linking thousands of classes. Java can keep
what one run loaded in a file: an AOT cache from release 25 on, a dynamic archive of class data before. Java itself
checks that the file fits its version and its class path, and runs without it if not. DOVETAIL_CLASS_ARCHIVE=off turns
all of this off; `python -m dovetail.spark.class_archive` makes the archive at once, as for a container image.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.spark.java import Java, cache_root, find_java
from dovetail.spark.warm import is_prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.driver.defaultJavaOptions"  # which Spark puts before those of the user
_AOT = 25  # the first release whose AOT cache is made in one run
_RUNNING: list[subprocess.Popen[bytes]] = []  # it is not waited for, which Python would warn of
_KEPT = 2  # archives, of some 150 MB each: this one, and that of the version before
_SECONDS_TO_WRITE = 300
_QUIET = {True: "-Xlog:aot*=off", False: "-Xlog:cds*=off"}  # Java tells of every class that it leaves out


def added(settings: Mapping[str, str], java: Java) -> dict[str, str]:
    """The settings with the archive for this Java; if there is none, it is made in the background for the next time."""
    if _is_off() or SETTING in settings:
        return dict(settings)
    path = archive(java)
    if path.is_file():
        return {**settings, SETTING: f"{_option(java, path, make=False)} {_QUIET[java.major >= _AOT]}"}
    if is_prepared() and not _failure(path).exists():  # else this machine still compiles kernels, which come first
        _make_in_background()
    return dict(settings)


def archive(java: Java) -> Path:
    """Where the archive of this Java and this Spark is, or will be."""
    import pyspark

    home = Path(pyspark.__file__).parent
    jars = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in (home / "jars").glob("*.jar"))
    place = hashlib.sha256(repr((str(java.home), str(home), os.environ.get("SPARK_HOME"), jars)).encode()).hexdigest()
    name = f"classes-spark-{pyspark.__version__}-java-{java.version}-{place[:12]}"
    return cache_root(os.environ) / "java" / f"{name}.{'aot' if java.major >= _AOT else 'jsa'}"


def make() -> Path | None:
    """Make the archive of the Java that is found here, unless it is there; None if this Java cannot make one.

    One process at a time; the file appears when it is complete.
    """
    java = find_java()
    path = archive(java)
    with _one_at_a_time(path.parent):
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
    """Whether the user wants none; a path with a space cannot be given to Java through Spark."""
    off = os.environ.get("DOVETAIL_CLASS_ARCHIVE", "").strip().lower() in {"off", "0", "false", "no"}
    return off or " " in str(cache_root(os.environ))


def _failure(path: Path) -> Path:
    """A file that says: this Java cannot make an archive, do not try at every start."""
    return path.with_suffix(".failed")


def _make_in_background() -> None:
    """A process of its own that outlives this one: a short program would never see its archive done otherwise."""
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
    """Run what most programs run, in a JVM that writes down which classes that took."""
    from pyspark import SparkContext

    from dovetail.spark.launch import launch

    if SparkContext._gateway is not None:
        raise ConfigError("a JVM runs in this process; run `python -m dovetail.spark.class_archive` in a shell instead")
    conf = {
        SETTING: f"{option} {quiet}",
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
    if gateway is not None:  # Java writes the archive when it ends, and it ends when its input does
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_SECONDS_TO_WRITE)


def _queries(spark: SparkSession, folder: Path) -> None:
    """A few rows through what our joins use: Arrow to Python and back, joins, files, and a stream with state."""
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


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """A lock that the system releases when its holder dies."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "making").open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write Java's classes to {folder}: {error}. Set DOVETAIL_CACHE to a writable directory."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> None:
    """Make the archive; in the background with what the machine has left."""
    if arguments:
        os.nice(19)
        time.sleep(5)  # the session that asked for it is starting
    print(make() or "this Java cannot make an archive of its classes")


if __name__ == "__main__":
    main(sys.argv[1:])
