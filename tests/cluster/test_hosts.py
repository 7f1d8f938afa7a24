"""The cluster is what it claims to be: hosts that share the network, an object store, and one mounted directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.hosts import DATA, DRIVER, HOME, MOUNTED, WORKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def look(_: Iterator[int]) -> Iterator[tuple[str, str, bool, bool, bool]]:
    """What a task sees: its host, its address, and which files of the driver."""
    name = socket.gethostname()
    yield name, socket.gethostbyname(name), *(place.exists() for place in TOKENS)


TOKENS = (Path("/tmp/token"), DATA / "token", MOUNTED / "token")


def test_hosts_are_separate(spark: SparkSession) -> None:
    for place in TOKENS:
        place.touch()
    found = set(spark.sparkContext.parallelize(range(30), 30).mapPartitions(look).collect())
    assert {(name, address) for name, address, *_ in found} == {(host.name, host.address) for host in WORKERS}
    assert {seen for _, _, *seen in map(tuple, found) for seen in [tuple(seen)]} == {(False, False, True)}
    assert socket.gethostbyname(socket.gethostname()) == DRIVER.address


def kernels(_: Iterator[int]) -> Iterator[tuple[str, str, int]]:
    """Where a new process without an image's kernels would keep them on this host, and the rights of that place."""
    from dovetail.engine.cache import cache_root

    place = cache_root({name: value for name, value in os.environ.items() if name != "DOVETAIL_CACHE"})
    yield socket.gethostname(), str(place), place.stat().st_mode & 0o777 if place.exists() else 0


def test_a_host_without_a_home_keeps_kernels_among_temporary_files(spark: SparkSession) -> None:
    found = set(spark.sparkContext.parallelize(range(30), 30).mapPartitions(kernels).collect())
    usual = str(HOME / ".cache" / "dovetail")
    without = {(host.name, f"/tmp/dovetail-{os.getuid()}", 0o700) for host in WORKERS if not host.has_home}
    assert found == without | {(host.name, usual, 0) for host in WORKERS if host.has_home}


def sockets(_: Iterator[int]) -> Iterator[tuple[str, int]]:
    """The directories with sockets of Spark's Python daemons on this host, and their rights."""
    yield socket.gethostname(), 0
    for place in [*Path("/tmp").glob(".*.sock"), *Path("/tmp").glob("*/.*.sock")]:
        yield str(place.parent), place.parent.stat().st_mode & 0o777


def test_sockets_of_python_lie_where_only_their_user_can_enter(spark: SparkSession) -> None:
    found = set(spark.sparkContext.parallelize(range(30), 30).mapPartitions(sockets).collect())
    rights = {place: right for place, right in found if place.startswith("/tmp")}
    assert len(rights) >= len(WORKERS)
    assert set(rights.values()) == {0o700}
