"""`make cluster`: starts a Spark cluster on four hosts, an object store and HDFS on two more, runs checks on a seventh.

    python -m tests.cluster [arguments of pytest]

The hosts are namespaces (see `hosts`), so it needs Linux and root. Where these are not allowed it says so and fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path
from typing import Any

from tests.cluster.hosts import DRIVER, HDFS, MASTER, ROOT, STORE, WORKERS, Host, alone, make_switch, on, refusal
from tests.cluster.jars import fetch
from tests.quick_java import QUICK_JAVA

from dovetail.engine.cache import cache_root
from dovetail.spark.java import find_java
from dovetail.spark.settings import spark_home

_LOGS = Path("/run/logs")
_INSIDE = (sys.executable, "-m", "tests.cluster", "--inside")
_SPARK = (f"{os.environ.get('SPARK_HOME')}/bin/spark-class",)
_START_S = 120.0


def outside(arguments: list[str]) -> int:
    """Run the command in namespaces of its own, and end them, also after an error or Ctrl-C."""
    found = "it is not root" if os.geteuid() else refusal()
    if found:
        print(f"no cluster: this process may not make network and mount namespaces: {found}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    env = os.environ | _environment()
    fetch(env)  # hosts have no network but their own
    with tempfile.TemporaryDirectory() as made:
        env |= {"CLUSTER_BARE": _bare(Path(made) / "bare"), "CLUSTER_OTHER": _other(Path(made) / "other")}
        env["CLUSTER_KEEPS"] += f":{made}"
        return _end_with(subprocess.Popen(alone([*_INSIDE, *arguments]), cwd=ROOT, env=env))


def _end_with(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        process.kill()  # the namespaces end with it
        process.wait()


def _bare(place: Path) -> str:
    """A Python that has everything but Dovetail, which all hosts get."""
    venv.create(place, symlinks=True)
    inner = next(place.glob("lib/python*/site-packages"))
    everything = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    (inner / "all.pth").write_text(f"{everything}\n")  # whose own .pth files, one of them Dovetail's, are not read
    return str(place / "bin" / "python")


def _other(place: Path) -> str:
    """Dovetail under another patch version, which all hosts get."""
    shutil.copytree(ROOT / "src", place, ignore=shutil.ignore_patterns("__pycache__"))
    file = place / "dovetail" / "version.py"
    file.write_text(re.sub(r'(\d+)"$', lambda found: f'{int(found[1]) + 1}"', file.read_text().rstrip()) + "\n")
    return str(place)


def _environment() -> dict[str, str]:
    """What all hosts have: Java, Spark, Python, and the places that these are in."""
    java, spark = find_java().home, spark_home()
    kept = (ROOT, Path(sys.prefix), Path(sys.base_prefix), java, spark, cache_root())
    return {
        "CLUSTER_KEEPS": ":".join(dict.fromkeys(str(place.resolve()) for place in kept)),
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "DOVETAIL_CACHE": str(cache_root()),  # with compiled kernels, which an image has too
    }


def inside(arguments: list[str]) -> int:
    """Start the cluster, run the checks, and print what the hosts said if they fail."""
    make_switch()
    _LOGS.mkdir()
    started = time.monotonic()
    spark = f"spark://{MASTER.name}:7077"
    _start(STORE, sys.executable, "-m", "tests.cluster.store")
    _start(HDFS, sys.executable, "-m", "tests.cluster.hdfs")
    _start(MASTER, *_SPARK, "org.apache.spark.deploy.master.Master", "--host", MASTER.name, "--port", "7077")
    _wait_for(0)
    for host in WORKERS:
        worker = ("--host", host.name, "--cores", "2", "--memory", "2500m", "--work-dir", "/home/data/work", spark)
        _start(host, *_SPARK, "org.apache.spark.deploy.worker.Worker", *worker)
    _wait_for(len(WORKERS))
    print(f"one master and {len(WORKERS)} workers after {time.monotonic() - started:.0f} s", flush=True)
    checks = ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    wanted = [str(ROOT / one) if (ROOT / one).exists() else one for one in arguments or ["tests/cluster"]]
    env = os.environ | {"CLUSTER_MASTER": spark}
    code = subprocess.run(on(DRIVER, [sys.executable, *checks, *wanted]), env=env, check=False).returncode
    if code:
        _show_logs()
    return code


def _start(host: Host, *command: str) -> None:
    with (_LOGS / host.name).open("wb") as log:
        subprocess.Popen(on(host, list(command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _wait_for(workers: int) -> None:
    """Wait until the master knows `workers` workers."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        found = _state()
        if found is not None and sum(worker["state"] == "ALIVE" for worker in found["workers"]) == workers:
            return
        time.sleep(0.3)
    _show_logs()
    sys.exit(f"the cluster did not start: {workers} workers were not there after {_START_S:.0f} s")


def _state() -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://{MASTER.address}:8080/json/", timeout=5) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError):  # no master yet, or one whose page has no JSON yet
        return None


def _show_logs(most: int = 20) -> None:
    for log in sorted(_LOGS.iterdir()):
        lines = [line for line in log.read_text(errors="replace").splitlines() if " INFO " not in line]
        print(f"---- {log.name}", *lines[-most:], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(inside(given[1:]) if given[:1] == ["--inside"] else outside(given))
