"""One Spark session for all tests that need one: two cores, few partitions, no web page; and which tests are run.

A test marked `sampled(n)` has many parameters of one kind: a run takes every n-th of them. One marked `slow` kills
processes, starts clusters or takes large inputs: `pytest --slow` runs just these, `pytest --all` everything.
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
    parser.addoption("--slow", action="store_true", help="run the tests that are marked as slow, and no others")
    parser.addoption("--all", action="store_true", help="run slow tests too, and every parameter of sampled ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        mark, test = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        is_wanted = (item.get_closest_marker("slow") is not None) == config.getoption("--slow")
        (kept if is_wanted and (mark is None or seen[test] % mark.args[0] == 0) else left).append(item)
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
            # Queries that run once on few rows are not worth a compiler; examples and benchmarks run with Spark's own.
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            # Functions of test modules are pickled by name: workers find them where pytest does.
            "spark.executorEnv.PYTHONPATH": str(pytestconfig.rootpath),
        },
    )
    yield spark
    spark.stop()
