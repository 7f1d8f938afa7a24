"""Counts the files of the package that one public call visits, from the call to the kernels and back.

`python -m bench.walks [CALL ...] [--files]`: each call runs in a process of its own, twice, and the second time counts:
every file of which a function ran, on the driver or in a worker. Kernels run as plain Python, so that they are seen;
those of `enrich` are compiled, because they rely on the width of their numbers, and only their callers are seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dovetail.joins.interval.request import Algorithm

_PLACE = "DOVETAIL_WALK"
_ROOT = str(Path(__file__).parents[1])
_PACKAGE = f"{_ROOT}/src/dovetail/"
_STARTS = (
    "engine/cache.py", "engine/processor.py", "spark/ahead.py", "spark/daemon.py", "spark/warm.py",
    "spark/hosts/resident/process.py",
)  # fmt: skip
"""Starts of workers run beside a call and are not counted."""


def watch() -> None:
    """Write down the files that this process and its forks visit, as soon as there is a file named `on`."""
    import threading

    place, seen = Path(os.environ[_PLACE]), set[str]()

    def visit(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        name, is_function = code.co_filename, code.co_flags & 1  # and not the body of a module or a class
        if event != "call" or not is_function or name in seen or not name.startswith(_PACKAGE):
            return
        if (place / "on").exists() and not _is_import(frame):
            seen.add(name)
            with (place / f"seen-{os.getpid()}").open("a") as file:
                file.write(name.removeprefix(_PACKAGE) + "\n")

    threading.setprofile(visit)
    sys.setprofile(visit)


def _is_import(frame: Any) -> bool:
    """Whether a module of the package is being imported, other than the program that is run."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith("dovetail."):
            return True
        frame = frame.f_back
    return False


def _intervals(spark: SparkSession, algorithm: Algorithm) -> DataFrame:
    from dovetail import interval_join

    left, right = (
        spark.range(50).selectExpr("id", f"id * {step} as start", f"id * {step} + 7 as end") for step in (3, 2)
    )
    return interval_join(left, right, algorithm=algorithm)


def _stream(spark: SparkSession, place: Path, name: str) -> DataFrame:
    if not (place / name).exists():
        spark.range(50).selectExpr("id % 7 as k", f"id as {name}").write.parquet(str(place / name))
    return spark.readStream.schema(f"k long, {name} long").parquet(str(place / name))


def _ran(frame: DataFrame) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def _enrich(spark: SparkSession, place: Path) -> None:
    from dovetail import MasterStore, enrich

    if not (place / "master").exists():
        MasterStore.build(spark.range(9).selectExpr("id as k", "id as m"), str(place / "master"), key="k")
    _ran(enrich(_stream(spark, place, "a"), MasterStore.open(str(place / "master")), on="k"))


def _online(spark: SparkSession, place: Path) -> None:
    from dovetail import online_join

    _ran(online_join(_stream(spark, place, "a"), _stream(spark, place, "b"), on="k", retain="1 hour"))


def _xquery(spark: SparkSession, place: Path) -> None:
    import dovetail
    from dovetail.workloads.weather import Weather

    if not (place / "weather").exists():
        Weather(stations=4, years=1).write(str(place / "weather"))
    query = """for $s in collection("/stations")/stationCollection/station
               for $r in collection("/sensors")/dataCollection/data
               where $s/id eq $r/station and $r/dataType eq "{kind}"
               return xs:integer($r/value)"""
    query = query.replace("{kind}", "TMIN" if (place / "on").exists() else "TMAX")  # a known plan is not made again
    names = {f"/{name}": f"{place}/weather/{name}" for name in ("sensors", "stations")}
    dovetail.xquery(spark, query, names).collect()


CALLS: dict[str, Callable[[SparkSession, Path], Any]] = {
    "interval_join, native": lambda spark, _: _intervals(spark, "native").collect(),
    "interval_join, range task": lambda spark, _: _intervals(spark, "forward_scan").collect(),
    "enrich, micro-batch": _enrich,
    "online_join, micro-batch": _online,
    "xquery": _xquery,
}


_COMPILED = "enrich, micro-batch"


def _child(name: str, place: Path) -> None:
    import dovetail

    spark = dovetail.session(conf={"spark.master": "local[2]", "spark.ui.enabled": False, "spark.log.level": "ERROR"})
    CALLS[name](spark, place)
    (place / "on").touch()
    CALLS[name](spark, place)
    (place / "on").unlink()
    spark.stop()


def walk(name: str) -> tuple[set[str], set[str]]:
    """The files that a call visits on the driver, and those that it visits in other processes."""
    with tempfile.TemporaryDirectory(prefix="dovetail-walk-") as folder:
        place = Path(folder)
        (place / "sitecustomize.py").write_text("from bench.walks import watch\nwatch()\n")
        path = os.pathsep.join([folder, _ROOT, f"{_ROOT}/src"])
        own = {
            _PLACE: folder,
            "PYTHONPATH": path,
            "NUMBA_DISABLE_JIT": str(int(name != _COMPILED)),
            "DOVETAIL_CALIBRATE": "off",
        }
        code = f"import pathlib; from bench import walks; walks._child({name!r}, pathlib.Path({folder!r}))"
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **own}, stdout=sys.stderr)  # noqa: S603  (our own module)
        if process.wait():
            raise SystemExit(f"{name} failed")
        found = {file.name: set(file.read_text().split()) - {*_STARTS} for file in place.glob("seen-*")}
    driver = found.pop(f"seen-{process.pid}", set())
    return driver, set().union(*found.values())


def main() -> None:
    """Print the number of files of each call."""
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")] or list(CALLS)
    for name in wanted:
        driver, workers = walk(name)
        print(f"{name}: {len(driver | workers)} files; driver {len(driver)}, workers {len(workers)}", flush=True)
        if "--files" in sys.argv:
            for file in sorted(driver | workers):
                print("   ", "d" if file in driver else " ", "w" if file in workers else " ", file)


if __name__ == "__main__":
    main()
