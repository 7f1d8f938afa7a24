"""Contestants that do not end as they should.

Each notes its process and a temporary file that it leaves; then one dies, the others sleep.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path


def stubborn(name: str, mib: int, place: str, notes: str) -> int:
    _, left = tempfile.mkstemp()
    (Path(notes) / name).write_text(f"{os.getpid()} {left}")
    if name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
    return 0
