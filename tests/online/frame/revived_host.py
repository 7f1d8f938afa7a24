"""Starts the host of online joins and forks two workers, of which one kills the host between two calls.

Run as a script; each worker writes a line of JSON: for each of its calls whether the join was rebuilt, and the host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from tests.online.frame.test_online_hosted import asked, calls, drained, join_of

from dovetail.joins.online.events import Piece, pack_events
from dovetail.spark.hosts.resident.process import start


def processes() -> list[tuple[int, int, int]]:
    """All processes, with their parents and the leaders of their sessions."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,sid="], capture_output=True, text=True, check=True)
    lines = [line.split() for line in listed.stdout.splitlines()]
    return [(int(pid), int(parent), int(session)) for pid, parent, session in lines]


def host_pid() -> int:
    """The host of the process that has forked this one: its child that leads a session."""
    return next(pid for pid, parent, session in processes() if parent == os.getppid() and pid == session)


def work(kills: bool) -> list[tuple[bool, int]]:
    """Six calls of a bucket of its own; before the third one the host dies."""
    join, log, found = join_of("diner"), list[Piece](), list[tuple[bool, int]]()
    for number, events in enumerate(list(calls(1))[:6]):
        if number == 2:
            time.sleep(0.5)
            if kills:
                os.kill(host_pid(), signal.SIGKILL)
            time.sleep(0.5)
        call = asked(f"{kills}", f"n{number}", f"n{number + 1}", join, events, lambda: iter(log))
        found.append((drained(call)[1]["replayed"], host_pid()))
        log.append(Piece(pack_events(events), settled=False))
    return found


def main() -> None:
    start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as Spark's daemon does
    for kills in (True, False):
        if os.fork() == 0:
            sys.stdout.write(json.dumps(work(kills)) + "\n")
            sys.stdout.flush()
            os._exit(0)
    sys.stdin.read()


if __name__ == "__main__":
    main()
