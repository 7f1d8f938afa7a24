"""Lists the Spark settings that our joins need, and reads those that the user made outside the program."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import runpy
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """A Spark setting, the value our joins want, and why. `runtime` means that a running session can change it.

    Spark fails with it where a setting that it `needs` has another value than ours.
    """

    key: str
    value: str
    reason: str
    runtime: bool
    needs: str | None = None


OUR_DAEMON = "dovetail.spark.daemon"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        _PROVIDER,
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "online joins keep their state with transformWithState, which works on RocksDB only",
        runtime=True,
    ),
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a micro-batch writes what changed in the state of online joins, not whole files: its commit is much faster",
        runtime=True,
    ),
    Setting(
        "spark.sql.streaming.stateStore.checkpointFormatVersion",
        "2",
        "the commit of a micro-batch names the state that its attempt left; else one that is repeated after two kills "
        "may start from the state of another attempt",
        runtime=True,
        needs=_PROVIDER,
    ),
    Setting(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        "tables reach the driver as Arrow batches instead of pickled rows",
        runtime=True,
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "4m",
        "tasks get rows in batches of at most this size, however wide rows are; the budget of a task holds a batch",
        runtime=True,
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "rows between the JVM and Python cost about a fifth less than over TCP",
        runtime=False,
    ),
    Setting(
        "spark.python.daemon.module",
        OUR_DAEMON,
        "Python workers start with compiled kernels instead of compiling them",
        runtime=False,
    ),
)


def settings_beside(made: Mapping[str, str]) -> list[Setting]:
    """Our settings that go together with those that the user made."""
    ours = {setting.key: setting.value for setting in SETTINGS}
    return [s for s in SETTINGS if s.needs is None or made.get(s.needs, ours[s.needs]) == ours[s.needs]]


LONGEST_SOCKET_PLACE = 61  # of a directory with unix sockets: Spark's own limit
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def local_settings(cores: int) -> dict[str, str]:
    """Settings for one machine that a cluster must not have: few partitions, and sockets of this machine only."""
    return {
        # Streaming state is kept per shuffle partition and never coalesced: 200 of them are most of a micro-batch.
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Each micro-batch notes its offsets and its end in files. Spark's usual way to write one on a local disk starts
        # a chmod process every time; this one renames just as atomically, and halves what an empty micro-batch costs.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
    }


def spark_home() -> Path:
    """Spark's directory as PySpark finds it, which is not imported for it; spark-submit names it."""
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is not installed. Run: pip install pyspark")
    return Path(runpy.run_path(str(Path(spec.origin).with_name("find_spark_home.py")))["_find_spark_home"]())


def configured_elsewhere(env: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """The user's settings from properties files and PYSPARK_SUBMIT_ARGS, which take precedence over our defaults."""
    directory = Path(env["SPARK_CONF_DIR"]) if env.get("SPARK_CONF_DIR") else spark_home / "conf"
    usual = dict(_properties(directory / "spark-defaults.conf"))
    words = [part for word in shlex.split(env.get("PYSPARK_SUBMIT_ARGS", "")) for part in _apart(word)]
    given = [value for option, value in itertools.pairwise(words) if option == "--properties-file"]
    if given:
        # As in spark-submit: a given file replaces the usual one, or adds to it with --load-spark-defaults.
        usual = (usual if "--load-spark-defaults" in words else {}) | dict(_properties(Path(given[-1])))
    return usual | dict(_options(words))


def _apart(word: str) -> list[str]:
    """An option and its value, which may be one word: --conf=spark.x=1."""
    option, sign, value = word.partition("=")
    return [option, value] if sign and option.startswith("--") else [word]


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    """The settings in a file, as Java's properties files and Spark have them."""
    if not path.is_file():
        return
    for line in _CONTINUED.sub(r"\1", _COMMENT.sub("", path.read_text(encoding="utf-8"))).splitlines():
        found = _PROPERTY.match(line)
        if found is not None and found[1]:
            yield _unescaped(found[1]), _unescaped(found[2]).strip()


_COMMENT = re.compile(r"^[ \t\f]*[#!].*", re.MULTILINE)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*")  # a line that ends in an odd number of backslashes
_PROPERTY = re.compile(r"\s*((?:\\.|[^\\\s=:])*)\s*[=:]?\s*(.*)")  # the key ends at the first blank, "=" or ":"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescaped(text: str) -> str:
    def read(found: re.Match[str]) -> str:
        mark = found[1]
        return chr(int(mark[1:], 16)) if len(mark) > 1 else _ESCAPED.get(mark, mark)

    return _ESCAPE.sub(read, text)


_OPTIONS = {"--master": "spark.master", "--driver-memory": "spark.driver.memory", "--name": "spark.app.name"}


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    for option, value in itertools.pairwise(words):
        if option in {"--conf", "-c"} and "=" in value:
            key, _, text = value.partition("=")
            yield key, text
        elif option in _OPTIONS:
            yield _OPTIONS[option], value


def local_cores(master: str) -> int | None:
    """Tasks that a local master runs at once; None for a cluster: local -> 1, local[4] -> 4, local[*] -> all."""
    if master == "local":
        return 1
    if not master.startswith("local["):
        return None
    asked = master[len("local[") :].split("]", 1)[0].split(",", 1)[0]
    return int(asked) if asked.isdigit() else os.cpu_count() or 1
