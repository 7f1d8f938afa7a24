"""One application on the cluster of `python -m tests.cluster`; without one, nothing here is collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster.hdfs import hdfs_place_for
from tests.cluster.hosts import MOUNTED
from tests.cluster.jars import connectors, store_connector
from tests.cluster.store import SETTINGS, place_for
from tests.quick_java import QUICK_JAVA

from dovetail.engine.storage.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

collect_ignore_glob = [] if "CLUSTER_MASTER" in os.environ else ["test_*.py"]

APPLICATION = {
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.cores.max": "3",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.jars": store_connector(),
    **SETTINGS,
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session whose three executors are on three hosts; with SPARK_REMOTE that of a server."""
    from dovetail.spark.session import session

    if "SPARK_REMOTE" in os.environ:
        spark = session(conf={"spark.remote": os.environ["SPARK_REMOTE"]})
        yield spark
        spark.stop()
        return
    conf = {"spark.master": os.environ["CLUSTER_MASTER"], **APPLICATION}
    conf["spark.jars"] += f",{connectors()}"
    conf |= {"spark.speculation": "true", "spark.speculation.quantile": "0.3", "spark.speculation.minTaskRuntime": "1s"}
    conf["spark.speculation.efficiency.enabled"] = "false"  # tasks that read no files have no measure of it
    conf["spark.speculation.multiplier"] = "1000000"  # a check that wants it sets less
    # Faults follow each other more closely here than on other clusters.
    conf |= {"spark.task.maxFailures": "30", "spark.stage.maxConsecutiveAttempts": "30"}
    spark = session("cluster checks", conf=conf)
    yield spark
    spark.stop()


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Remote:
    """A directory of the object store, or of HDFS where a test is for both."""
    return (hdfs_place_for if getattr(request, "param", "s3a") == "hdfs" else place_for)(_name(request))


@pytest.fixture
def mounted(request: pytest.FixtureRequest) -> Path:
    """A directory that all hosts mount, as of a network file system."""
    place = MOUNTED / _name(request)
    place.mkdir()
    return place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Families and pipelines have their files in the object store, and on HDFS."""
    if "shared" in metafunc.fixturenames and metafunc.module.__name__.endswith(("families", "pipeline")):
        metafunc.parametrize("shared", ["s3a", "hdfs"], indirect=True)


def _name(request: pytest.FixtureRequest) -> str:
    client = "remote-" if "SPARK_REMOTE" in os.environ else ""
    return client + str(request.node.name).replace("[", "-").replace("]", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Faults come last: executors that were lost may come back on a host that has one."""
    items.sort(key=lambda item: item.path.name == "test_faults.py")
