"""One Spark session for all tests that need one: two cores, few partitions, no web page; and which tests are run.

A test marked `sampled(n)` has many parameters of one kind: each run takes every n-th of them, `pytest --all` takes all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every parameter of tests that are marked as sampled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        mark, test = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        (left if mark is not None and seen[test] % mark.args[0] else kept).append(item)
        seen[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


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
