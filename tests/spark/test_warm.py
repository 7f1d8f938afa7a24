"""Workers start with compiled kernels, compilation happens once, and the daemon survives kernels that fail."""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from bench.cases import first_query
from pyspark.sql import SparkSession
from tests import compiled

from dovetail.engine import cache
from dovetail.engine.kernels import compile as compiling
from dovetail.errors import ConfigError
from dovetail.spark import daemon, warm


def _loaded_before_use(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    loaded = "dovetail.engine.rows.columns" in sys.modules
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"loaded": [loaded]})


def test_workers_are_forked_by_our_daemon(spark: SparkSession) -> None:
    row = spark.range(0, 1, 1, 1).mapInArrow(_loaded_before_use, "loaded boolean").first()
    assert row is not None
    assert row.loaded


def _frozen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "tracked": [len(gc.get_objects())]})


def test_what_the_daemon_loaded_is_not_collected_again_after_each_task(spark: SparkSession) -> None:
    row = spark.range(0, 1, 1, 1).mapInArrow(_frozen, "frozen long, tracked long").first()
    assert row is not None
    assert row.frozen > 50_000
    assert row.tracked < row.frozen / 2


def test_modules_that_a_task_imported_are_not_collected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))

    def worker(imports: str | None) -> int:
        if imports:
            monkeypatch.setitem(sys.modules, imports, sys)
        return 3

    work = daemon.sparing_collections(worker)
    assert [work(None), work(None), work("imported_by_a_task"), work(None)] == [3, 3, 3, 3]
    assert len(frozen) == 2


def test_a_worker_whose_rows_are_no_longer_read_ends_quietly() -> None:
    def worker(sock: object, authenticated: bool) -> int:
        if authenticated:
            raise BrokenPipeError
        return 0

    work = daemon.leaving_quietly(worker)
    assert (work(None, False), work(None, True)) == (0, 1)
    with pytest.raises(TypeError):
        work()


FORKED = (
    f"{Path(compiled.__file__).read_text()}\n"
    + """
import json, os, signal, sys, time
from dovetail.spark import daemon, warm
warm.prepare()
daemon._FIRST_STEP = daemon._NEXT_STEP = 0.01
daemon.load_in_steps()
while signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
    time.sleep(0.1)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
import numpy as np
before = sum(compiled_signatures().values())
from dovetail.engine.kernels.multimap import HashMultimap
table = HashMultimap()
table.insert(np.array([1, 2, 1]), np.array([10, 20, 30]))
found = table.probe(np.array([1]))[1].tolist()
print(json.dumps({"found": found, "before": before, "new": sum(compiled_signatures().values()) - before}))
"""
)


def test_a_fork_of_the_daemon_holds_every_kernel_and_compiles_none() -> None:
    shown = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    answer = json.loads(shown.stdout)
    assert answer["before"] > 0
    assert (answer["found"], answer["new"]) == ([10, 30], 0)


def test_the_query_of_the_cold_start_measurement_is_right(spark: SparkSession) -> None:
    matches, seconds = first_query.query(spark)
    assert matches == first_query.EXPECTED_MATCHES == 2 * 500 * 10 * 10
    assert seconds > 0


FAILING = """
import os, signal, time
from dovetail.spark import daemon, warm

def steps():
    os.system("echo chatter of a compiler")
    yield "one"
    raise RuntimeError("no kernels today")

warm.steps = steps
daemon._FIRST_STEP = daemon._NEXT_STEP = 0.01
daemon.load_in_steps()
while signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
    time.sleep(0.1)
os.system("echo address")
"""


def test_the_daemon_keeps_stdout_for_spark_and_outlives_a_failure() -> None:
    shown = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, check=True)
    assert shown.stdout == "address\n"
    assert "chatter of a compiler" in shown.stderr
    assert "no kernels today" in shown.stderr


WAITING = "from dovetail.spark import warm\nprint('up', flush=True)\nwarm.prepare()\nprint('prepared', flush=True)\n"


def test_one_process_prepares_while_others_wait_and_then_find_the_work_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    with warm.one_at_a_time(cache.cache_dir(), "kernels"):
        assert not cache.is_prepared()
        other = subprocess.Popen([sys.executable, "-c", WAITING], text=True, stdout=subprocess.PIPE)
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        cache.prepared_marker().touch()
    out, _ = other.communicate(timeout=60)
    assert (out, other.returncode) == ("prepared\n", 0)
    assert sorted(entry.suffix for entry in tmp_path.rglob("*.nbi")) == []  # it compiled nothing


def test_another_copy_shares_the_cache_until_a_kernel_of_it_is_edited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = cache.prepared_marker()
    shutil.copytree(cache.PACKAGE, tmp_path / "dovetail")
    monkeypatch.setattr(cache, "PACKAGE", tmp_path / "dovetail")
    assert cache.prepared_marker() == own
    for kernels in ("engine/kernels/multimap.py", "joins/online/kernels/rows.py"):
        before = cache.prepared_marker()
        (tmp_path / "dovetail" / kernels).write_text("# edited\n")
        assert cache.prepared_marker() != before


def test_kernels_of_versions_that_were_last_compiled_long_ago_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    monkeypatch.setattr(warm, "_compile", lambda first_only: None)
    place = cache.cache_dir()
    for name in ("old-1", "new-1"):
        (place / name).mkdir(parents=True)
        (place / f"prepared-{name}").touch()
    for name in ("old-1", "prepared-old-1"):
        os.utime(place / name, (0, 0))
    warm.prepare()
    assert {entry.name for entry in place.iterdir()} == {
        "new-1",
        "prepared-new-1",
        "preparing",
        cache.prepared_marker().name,
    }


TURNS = """
import sys, time
from pathlib import Path
from dovetail.engine.kernels import compile
from dovetail.spark import warm
compile.import_kernels = lambda: None
compile._WARMUPS[:] = [lambda n=n: (print(n, flush=True), time.sleep(0.05)) for n in range(20)]
compile.warm(warm._numbers(Path(sys.argv[1])))
"""


def test_processes_share_the_work_and_nothing_is_done_twice(tmp_path: Path) -> None:
    (taken := tmp_path / "taken").write_text("0")
    command = [sys.executable, "-c", TURNS, str(taken)]
    processes = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for _ in range(2)]
    ran = [sorted(map(int, process.communicate(timeout=60)[0].split())) for process in processes]
    assert sorted([*ran[0], *ran[1]]) == list(range(20))
    assert [process.returncode for process in processes] == [0, 0]


def test_default_algorithms_come_first_and_then_what_has_most_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling.import_kernels()
    ran: list[str] = []
    names = [warmup.__module__ for warmup in compiling._WARMUPS]
    recorders = [functools.partial(ran.append, name) for name in names]
    for recorder, name in zip(recorders, names, strict=True):
        recorder.__module__ = name
    monkeypatch.setattr(compiling, "_WARMUPS", recorders)
    compiling.warm()
    assert sorted(ran) == sorted(names)
    assert ran.index("dovetail.xml.kernels.scan") < ran.index("dovetail.engine.kernels.hashing")
    assert ran.index("dovetail.engine.kernels.hashing") < ran.index("dovetail.joins.interval.kernels.forward_scan")
    packages = {package: sys.modules[package] for package in {name.rpartition(".")[0] for name in names}}
    first = {f"{package}.{name}" for package, module in packages.items() for name in getattr(module, "FIRST", ())}
    assert len(first) > 10
    assert first <= set(names), "there are no kernels to compile first"
    every, ran[:] = list(ran), []
    compiling.warm(first_only=True)
    assert set(ran) == first
    assert len(ran) < len(every)
    assert ran == every[: len(ran)]


def test_a_helper_ends_with_the_process_that_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    (taken := tmp_path / "taken").write_text("0")
    helper = warm._helper(taken, False)
    assert helper.stdin is not None
    helper.stdin.close()
    assert helper.wait(timeout=60) == 1


def test_kernels_that_are_not_on_disk_are_left_to_the_worker_and_prepared_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    with warm.one_at_a_time(cache.cache_dir(), "kernels"):  # another process cannot prepare them meanwhile
        assert list(warm.steps()) == []
        started = warm._running[-1]
        assert started.poll() is None
        cache.prepared_marker().touch()
    assert started.wait(timeout=60) == 0
    assert "kernels are being compiled" in capfd.readouterr().err


@pytest.mark.parametrize("variable", ["DOVETAIL_CACHE", "DOVETAIL_CACHE_READONLY"])
def test_a_cache_that_cannot_be_written_is_said_and_not_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "file"))
    if variable == "DOVETAIL_CACHE_READONLY":
        monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
        monkeypatch.setenv(variable, "1")
    with pytest.raises(ConfigError, match=variable):
        warm.prepare()
    assert list(warm.steps()) == []


def test_background_preparation_does_not_outlive_this_process() -> None:
    code = "from dovetail.spark import warm\nprint(warm.prepare_in_background().pid, flush=True)\n"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(shown.stdout), 0)
