"""Starts the JVM: its settings, its environment, and its output."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dovetail.engine.cache import archive, is_prepared
from dovetail.engine.storage.secrets import hidden, shown_setting
from dovetail.errors import ConfigError
from dovetail.spark import class_archive
from dovetail.spark.ahead import start_ahead
from dovetail.spark.java import Java, find_java
from dovetail.spark.settings import (
    LONGEST_SOCKET_PLACE,
    OUR_DAEMON,
    configured_elsewhere,
    local_cores,
    local_settings,
    settings_beside,
    spark_home,
)
from dovetail.spark.warm import calibrate_in_background, prepare_in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FILE_BYTES = 8 << 20
_TAIL_LINES = 400
_CHATTER = re.compile(r"(Starting )?Streaming \w+ Python worker|\s*$")
"""Printed by each worker that a query with state starts."""
_LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (ERROR|FATAL) ")
_TRACE = "Traceback (most recent call last):"
# A task or source that is no longer read, as after LIMIT or at the end of a stream, is interrupted.
_HEALTHY = re.compile(
    r"(BrokenPipeError|ConnectionResetError)\b|.* ERROR (TorrentBroadcast: Store broadcast \S+ fail"
    r"|Utils: Aborting task|FileFormatWriter: (Aborting job|Job: job_))"
)


class Output:
    """The output of a JVM and its Python workers: a log file, the number of errors in it, and its last lines.

    So the terminal of a command shows the command's own lines only. Lines that Spark prints in every healthy run are
    dropped. Errors are counted: such a log is worth reading even if the run succeeded.
    """

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="dovetail-spark-", suffix=".log")
        os.close(handle)
        self.path = Path(name)
        self.errors = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._file: RotatingFileHandler | None = RotatingFileHandler(
            name, maxBytes=_FILE_BYTES, backupCount=1, encoding="utf-8"
        )
        self._in_trace = False
        self._reader: threading.Thread | None = None

    @contextmanager
    def captured(self) -> Iterator[int]:
        """A descriptor for the output of a process that is started in the block; its lines are read until it ends."""
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(os.fdopen(reading, "rb"),), daemon=True)
        self._reader.start()
        try:
            yield writing
        finally:
            os.close(writing)

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self.take(line.decode("utf-8", "replace").rstrip("\n"))

    def take(self, line: str) -> None:
        """Add a line."""
        if _CHATTER.match(line):
            return
        self._tail.append(line)
        file = self._file
        if file is not None:
            file.emit(logging.LogRecord("spark", logging.INFO, "", 0, line, None, None))
        if line == _TRACE:  # may be of another process, inside an earlier one
            self._in_trace = True
        elif self._in_trace and not line.startswith(" "):
            self._in_trace = False  # the line after the frames names the error
            self.errors += not _HEALTHY.match(line)
        elif _LOGGED.match(line):
            self.errors += not _HEALTHY.match(line)

    def text(self) -> str:
        """The last lines of a process that has ended."""
        if self._reader is not None:
            self._reader.join(5.0)
        return "\n".join(self._tail)

    def remove(self) -> None:
        """Remove the log; later lines are read and dropped."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink(missing_ok=True)


_UI_PORT = 4040
_POLL_S = 0.01
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"  # which Spark puts before those of the user
# A full garbage collection is not worth the classes that a start loads. Methods are compiled with all optimisations
# after more calls than by default: at a start this takes a tenth of the processor's time. Hot loops are, as always, at
# once.
_QUICK_START = (
    "-XX:MetaspaceSize=256m -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000"
)
# A short-lived JVM builds the command of the real one: it should compile fast rather than well.
_QUICK_LAUNCHER = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"}


def launch(app: str | None, given: Mapping[str, str], output: Output | None = None) -> SparkSession:
    """A new classic session with our settings under those given; kernels are compiled while the JVM boots.

    `output` takes what the JVM prints. ConfigError if the JVM does not start.
    """
    _check_memory(given)
    java = None if _is_submitted() else find_java()
    with _environment(_java_and_python(java)):
        named = given if app is None else {"spark.app.name": app, **given}
        settings = _all_settings(named)
        if local_cores(settings["spark.master"]) is None:
            _report(settings, named)
        if java is not None and JAVA_OPTIONS not in settings:
            settings[JAVA_OPTIONS] = java_options(java)
        _warm(settings)
        if java is not None and not _runs_jvm():
            with _environment(_ahead(settings)):
                _start_jvm(settings, output)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def java_options(java: Java) -> str:
    """Options of the JVM for a quick start, with the archive of its classes if there is one."""
    return f"{_QUICK_START} {class_archive.options(java)}".strip()


def _runs_jvm() -> bool:
    """Whether this process has a JVM; PySpark is not imported to know."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


def _start_jvm(settings: Mapping[str, str], output: Output | None) -> None:
    """Start the JVM of this process as PySpark does, which is imported while the JVM boots."""
    with contextlib.ExitStack() as stack:
        told = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-jvm-"))) / "gateway"
        with contextlib.nullcontext() if output is None else output.captured() as stream:
            process = _submit(settings, told, stream)
        import pyspark.sql
        import pyspark.testing.utils  # noqa: F401  (with pandas: PySpark's first call of the JVM imports it)

        while process.poll() is None and not told.is_file():
            time.sleep(_POLL_S)
        if not told.is_file():
            raise ConfigError(_why_not(settings, output))
        port, length = struct.unpack_from("!ii", answer := told.read_bytes())
        secret = answer[8 : 8 + length].decode()
    _connect(process, {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret})


def _submit(settings: Mapping[str, str], told: Path, stream: int | None) -> subprocess.Popen[bytes]:
    """Spark's own command that starts the JVM, which writes its port and secret to the file `told`."""
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    env = os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
    return subprocess.Popen(  # noqa: S603  (Spark's own script)
        [spark_home() / "bin" / "spark-submit", *options, *given],
        stdin=subprocess.PIPE,  # the JVM ends when this pipe closes
        stdout=stream, stderr=stream, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip


def _connect(process: subprocess.Popen[bytes], gateway_of: Mapping[str, str]) -> None:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    with _environment(gateway_of):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark does not type it
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)


PACKAGES = "spark.jars.packages"
_UNRESOLVED = re.compile(r"(?:unresolved dependency|download failed): ([^#\s]+)#([^;\s]+);([^:!\s]+)")
_EXCEPTION = re.compile(r"Exception in thread \S+ (.+)|^Error: (.+)", re.MULTILINE)


def _why_not(settings: Mapping[str, str], output: Output | None) -> str:
    """Why the JVM did not start, as far as its output says."""
    told = "" if output is None else output.text()
    lost = list(dict.fromkeys(":".join(found) for found in _UNRESOLVED.findall(told)))
    if lost:
        return (
            f"{PACKAGES}: {', '.join(lost)} could not be fetched; check the name and the network, or download the "
            "files and give their paths in spark.jars, or name a repository that has them in spark.jars.repositories."
        )
    found = _EXCEPTION.search(told)
    reason = next((part for part in found.groups() if part), "") if found else "what it said is on the terminal"
    reason = hidden(reason)
    cause = (
        f", whose {PACKAGES} {settings[PACKAGES]!r} it may not have been able to fetch" if PACKAGES in settings else ""
    )
    return f"Spark's Java process ended before it was ready{'' if told else cause}: {reason}; see `dovetail doctor`."


def _is_submitted() -> bool:
    """Whether spark-submit started this process, from a JVM that has read all settings of the user."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def launch_connect(app: str | None, master: str, given: Mapping[str, str]) -> SparkSession:
    """A client of a new Spark Connect server, which runs in this process on a local master."""
    from pyspark.sql import SparkSession

    settings = _all_settings({**given, "spark.master": master})
    # The way spark-submit hands settings to the server. A builder would also try to set them all in the client.
    server = {"PYSPARK_REMOTE_INIT_CONF_LEN": "1", "PYSPARK_REMOTE_INIT_CONF_0": json.dumps(settings)}
    with _environment(_java_and_python(find_java()) | server):
        _warm(settings)
        return SparkSession.builder.appName(app or "dovetail").remote(master).getOrCreate()


def _all_settings(given: Mapping[str, str]) -> dict[str, str]:
    elsewhere = _elsewhere()
    _check_master(elsewhere, given)
    chosen = elsewhere | dict(given)
    master = chosen.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    ours = {setting.key: setting.value for setting in settings_beside(chosen)}
    ours |= {"spark.master": master, "spark.app.name": "dovetail"}
    cores = local_cores(master)
    if cores is not None:
        ours |= local_settings(cores) | _ui_port(chosen) | _socket_directory(chosen)
    return ours | _of_archive(cores is not None) | chosen


def _check_master(elsewhere: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse another master than spark-submit's: its JVM and its files are made for that one."""
    submitted, asked = elsewhere.get("spark.master"), given.get("spark.master")
    if _is_submitted() and submitted is not None and asked not in (None, submitted):
        raise ConfigError(
            f"spark-submit started this program with master {submitted}, and it asks for {asked}. Leave spark.master "
            f"out of the program, or submit it with --master {asked}."
        )


def _of_archive(is_local: bool) -> dict[str, str]:
    """Where daemons find this package if it was given as a zip file, which only tasks would add to their path.

    Executors of a cluster have a copy in their working directory.
    """
    packed = archive()
    return {} if packed is None else {"spark.executorEnv.PYTHONPATH": str(packed) if is_local else packed.name}


def _report(settings: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Print which settings of a cluster's session came from where; values of secrets are hidden."""
    elsewhere = _elsewhere()
    places = "spark-submit" if _is_submitted() else "Spark's files and PYSPARK_SUBMIT_ARGS"
    origins = {key: "the program" if key in given else places if key in elsewhere else "Dovetail" for key in settings}
    for origin in ("the program", places, "Dovetail"):
        found = [f"{key}={shown_setting(key, settings[key])}" for key, by in origins.items() if by == origin]
        if found:
            print(f"dovetail: from {origin}: {', '.join(sorted(found))}", file=sys.stderr)
    print(f"dovetail: Python of executors: {os.environ['PYSPARK_PYTHON']}", file=sys.stderr)


def _elsewhere() -> dict[str, str]:
    """Settings from outside the program: those of spark-submit's JVM, or those of the files that Spark will read."""
    if not _is_submitted():
        return configured_elsewhere(os.environ, spark_home())
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


_SOCKETS = "spark.python.unix.domain.socket."


def _socket_directory(chosen: Mapping[str, str]) -> dict[str, str]:
    """A directory for the sockets between the JVM and Python that only this user can enter, while this process lives.

    By default they lie among all users' temporary files. On the hosts of a cluster our daemon makes such directories.
    """
    if f"{_SOCKETS}dir" in chosen or chosen.get(f"{_SOCKETS}enabled") == "false" or not hasattr(socket, "AF_UNIX"):
        return {}
    place = tempfile.mkdtemp(prefix="dovetail-sockets-")  # with the rights 0700
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return {f"{_SOCKETS}dir": place} if len(place) <= LONGEST_SOCKET_PLACE else {}


def _ui_port(chosen: Mapping[str, str]) -> dict[str, str]:
    """The first free port from 4040 on, which Spark would take too, but with a warning for each used one."""
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


def _check_memory(given: Mapping[str, str]) -> None:
    """Refuse more memory than the running JVM has: a JVM outlives its session and keeps its size."""
    if not _runs_jvm() or "spark.driver.memory" not in given:
        return
    from pyspark import SparkContext

    from dovetail.engine.memory import format_bytes, parse_bytes

    jvm: Any = SparkContext._jvm
    has = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    wants = parse_bytes(given["spark.driver.memory"])
    if has < 0.8 * wants:  # the JVM does not count all of its heap
        raise ConfigError(
            f"memory {format_bytes(wants)} was asked for, but the JVM of this process was started with "
            f"{format_bytes(has)} and cannot grow. Start a new Python process, or ask for it in the first session."
        )


def _java_and_python(java: Java | None) -> dict[str, str]:
    """Environment variables with Java and the workers' Python, which Spark reads when it starts."""
    wanted = {} if java is None else {"JAVA_HOME": str(java.home)} | _QUICK_LAUNCHER
    return wanted if os.environ.get("PYSPARK_PYTHON") else wanted | {"PYSPARK_PYTHON": sys.executable}


def _warm(settings: Mapping[str, str]) -> None:
    # Executors of a cluster have disks of their own: there the first daemon compiles.
    if not _runs_our_daemon(settings):
        return
    if is_prepared():
        calibrate_in_background()
    else:
        prepare_in_background()


def _ahead(settings: Mapping[str, str]) -> dict[str, str]:
    """The interpreter that daemons of this machine are forked from, if they run the same Python."""
    python = settings.get("spark.pyspark.python") or os.environ["PYSPARK_PYTHON"]
    if not _runs_our_daemon(settings) or python != sys.executable:
        return {}
    cpus = settings.get("spark.task.cpus", "1")
    return start_ahead(settings.get("spark.executorEnv.OMP_NUM_THREADS", cpus))


def _runs_our_daemon(settings: Mapping[str, str]) -> bool:
    return settings["spark.python.daemon.module"] == OUR_DAEMON and local_cores(settings["spark.master"]) is not None


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes started in the block; restore them afterwards."""
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
