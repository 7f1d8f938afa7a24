"""A Spark session with the settings our joins need, and the same settings for a session that already runs."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError, PlanError
from dovetail.spark.connect import is_connect
from dovetail.spark.java import find_java
from dovetail.spark.settings import OUR_DAEMON, SETTINGS, configured_elsewhere, local_cores, local_settings
from dovetail.spark.warm import warm_in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = str | int | float | bool

_UI_PORT = 4040


def session(
    app: str = "dovetail", memory: str | int | None = None, conf: Mapping[str, Value] | None = None, **settings: Value
) -> SparkSession:
    """A Spark session that our joins run well in; Java is found, or taken from PyPI where the machine has none.

    `memory` is the driver's, which in local mode is all of Spark's ("4g", or bytes). Any Spark setting can be given in
    `conf={"spark.x.y": 1}`, as `**{"spark.x.y": 1}`, or with underscores, `spark_x_y=1`. What you give here, in
    spark-defaults.conf or in PYSPARK_SUBMIT_ARGS wins over our defaults. If a session runs already, you get that one,
    configured; a setting you gave that it can no longer take is a ConfigError. The session's time zone is left alone.

    Raises PlanError for a setting that is not Spark's, ConfigError if Java cannot be started.
    """
    given = _given(memory, conf, settings)
    if _wants_connect(given):
        return _remote(app, given)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        _reuse(running, given)
        return running
    return _launched(SparkSession.builder.appName(app), _all_settings(given))


def configure(spark: SparkSession) -> list[str]:
    """Sets what our joins need in a running session; gives one line, with a remedy, for each thing it could not change.

    An empty list means that the session is as good as one from `dovetail.session()`.
    """
    problems = []
    for setting in SETTINGS:
        if setting.runtime:
            spark.conf.set(setting.key, setting.value)
        elif (now := _core_setting(spark, setting.key)) != setting.value:
            problems.append(
                f"{setting.key} is {now or 'not set'} and cannot change while Spark runs ({setting.reason}); "
                f"start Spark with --conf {setting.key}={setting.value}, or with dovetail.session()"
            )
    return problems


def _given(memory: str | int | None, conf: Mapping[str, Value] | None, settings: Mapping[str, Value]) -> dict[str, str]:
    """What the caller asked for, as Spark spells it."""
    named = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    asked = {**(conf or {}), **named}
    foreign = sorted(key for key in asked if not key.startswith("spark."))
    if foreign:
        raise PlanError(
            f"settings {foreign} are not Spark's; names start with 'spark.', "
            "for example conf={'spark.sql.shuffle.partitions': 8} or spark_sql_shuffle_partitions=8"
        )
    if memory is not None:
        asked["spark.driver.memory"] = _memory(memory)
    return {key: _text(value) for key, value in asked.items()}


def _memory(memory: str | int) -> str:
    from dovetail.engine.memory import parse_bytes

    return f"{max(1, parse_bytes(memory) >> 20)}m"


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wants_connect(given: Mapping[str, str]) -> bool:
    mode = given.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "classic")).lower()
    return "spark.remote" in given or "SPARK_REMOTE" in os.environ or mode == "connect"


def _remote(app: str, given: Mapping[str, str]) -> SparkSession:
    """A Spark Connect session: `sc://host` needs no Java here, `local` starts a server in this process."""
    from pyspark.sql import SparkSession

    url = given.get("spark.remote", os.environ.get("SPARK_REMOTE", "local"))
    builder = SparkSession.builder.appName(app).remote(url)
    if url.startswith("sc://"):
        spark = builder.getOrCreate()
        _reuse(spark, {key: value for key, value in given.items() if key != "spark.remote"})
        return spark
    return _launched(builder, {k: v for k, v in _all_settings(given).items() if k != "spark.remote"})


def _launched(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """Starts the JVM and, beside it on the same machine, the compilation of kernels that its workers will want."""
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _launch_environment():
        if settings.get("spark.python.daemon.module") == OUR_DAEMON and "spark.driver.host" in settings:
            warm_in_background()
        return builder.getOrCreate()


def _set_runtime(spark: SparkSession, given: Mapping[str, str]) -> None:
    for setting in SETTINGS:
        if setting.runtime and setting.key not in given:
            spark.conf.set(setting.key, setting.value)


def _reuse(running: SparkSession, given: Mapping[str, str]) -> None:
    stuck = []
    _set_runtime(running, given)
    for key, value in given.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
        elif _core_setting(running, key) != value:
            stuck.append(f"{key}={value} (it is {_core_setting(running, key) or 'not set'})")
    if stuck:
        raise ConfigError(
            f"a Spark session is running and cannot take {', '.join(stuck)}. "
            "Stop it first (spark.stop()), or leave these settings out."
        )


def _core_setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the running application; a Connect client can see those of SQL only."""
    if is_connect(spark):
        return spark.conf.get(key, None)
    return spark.sparkContext.getConf().get(key) or spark.conf.get(key, None)


def _all_settings(given: Mapping[str, str]) -> dict[str, str]:
    from pyspark.find_spark_home import _find_spark_home

    elsewhere = configured_elsewhere(os.environ, Path(_find_spark_home()))
    ours = {setting.key: setting.value for setting in SETTINGS}
    master = given.get("spark.master") or elsewhere.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    cores = local_cores(master)
    if cores is not None:
        ours |= local_settings(cores) | _local_directories({**elsewhere, **given}) | _ui_port({**elsewhere, **given})
    return {key: value for key, value in ours.items() if key not in elsewhere} | dict(given)


def _local_directories(chosen: Mapping[str, str]) -> dict[str, str]:
    """Tells Python workers where Spark spills, so that our spill files stand beside Spark's."""
    directory = os.environ.get("SPARK_LOCAL_DIRS") or chosen.get("spark.local.dir")
    return {"spark.executorEnv.SPARK_LOCAL_DIRS": directory} if directory else {}


def _ui_port(chosen: Mapping[str, str]) -> dict[str, str]:
    """The first free port from 4040 on: what Spark would take, without its warning for each one that is not."""
    if "spark.ui.port" in chosen or chosen.get("spark.ui.enabled") == "false":
        return {}
    free = next((port for port in range(_UI_PORT, _UI_PORT + 64) if _is_free(port)), 0)
    return {"spark.ui.port": str(free)}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _launch_environment() -> Iterator[None]:
    """The environment that the JVM and its Python workers are started with, put back afterwards.

    Spark takes Java and the workers' Python from the environment of the process that starts it, and from nowhere else.
    """
    wanted = {"JAVA_HOME": str(find_java().home)}
    if not os.environ.get("PYSPARK_PYTHON"):
        wanted["PYSPARK_PYTHON"] = sys.executable
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
