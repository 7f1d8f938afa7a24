"""One Spark session for all tests that need one: two cores, few partitions, no web page.

They all run in one process, beside those that need no Spark in another: a second JVM would have to warm up as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    from dovetail.spark.session import session

    home = tmp_path_factory.mktemp("spark")
    spark = session(
        "dovetail tests",
        conf={
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.ui.enabled": False,
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            # Functions of test modules are pickled by name: workers find them where pytest does.
            "spark.executorEnv.PYTHONPATH": str(pytestconfig.rootpath),
        },
    )
    yield spark
    spark.stop()
