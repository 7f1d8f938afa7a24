"""No spill file outlives its process, however that ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.engine.storage.spill import SpillFile, sweep

BATCH = pa.record_batch({"k": [1, 2, 3]})

_SPILL_AND = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from dovetail.engine.storage.spill import SpillFile

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which tests may run, has it ignored
batch = pa.record_batch({"k": [1, 2, 3]})
spill = SpillFile(batch.schema, Path(sys.argv[1]))
spill.append(batch)
print("ready", flush=True)
"""


def run_and(ending: str, directory: Path) -> int:
    return subprocess.run([sys.executable, "-c", _SPILL_AND + ending, str(directory)], check=False).returncode


def test_garbage_takes_its_file_along(tmp_path: Path) -> None:
    spill = SpillFile(BATCH.schema, tmp_path)
    spill.append(BATCH)
    del spill
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise SystemExit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
    ],
)
def test_files_go_with_the_process(tmp_path: Path, ending: str, code: int) -> None:
    assert run_and(ending, tmp_path) == code
    assert list(tmp_path.iterdir()) == []


def test_terminated_from_outside(tmp_path: Path) -> None:
    ending = "signal.pause()"
    with subprocess.Popen([sys.executable, "-c", _SPILL_AND + ending, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        (directory,) = tmp_path.iterdir()
        assert str(child.pid) in directory.name
        assert sweep(tmp_path) == 0, "a living process keeps its files"
        child.terminate()
    assert child.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"])
def test_what_a_killed_process_left_goes_with_the_next_spill(tmp_path: Path, ending: str) -> None:
    run_and(ending, tmp_path)
    (left_over,) = tmp_path.iterdir()
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        spill.append(BATCH)
        assert not left_over.exists()
    assert list(tmp_path.iterdir()) == []


def test_sweep_counts_what_it_removes_and_touches_nothing_else(tmp_path: Path) -> None:
    run_and("os._exit(0)", tmp_path)
    run_and("os._exit(0)", tmp_path)
    (tmp_path / "somebody's").mkdir()
    assert sweep(tmp_path) == 1, "the second run swept what the first one left"
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's"]
    assert sweep(tmp_path) == 0


def test_handlers_of_the_program_are_left_alone(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
""" + _SPILL_AND.replace("import os, signal, sys\n", "")
    ending = "os.kill(os.getpid(), signal.SIGTERM)"
    run = subprocess.run([sys.executable, "-c", "import os, signal, sys" + code + ending, str(tmp_path)], check=False)
    assert run.returncode == 9
    assert list(tmp_path.iterdir()) == []


def test_default_handlers_come_back_after_the_last_file(tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        spill.append(BATCH)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_forked_child_leaves_its_parents_files(tmp_path: Path) -> None:
    ending = """
child = os.fork()
if child == 0:
    spill.close()
    own = SpillFile(batch.schema, Path(sys.argv[1]))
    own.append(batch)
    assert len(list(Path(sys.argv[1]).iterdir())) == 2
    own.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert spill.read(0).equals(batch)
assert len(list(Path(sys.argv[1]).iterdir())) == 1
"""
    assert run_and(ending, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_many_processes_and_threads_in_one_place(tmp_path: Path) -> None:
    ending = "\nfor _ in range(30):\n    spill.close(); spill = SpillFile(batch.schema, Path(sys.argv[1]))\n"
    ending += "    spill.append(batch); assert spill.read(0).equals(batch)\n"
    command = [sys.executable, "-c", _SPILL_AND + ending, str(tmp_path)]
    children = [subprocess.Popen(command) for _ in range(3)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
                    spill.append(BATCH)
                    assert spill.read(0).equals(BATCH)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0, 0]
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_process_id_is_in_the_name(tmp_path: Path) -> None:
    with closing(SpillFile(BATCH.schema, tmp_path, name="left")) as spill:
        spill.append(BATCH)
        (directory,) = tmp_path.iterdir()
        assert f"-{os.getpid()}-" in directory.name
        assert [path.name.split("-")[0] for path in directory.iterdir()] == ["left"]
