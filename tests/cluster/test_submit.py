"""Programs that spark-submit starts: its master and settings are taken, and executors get Dovetail in three ways."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from bench.rivals.object_store import SECRET
from tests.cluster.conftest import APPLICATION
from tests.cluster.hosts import DATA, ROOT, WORKERS

PROGRAM = """
import json, socket
import dovetail

def place(rows):
    import os, sys
    import dovetail
    yield socket.gethostname(), dovetail.__file__, sys.executable, "DOVETAIL_RESIDENT" in os.environ

spark = dovetail.session(**json.loads({given!r}))
found = spark.sparkContext.parallelize(range(12), 12).mapPartitions(place).collect()
rows = spark.createDataFrame([(i, i + 3) for i in range(50)], "s long, e long").repartition(3)
other, bounds = rows.toDF("s2", "e2"), {{"left_interval": ("s", "e"), "right_interval": ("s2", "e2")}}
pairs = dovetail.interval_join(rows, other, algorithm="dip", **bounds).count()
online = dovetail.online_join(rows, other, on=[("s", "s2")], memory="4MB").count()
keys = ("spark.master", "spark.app.name", "spark.sql.shuffle.partitions")
settings = {{key: spark.conf.get(key) for key in keys}}
print(json.dumps({{"pairs": pairs, "online": online, "found": sorted(set(map(tuple, found))), "settings": settings}}))
spark.stop()
"""
PAIRS = sum(abs(a - b) < 3 for a in range(50) for b in range(50))
MASTER = os.environ["CLUSTER_MASTER"]
OPTIONS = APPLICATION | {
    "spark.cores.max": "1",
    "spark.sql.shuffle.partitions": "4",
    "spark.ssl.keyPassword": "not to be shown",
}


def submit(
    *options: str, given: dict[str, object] | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = DATA / "program.py"
    program.write_text(PROGRAM.format(given=json.dumps(given or {})))
    settings = [word for key, value in OPTIONS.items() for word in ("--conf", f"{key}={value}")]
    command = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--name", "mine", *settings, *options, str(program)]
    # Spark gives what the program writes to both streams as its output.
    return subprocess.run(command, env=os.environ | (env or {}), capture_output=True, text=True, check=False)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, list[tuple[str, str, str, bool]]]:
    """The answer of the program, whose rows and settings are right."""
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["pairs"], found["online"]) == (PAIRS, 50)
    assert found["settings"] == {
        "spark.master": MASTER, "spark.app.name": "mine", "spark.sql.shuffle.partitions": "4"
    }  # fmt: skip
    assert {host for host, *_ in found["found"]} <= {host.name for host in WORKERS}
    assert all(has_resident for *_, has_resident in found["found"])  # the daemon is ours
    return dict(found)


def test_a_submitted_program_joins_the_session_that_spark_submit_configures() -> None:
    """The first way: an image that has Dovetail, which here is the read-only file system."""
    done = submit("--master", MASTER)
    found = answer(done)["found"]
    assert {place for _, place, _, _ in found} == {str(ROOT / "src" / "dovetail" / "__init__.py")}
    said = [line for line in done.stdout.splitlines() if line.startswith("dovetail: ")]
    submitted, ours, python = said
    assert submitted.startswith("dovetail: from spark-submit: ")
    assert f"spark.master={MASTER}" in submitted
    assert "spark.ssl.keyPassword=***" in submitted
    assert "spark.python.daemon.module=dovetail.spark.daemon" in ours
    assert python == f"dovetail: Python of executors: {sys.executable}"
    assert "not to be shown" not in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_program_cannot_leave_the_master_of_spark_submit() -> None:
    done = submit("--master", MASTER, given={"conf": {"spark.master": "local[2]"}})
    assert done.returncode == 1
    assert f"spark-submit started this program with master {MASTER}, and it asks for local[2]" in done.stdout


def test_spark_refuses_python_in_cluster_mode_of_the_standalone_manager() -> None:
    done = submit("--master", MASTER, "--deploy-mode", "cluster")
    assert done.returncode == 1
    words = "Cluster deploy mode is currently not supported for python applications on standalone clusters."
    assert words in done.stdout + done.stderr


@pytest.fixture(scope="module")
def bare() -> Path:
    """A Python on all hosts that has everything but Dovetail."""
    python = Path(os.environ["CLUSTER_BARE"])
    found = subprocess.run([python, "-c", "import numba, dovetail"], capture_output=True, text=True, check=False)
    assert "No module named 'dovetail'" in found.stderr
    return python


def test_a_zip_file_given_with_py_files(bare: Path) -> None:
    """The second way: executors have all packages but Dovetail itself."""
    zipped = DATA / "dovetail.zip"
    with zipfile.ZipFile(zipped, "w") as files:
        for file in (ROOT / "src").rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                files.write(file, file.relative_to(ROOT / "src"))
    found = answer(submit("--master", MASTER, "--py-files", str(zipped), env=dict.fromkeys(PYTHONS, str(bare))))[
        "found"
    ]
    for _, place, python, _ in found:
        assert place.endswith("/dovetail.zip/dovetail/__init__.py")
        assert python == str(bare)


PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def packed_environment(place: Path) -> Path:
    """The packages that tasks need, as a virtual environment in an archive."""
    inner = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    names = ("numpy", "numba", "llvmlite", "pyarrow", "pandas", "psutil", "protobuf", "python-dateutil")
    tops = {Path(*file.parts[:1]) for name in names for file in importlib.metadata.files(name) or []}
    at = inner.relative_to(sys.prefix)
    with tarfile.open(place, "w:gz", compresslevel=1) as archive:
        for name in ("bin/python", "bin/python3", "pyvenv.cfg"):
            archive.add(Path(sys.prefix) / name, name)
        for top in sorted(tops - {Path("..")}):
            archive.add(inner / top, at / top, filter=lambda member: None if member.name.endswith(".pyc") else member)
        archive.add(ROOT / "src" / "dovetail", at / "dovetail")
    return place


def test_a_packed_environment_given_with_archives() -> None:
    """The third way: executors have a Python, and nothing else."""
    packed = packed_environment(DATA / "environment.tar.gz")
    env = {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    found = answer(submit("--master", MASTER, "--archives", f"{packed}#environment", env=env))["found"]
    for _, place, python, _ in found:
        assert "/app-" in place
        assert "/app-" in python
