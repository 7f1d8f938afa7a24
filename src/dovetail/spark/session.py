"""Opens Spark sessions with the settings that our joins need, and configures running ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.engine.storage.secrets import shown_setting
from dovetail.errors import ConfigError, PlanError
from dovetail.spark.launch import Output, launch, launch_connect
from dovetail.spark.settings import Setting, settings_beside
from dovetail.spark.task_errors import translate_task_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = str | int | float | bool


def session(
    app: str | None = None,
    *,
    memory: str | int | None = None,
    conf: Mapping[str, Value] | None = None,
    **settings: Value,
) -> SparkSession:
    """A Spark session with the settings that our joins need; Java is found, or taken from PyPI if there is none.

    `app` is the name of a new application; without it, the name that spark-submit was given, or "dovetail".
    `memory` is the driver's, which in local mode is all of Spark's ("4g", or bytes). Any Spark setting can be given in
    `conf={"spark.x.y": 1}`, as `**{"spark.x.y": 1}`, or with underscores, `spark_x_y=1`. What you give here, to
    spark-submit, in spark-defaults.conf or in PYSPARK_SUBMIT_ARGS wins over our defaults. If a session runs already,
    you get that one, configured; a setting you gave that it can no longer take is a ConfigError. The session's time
    zone is left alone.
    With `spark.remote` or SPARK_REMOTE you get a Spark Connect session.

    Raises PlanError for a setting that is not Spark's, ConfigError if Java cannot be started.

    >>> dovetail.session("shop").range(3).count()
    3
    """
    return open_session(app, _given(memory, conf, settings))


def quiet_session(app: str, memory: str | None = None) -> tuple[SparkSession, bool]:
    """The running session, or a new one that prints nothing; and whether it is new, so that we stop it."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running, False
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    return session(app, memory=memory, conf=quiet), True


def open_session(app: str | None, given: Mapping[str, str], output: Output | None = None) -> SparkSession:
    """The session for settings as Spark spells them; `output` takes what a new JVM prints."""
    if wants_connect(given):
        spark = _connect(app, given)
    elif _is_running():
        spark = _running(given)
    else:
        spark = launch(app, given, output)  # imports PySpark while the JVM boots
    translate_task_errors()
    return spark


def _is_running() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def _running(given: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    running = SparkSession.builder.getOrCreate()
    _reuse(running, given)
    return running


def configure(spark: SparkSession) -> list[str]:
    """Sets what our joins need in a running session; returns one line, with a remedy, for each setting left as it is.

    Settings that you made stay, and so do settings that cannot change while Spark runs. An empty list means that the
    session is as good as one from `dovetail.session()`.

    >>> isinstance(dovetail.configure(spark), list)
    True
    """
    translate_task_errors()
    _set_runtime(spark, {})
    ours = settings_beside(spark.conf.getAll)
    return [line for setting in ours if (line := _left(setting, _current(spark, setting.key)))]


def _left(setting: Setting, now: str | None) -> str | None:
    """The message about a setting that does not have the value our joins need."""
    if now == setting.value:
        return None
    if setting.runtime:
        return (
            f"{setting.key} was set to {now}, which stays ({setting.reason}); "
            f"for our joins: spark.conf.set({setting.key!r}, {setting.value!r})"
        )
    return (
        f"{setting.key} is {now or 'not set'} and cannot change while Spark runs ({setting.reason}); "
        f"start Spark with --conf {setting.key}={setting.value}, or with dovetail.session()"
    )


def _given(memory: str | int | None, conf: Mapping[str, Value] | None, settings: Mapping[str, Value]) -> dict[str, str]:
    """The given settings, as Spark spells them."""
    named = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    asked = {**(conf or {}), **named}
    foreign = sorted(key for key in asked if not key.startswith("spark."))
    if foreign:
        raise PlanError(
            f"settings {foreign} are not Spark's; names start with 'spark.', "
            "for example conf={'spark.sql.shuffle.partitions': 8} or spark_sql_shuffle_partitions=8",
            argument=next((key for key in settings if foreign[0] in (key, key.replace("_", "."))), "conf"),
        )
    if memory is not None:
        asked["spark.driver.memory"] = _memory(memory)
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in asked.items()}


_SMALLEST_DRIVER = 512 << 20


def _memory(memory: str | int) -> str:
    from dovetail.engine.memory import format_bytes, parse_bytes

    size = parse_bytes(memory)
    if size < _SMALLEST_DRIVER:
        raise PlanError(
            f"memory={memory!r} is {format_bytes(size)}; Spark needs {format_bytes(_SMALLEST_DRIVER)} to start. "
            "The budget of a join is set at the join, not here.",
            argument="memory",
        )
    return f"{size >> 20}m"


def wants_connect(given: Mapping[str, str]) -> bool:
    """Whether these settings, or the environment, ask for Spark Connect."""
    mode = given.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "classic")).lower()
    return "spark.remote" in given or bool(os.environ.get("SPARK_REMOTE")) or mode == "connect"


def _connect(app: str | None, given: Mapping[str, str]) -> SparkSession:
    """A Spark Connect session: `sc://host` needs no Java here, anything else starts a server in this process."""
    from pyspark.sql import SparkSession

    url = given.get("spark.remote") or os.environ.get("SPARK_REMOTE") or given.get("spark.master", "local[*]")
    rest = {key: value for key, value in given.items() if key not in {"spark.remote", "spark.api.mode"}}
    if not url.startswith("sc://"):
        return launch_connect(app, url, rest)
    spark = SparkSession.builder.appName(app or "dovetail").remote(url).getOrCreate()
    _reuse(spark, rest)
    return spark


def _reuse(running: SparkSession, given: Mapping[str, str]) -> None:
    _set_runtime(running, given)
    stuck = []
    for key, value in given.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
        elif (now := _current(running, key)) != value:
            stuck.append(f"{key}={shown_setting(key, value)} (it is {shown_setting(key, now) if now else 'not set'})")
    if stuck:
        raise ConfigError(
            f"a Spark session is running and cannot take {', '.join(stuck)}. "
            "Stop it first (spark.stop()), or leave these settings out."
        )


def _set_runtime(spark: SparkSession, given: Mapping[str, str]) -> None:
    for setting in settings_beside({**spark.conf.getAll, **given}):
        if setting.runtime and setting.key not in given and not _is_set(spark, setting.key):
            spark.conf.set(setting.key, setting.value)


def _is_set(spark: SparkSession, key: str) -> bool:
    """Whether the user, or an earlier call of ours, set it; Spark's defaults do not count."""
    return key in spark.conf.getAll


def _current(spark: SparkSession, key: str) -> str | None:
    """The value of a setting of SQL or of the application; a Connect client sees the latter only if it was set."""
    from dovetail.spark.frames import is_connect

    value = spark.conf.get(key, None)
    return value if value is not None or is_connect(spark) else spark.sparkContext.getConf().get(key)
