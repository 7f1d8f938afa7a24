"""`python -m dovetail.calibrate`: measures this machine at its first use, if it has no profile yet; prints nothing.

A session starts it in the background. It measures pages and kernels, and not Spark, in some seconds of one processor.
"""

from __future__ import annotations

import contextlib
import os

from dovetail.calibrate.measure import calibrate
from dovetail.calibrate.unit_cost import FIRST_USE
from dovetail.engine.profile import profile_path
from dovetail.errors import ConfigError


def main() -> None:
    """Keep a profile of quick measurements; one that was kept in the meantime stays."""
    with contextlib.suppress(ConfigError):  # a directory that cannot be written: typical figures stay
        done = calibrate(FIRST_USE, with_spark=False)
        if not profile_path().exists():
            done.profile.save()


if __name__ == "__main__":
    os.nice(10)  # a running query has priority
    main()
