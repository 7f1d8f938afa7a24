"""Kernels compiled for a portable processor: hosts of other kinds take them from an image, and compile nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.engine import cache, processor

USE = """
import json, sys
if sys.argv[1:]:
    import numba  # a program may have imported it
from dovetail.engine.kernels.compile import _KERNELS
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.cache import is_prepared
import numba, numpy as np
table = HashMultimap()
table.insert(np.array([1, 2, 1]), np.array([10, 20, 30]))
stats = [kernel.stats for kernel in _KERNELS]
print(json.dumps({
    "found": table.probe(np.array([1]))[1].tolist(), "for": numba.config.CPU_NAME, "prepared": is_prepared(),
    "loaded": sum(sum(each.cache_hits.values()) for each in stats),
    "compiled": sum(sum(each.cache_misses.values()) for each in stats),
}))
"""
IMAGE = f"""
from dovetail.engine.cache import prepared_marker
from dovetail.engine.processor import compile_for_portable
compile_for_portable()
{USE}
prepared_marker().touch()
"""


def ran(script: str, place: Path, *arguments: str, **env: str) -> dict[str, Any]:
    known = {name: value for name, value in os.environ.items() if name not in (processor.NAME, processor.FEATURES)}
    known.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False,
        env={**known, "DOVETAIL_CACHE": str(place), **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_host_without_kernels_of_its_own_takes_portable_ones_of_a_read_only_image(tmp_path: Path) -> None:
    image = ran(IMAGE, tmp_path)
    assert (image["for"], image["loaded"], image["found"]) == (processor.portable(), 0, [10, 30])
    assert image["compiled"] > 0
    for arguments in ([], ["numba first"]):
        host = ran(USE, tmp_path, *arguments, DOVETAIL_CACHE_READONLY="1")
        assert (host["for"], host["compiled"], host["found"]) == (processor.portable(), 0, [10, 30])
        assert host["loaded"] > 0
        assert host["prepared"]


def test_kernels_of_the_host_itself_and_settings_of_the_user_come_first(tmp_path: Path) -> None:
    ran(IMAGE, tmp_path)
    chosen = ran(USE, tmp_path, NUMBA_CPU_NAME="generic", DOVETAIL_CACHE_READONLY="1")
    assert (chosen["for"], chosen["prepared"], chosen["found"]) == ("generic", False, [10, 30])
    assert chosen["compiled"] > 0
    marker = next(tmp_path.rglob("prepared-*"))
    marker.with_name(f"{marker.name.removesuffix(processor.portable())}{processor.host()}").touch()
    own = ran(USE, tmp_path, DOVETAIL_CACHE_READONLY="1")
    assert (own["for"], own["prepared"], own["found"]) == (None, True, [10, 30])


def cpuinfo(monkeypatch: pytest.MonkeyPatch, flags: str, model: int = 1) -> None:
    text = f"processor\t: 0\nvendor_id\t: Some\nmodel\t\t: {model}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
    monkeypatch.setattr(processor, "_cpuinfo", lambda: text)
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    processor.host.cache_clear()


MODERN = "fpu sse4_2 abm avx avx2 bmi1 bmi2 f16c fma movbe"


def test_a_host_that_cannot_run_portable_kernels_does_not_take_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    for name in (processor.NAME, processor.FEATURES):
        monkeypatch.delenv(name, raising=False)
    cache.cache_dir().mkdir(parents=True)
    cpuinfo(monkeypatch, MODERN)
    cache.prepared_marker("x86-64-v3").touch()
    assert cache.takes_portable()
    assert cache.is_prepared()
    cpuinfo(monkeypatch, "fpu sse4_2 avx")
    assert not cache.takes_portable()
    assert not cache.is_prepared()
    processor.host.cache_clear()


def test_processors_that_kernels_differ_for_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for flags, model in ((MODERN, 1), (f"{MODERN} avx512f", 1), (MODERN, 2), (f"{MODERN} some_mitigation", 1)):
        cpuinfo(monkeypatch, flags, model)
        names.append(processor.target({}))
    assert names[0] == names[3]
    assert len(set(names)) == 3
    assert processor.target({"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}) == "x86-64-v3"
    assert processor.target({"NUMBA_CPU_NAME": "x86-64-v3"}) not in (*names, "x86-64-v3")  # with this host's features
    processor.host.cache_clear()
