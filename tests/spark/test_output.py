"""The output of a JVM: in a log, without the lines of every healthy run, errors counted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dovetail.spark.launch import Output

BROKEN_PIPE = """\
Traceback (most recent call last):
  File "pyspark/daemon.py", line 264, in manager
  File "pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe"""


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("26/11/16 23:19:58 WARN Utils: Your hostname resolves to a loopback address", 0),
        (BROKEN_PIPE, 0),
        (BROKEN_PIPE.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: of the user"), 1),
        ("26/11/16 23:22:04 ERROR TorrentBroadcast: Store broadcast broadcast_30 fail, remove all pieces", 0),
        ("26/11/16 23:22:04 ERROR Executor: Exception in task 0.0 in stage 3.0", 1),
    ],
)
def test_errors_that_no_healthy_run_prints_are_counted(text: str, errors: int) -> None:
    output = Output()
    for line in text.splitlines():
        output.take(line)
    assert output.errors == errors
    assert output.path.read_text() == text + "\n"
    output.remove()
    output.take("later")
    assert not output.path.exists()


def test_a_process_is_read_to_its_end() -> None:
    output = Output()
    code = "print('Starting Streaming TransformWithStateInPandas Python worker.\\n\\nmine')"
    with output.captured() as descriptor:
        subprocess.run([sys.executable, "-c", code], stdout=descriptor, check=True)
    assert output.text() == "mine"
    output.remove()


def test_traces_of_two_processes_at_once_are_no_errors_if_each_is_healthy() -> None:
    output = Output()
    trace, frame, end = (
        "Traceback (most recent call last):",
        '  File "daemon.py", line 95',
        "BrokenPipeError: [Errno 32]",
    )
    for line in (trace, trace, frame, end, frame, end):
        output.take(line)
    assert output.errors == 0
    for line in (trace, trace, frame, "ValueError: x", frame, end):
        output.take(line)
    assert output.errors == 1
    output.remove()
