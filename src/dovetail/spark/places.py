"""Finds the place of a path, and tells whether a local one is the same for the driver and all executors.

Spark takes such a path on each host as its own: tasks then write to, or read from, as many disks as there are hosts,
and rows are lost without an error. So a task on each executor looks for what the driver sees there.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dovetail.engine.storage.files import Place, access_of, located
from dovetail.engine.storage.hdfs import PREFIXES, HdfsAccess
from dovetail.engine.storage.remote import ATTEMPTS, Access, Remote, S3Access, is_remote
from dovetail.errors import ConfigError, PlanError
from dovetail.spark.frames import is_connect, parallelism
from dovetail.spark.settings import local_cores

_TASKS = 4  # for each task that runs at once: some executors are slow to take one
_TASK_S = 0.05
_TRIES, _TRY_S = 3, 0.3  # a network file system may show a new file late
_HADOOP_DEFAULTS = ["core-default.xml"]  # its five attempts are those of one of two layers, which retry each other
_SEEN: set[tuple[str, str]] = set()


def place_of(spark: SparkSession | None, path: str | Path) -> Place:
    """The place that Spark takes a path for, with what Spark was given to reach it.

    A path without a scheme is on the file system fs.defaultFS. Without a session it is local, and S3 is reached as the
    environment says.
    """
    if spark is None:
        return located(path)
    setting = _settings(spark)
    place = located(path, default=setting("fs.defaultFS", "file:///"))
    if isinstance(place, Path):
        return place
    if place.is_hdfs:
        return Remote(place.address, _hdfs_access(spark))
    return Remote(place.address, _s3_access(setting, place.host))


def address_of(spark: SparkSession, path: str) -> str:
    """A path with the file system that Spark takes it for; those of file systems that only Arrow knows as they are."""
    try:
        return str(place_of(spark, path))
    except PlanError:
        if is_remote(path) or path.startswith("file:") or "://" not in path:
            raise
        return path


def access_to(spark: SparkSession, path: str) -> Access | None:
    """How a path on S3 or HDFS is reached; None for all others, also of file systems that only Arrow knows."""
    return access_of(place_of(spark, path)) if is_remote(path) else None


def _settings(spark: SparkSession) -> Callable[[str, str], str]:
    """Hadoop's settings by name; over Spark Connect those of its session, with keys of the client's environment."""
    if is_connect(spark):
        return partial(_client_setting, spark)
    session: Any = spark
    conf = session._jsparkSession.sessionState().newHadoopConf()

    def found(name: str, default: str) -> str:
        secret = conf.getPassword(name) if name.endswith((".key", ".token")) else None  # credential files too
        if secret is not None:
            return "".join(secret)
        given = list(conf.getPropertySources(name) or ()) != _HADOOP_DEFAULTS
        return str(conf.get(name, default)) if given else default

    return found


_CLIENT_KEYS = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
}


def _client_setting(spark: SparkSession, name: str, default: str) -> str:
    """A setting of the server; of keys, which a server does not tell its clients, that of this process."""
    found = spark.conf.get(name, None) or spark.conf.get(f"spark.hadoop.{name}", None) or ""
    variable = next((value for key, value in _CLIENT_KEYS.items() if name.endswith(f".{key}")), None)
    if variable is not None and (not found or "(redacted)" in found):
        found = os.environ.get(variable, "")
    return found or default


def _s3_access(setting: Callable[[str, str], str], bucket: str) -> S3Access:
    def of(name: str, default: str = "") -> str:
        return setting(f"fs.s3a.bucket.{bucket}.{name}", "") or setting(f"fs.s3a.{name}", default)

    anonymous = "Anonymous" in of("aws.credentials.provider")
    return S3Access(
        endpoint=of("endpoint"),
        region=of("endpoint.region"),
        key="" if anonymous else of("access.key"),
        secret="" if anonymous else of("secret.key"),
        token="" if anonymous else of("session.token"),
        path_style=of("path.style.access").lower() == "true",
        ssl=of("connection.ssl.enabled").lower() != "false",
        anonymous=anonymous,
        attempts=int(of("attempts.maximum") or ATTEMPTS),
    )


def _hdfs_access(spark: SparkSession) -> HdfsAccess:
    """Spark's settings of name services; over Spark Connect only files of Hadoop on each host have them."""
    if is_connect(spark):
        return HdfsAccess()
    session: Any = spark
    conf = session._jsparkSession.sessionState().newHadoopConf()
    found = {prefix + rest: value for prefix in PREFIXES for rest, value in conf.getPropsWithPrefix(prefix).items()}
    return HdfsAccess(tuple(sorted(found.items())))


def require_shared_directory(spark: SparkSession, place: str | Place, what: str) -> None:
    """Make the directory, and raise ConfigError unless all executors see what the driver writes there.

    Checked once for an application, by a small job. With a local master there is nothing to check; addresses of other
    file systems are shared by their nature; over Spark Connect the directory of the server is not known here.
    """
    path = local_place(spark, place)
    if path is None or _is_known(spark, path):
        return
    token = path / f".dovetail-{uuid.uuid4().hex}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        token.touch()
    except OSError as error:
        raise ConfigError(f"{what}: cannot write to {path}: {error.strerror}; check place and rights.") from error
    try:
        _require(spark, path, token, what)
    finally:
        token.unlink(missing_ok=True)


def require_seen(spark: SparkSession, place: str | Path) -> None:
    """Raise ConfigError unless all executors see this file, of this size, or directory with master data."""
    path = local_place(spark, place)
    if path is not None and path.exists() and not _is_known(spark, path):
        _require(spark, path, path, "the master data")


def local_place(spark: SparkSession, place: str | Place) -> Path | None:
    """The local path that Spark takes a path for; None if it is on another file system."""
    try:
        found = place if isinstance(place, Remote) else place_of(spark, place)
    except PlanError:  # on a file system that Spark knows, and Dovetail does not
        return None
    return found if isinstance(found, Path) else None


def _is_known(spark: SparkSession, path: Path) -> bool:
    if is_connect(spark) or local_cores(str(spark.sparkContext.master)) is not None:
        return True
    return (spark.sparkContext.applicationId, str(path)) in _SEEN


def _require(spark: SparkSession, path: Path, token: Path, what: str) -> None:
    blind = _hosts_without(spark, token)
    if blind:
        raise ConfigError(
            f"{what}: {path} is not one place for all hosts of this cluster: {', '.join(blind)} "
            f"{'does' if len(blind) == 1 else 'do'} not see there what the driver, on {socket.gethostname()}, sees. "
            "Give a path on a file system that is mounted at this place on all of them, or run with a local master."
        )
    _SEEN.add((spark.sparkContext.applicationId, str(path)))


def _hosts_without(spark: SparkSession, token: Path) -> list[str]:
    """Hosts on which a task does not see the file."""
    tasks = _TASKS * max(2, parallelism(spark))
    size = token.stat().st_size if token.is_file() else None
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_look, str(token), size), "host string, sees boolean")
    return sorted({row.host for row in rows.collect() if not row.sees})


def _look(token: str, size: int | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sees = any(_sees(token, size, attempt) for attempt in range(_TRIES))
    for _ in batches:
        time.sleep(_TASK_S)  # so that other executors get the next tasks
        yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()], "sees": [sees]})


def _sees(token: str, size: int | None, attempt: int) -> bool:
    time.sleep(_TRY_S if attempt else 0)
    try:
        found = os.stat(token)  # noqa: PTH116  (as few calls as possible: the disk may be far)
    except OSError:
        return False
    return size is None or found.st_size == size
