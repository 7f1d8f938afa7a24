"""The demonstration, from its start to its end, as it is installed and from a new copy of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.case import Params, Run, prepared
from bench.context import BenchContext


@prepared
def demo(bench: BenchContext, params: Params) -> Run:
    """`dovetail demo` as it is installed, or `make demo` in a new copy of the repository that has nothing yet."""
    home = Path(__file__).parents[2]

    def run() -> int:
        if params["set_up"] == "installed":
            command, place = [sys.executable, "-c", "from dovetail.cli.main import run; run()", "demo"], bench.fresh()
            env = dict(os.environ)
        else:
            place = bench.fresh() / "dovetail"
            subprocess.run(["git", "clone", "-q", str(home), str(place)], check=True)  # noqa: S603, S607  (our own)
            command, env = ["make", "demo"], os.environ | {"DOVETAIL_CACHE": str(bench.fresh())}
        done = subprocess.run(command, cwd=place, env=env, check=False, capture_output=True)  # noqa: S603  (as above)
        return int(done.returncode == 0)

    return run


def one(bench: BenchContext, params: Params) -> int:
    """That it succeeded."""
    return 1
