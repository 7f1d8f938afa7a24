"""One Spark session for all tests that need one: two cores, few partitions, no web page; and which tests are run.

A test marked `sampled(n)` has many parameters of one kind, or takes long: a run takes one in n of them, the next run
the next ones, so that n runs take all; n is at most 10. A run of the whole suite also takes one in twelve of all other
parameters, one in twelve of the tests on Spark, which take seconds each, and one in four of those of `bench/`; a run of
named files takes all of these. `--sample NUMBER`, which every run prints, repeats a choice. A test marked `slow` kills
processes, starts clusters or takes large inputs: `pytest --slow` runs just these, `pytest --all` everything.

Tests that need MariaDB, Redis or Chromium are skipped where these are missing. With `DOVETAIL_SKIPS=fail`, which
`.ci/run` sets where it can install them, a skipped test is a failed one.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


os.environ.setdefault("DOVETAIL_CALIBRATE", "off")  # plans of tests are those of typical figures

_MOST = 10  # runs that take all parameters of a marked test
_ON_SPARK, _OF_PARAMETERS, _OF_BENCH = 12, 12, 4  # a run of the whole suite takes one in n, where no mark gives n


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that are marked as slow, and no others")
    parser.addoption("--all", action="store_true", help="run slow tests too, and every parameter of sampled ones")
    parser.addoption("--sample", type=int, help="which parameters of sampled tests to take; by default the next ones")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the sample: the one asked for, that of the run this worker is part of, or the one after the last."""
    option, worker = config.option, getattr(config, "workerinput", {})
    if option.sample is None:
        option.sample = worker["sample"] if worker else _next_sample(config)


def _next_sample(config: pytest.Config) -> int:
    cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
    last = cache.get("dovetail/sample", None) if cache else None
    sample = last + 1 if isinstance(last, int) else secrets.randbelow(1000)
    if cache:
        cache.set("dovetail/sample", sample)
    return sample


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the sample: all workers must collect the same tests."""
    node.workerinput["sample"] = node.config.option.sample


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    if not config.option.all:
        terminalreporter.write_line(
            f"sampled tests: pytest --sample {config.option.sample} takes these parameters again"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    seen: Counter[str] = Counter()

    def first(test: str) -> int:
        """Where a test's sample begins; tests with the same parameters begin at different ones."""
        return zlib.crc32(test.encode()) + config.option.sample

    kept, left = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        is_wanted = (item.get_closest_marker("slow") is not None) == config.getoption("--slow")
        is_sampled = (seen[test] + first(test)) % _one_in(item) == 0
        (kept if is_wanted and is_sampled else left).append(item)
        seen[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a step of a test; of a skipped one a failure, if nothing may be skipped."""
    report = yield
    if report.skipped and os.environ.get("DOVETAIL_SKIPS") == "fail":
        report.outcome, report.longrepr = "failed", f"{report.longrepr}: skipped, which DOVETAIL_SKIPS=fail forbids"
    return report


def _one_in(item: pytest.Item) -> int:
    """N: a run takes one in N of a test's parameters, and one run in N takes a test without parameters."""
    mark = item.get_closest_marker("sampled")
    if mark is not None:
        return min(_MOST, int(mark.args[0]))
    if item.config.args_source is not pytest.Config.ArgsSource.TESTPATHS or item.get_closest_marker("slow"):
        return 1
    if "spark" in getattr(item, "fixturenames", ()):
        return _ON_SPARK
    if hasattr(item, "callspec"):
        return _OF_PARAMETERS
    return _OF_BENCH if "bench" in item.path.parts else 1


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


@pytest.fixture
def times_of_day(spark: SparkSession) -> Iterator[None]:
    """Columns of type time, which Spark takes in part only without a setting."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")
