"""Contestants that do not end as they should: run as a module with NAME MIB DIRECTORY NOTES.

Each notes its process and a temporary file that it leaves; then one dies, the others sleep.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

name, _, _, notes = sys.argv[1:]
_, left = tempfile.mkstemp()
(Path(notes) / name).write_text(f"{os.getpid()} {left}")
if name == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
