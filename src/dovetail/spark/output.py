"""Captures what the JVM and its Python workers print, so that a command's terminal shows the command's own lines only.

Lines go to a log file, but for those that Spark prints in every healthy run. Lines that tell of an error are counted:
such a log is worth a look even if the run ended well.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

_FILE_BYTES = 8 << 20
_TAIL_LINES = 400
_CHATTER = re.compile(r"(Starting )?Streaming \w+ Python worker|\s*$")
"""Printed by each worker that a query with state starts."""
_LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (ERROR|FATAL) ")
_TRACE = "Traceback (most recent call last):"
# A task or source that is no longer wanted, as after LIMIT or at the end of a stream, is cut off where it stands.
_HEALTHY = re.compile(
    r"(BrokenPipeError|ConnectionResetError)\b|.* ERROR (TorrentBroadcast: Store broadcast \S+ fail"
    r"|Utils: Aborting task|FileFormatWriter: (Aborting job|Job: job_))"
)


class Output:
    """The output of a JVM: its log file, how many errors it tells of, and its last lines."""

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
        """A descriptor for the output of a process that is started in the block; its lines are taken until it ends."""
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
        """One more line."""
        if _CHATTER.match(line):
            return
        self._tail.append(line)
        file = self._file
        if file is not None:
            file.emit(logging.LogRecord("spark", logging.INFO, "", 0, line, None, None))
        if line == _TRACE:  # perhaps of another process, in the middle of the one before
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
        """Remove the log; what comes later is read and let go."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink(missing_ok=True)
