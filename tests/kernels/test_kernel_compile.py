"""Compilation, the on-disk cache and warm-up, each in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import compiled

from dovetail.engine.cache import cache_dir
from dovetail.engine.kernels import compile as compiling
from dovetail.engine.kernels import kernel, register_warmup, warm

SUM = """
import json, sys
import numpy as np
from dovetail.engine.cache import read_only
from dovetail.engine.kernels.compile import kernel

@kernel
def total(values):
    result = values[0] * 0
    for value in values:
        result += value
    return result

if __name__ == "__main__":
    found = [float(total(np.arange(10).astype(dtype))) for dtype in sys.argv[1:]]
    hits = sum(total.stats.cache_hits.values())
    print(json.dumps({"found": found, "hits": hits, "misses": sum(total.stats.cache_misses.values())}))
"""


def started(script: Path, cache: Path, *arguments: str, **more: str) -> subprocess.Popen:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DOVETAIL", "NUMBA"))}
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(script), *arguments],
        env={**inherited, "DOVETAIL_CACHE": str(cache), **more},
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


def files(cache: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "summing.py"
    path.write_text(SUM)
    return path


@pytest.mark.sampled(3)
def test_an_edit_of_the_source_is_noticed_even_at_the_same_time_and_size(script, tmp_path):
    cache = tmp_path / "cache"
    before = script.stat()
    assert answer(started(script, cache, "int64"))["found"] == [45.0]
    script.write_text(SUM.replace("result += value", "result -= value"))
    os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert answer(started(script, cache, "int64")) == {"found": [-45.0], "hits": 0, "misses": 1}


@pytest.mark.sampled(3)
def test_a_copy_of_the_source_in_another_place_finds_what_was_compiled(script, tmp_path):
    cache = tmp_path / "cache"
    answer(started(script, cache, "int64"))
    copy = tmp_path / "elsewhere" / script.name
    copy.parent.mkdir()
    copy.write_text(SUM)
    assert answer(started(copy, cache, "int64")) == {"found": [45.0], "hits": 1, "misses": 0}


@pytest.mark.sampled(3)
def test_a_read_only_process_loads_but_writes_nothing(script, tmp_path):
    cache = tmp_path / "cache"
    assert answer(started(script, cache, "int64", DOVETAIL_CACHE_READONLY="1"))["misses"] == 1
    assert not cache.exists()
    answer(started(script, cache, "int64"))
    written = files(cache)
    found = answer(started(script, cache, "int64", "float32", DOVETAIL_CACHE_READONLY="1"))
    assert found == {"found": [45.0, 45.0], "hits": 1, "misses": 1}
    assert files(cache) == written


@pytest.mark.slow
def test_several_writers_at_once_leave_a_cache_that_is_right(script, tmp_path):
    cache = tmp_path / "cache"
    types = ("int64", "float64", "int32", "float32")
    for process in [started(script, cache, dtype) for dtype in types]:
        assert answer(process)["found"] == [45.0]
    assert answer(started(script, cache, *types)) == {"found": [45.0] * 4, "hits": 4, "misses": 0}


@pytest.mark.sampled(3)
def test_a_damaged_cache_is_compiled_anew_and_mended(script, tmp_path):
    cache = tmp_path / "cache"
    answer(started(script, cache, "int64"))
    for path in [*cache.rglob("*.nbi"), *cache.rglob("*.nbc")]:
        path.write_bytes(path.read_bytes()[:20])
    assert answer(started(script, cache, "int64")) == {"found": [45.0], "hits": 0, "misses": 1}
    assert answer(started(script, cache, "int64"))["hits"] == 1


def test_a_place_that_cannot_be_written_is_done_without(script, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    assert answer(started(script, blocked / "cache", "int64"))["found"] == [45.0]


def test_the_stamp_follows_imports_at_any_distance(monkeypatch):
    texts = {
        "dovetail.engine.kernels.far": "LIMIT = 1",
        "dovetail.engine.kernels.near": "from dovetail.engine.kernels.far import LIMIT",
    }
    monkeypatch.setattr(compiling, "_module_source", texts.get)
    monkeypatch.setattr(compiling, "_sources", compiling._sources.__wrapped__)
    stamp = compiling.source_stamp.__wrapped__
    source = "from dovetail.engine.kernels import near\n"
    first = stamp(source)
    assert first == stamp(source)
    texts["dovetail.engine.kernels.far"] = "LIMIT = 2"
    assert stamp(source) != first
    assert stamp(source + "#") != stamp(source)


def test_the_directory_is_the_users_choice_and_names_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    assert cache_dir().parent == tmp_path
    assert f"numpy-{np.__version__}" in cache_dir().name
    monkeypatch.delenv("DOVETAIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    if sys.platform == "linux":
        assert cache_dir().parent == tmp_path / "home" / "dovetail"


def test_importing_the_package_settles_numbas_directory(tmp_path):
    script = tmp_path / "settle.py"
    script.write_text(
        "import json, dovetail.engine.kernels, numba\n"
        "print(json.dumps([numba.config.CACHE_DIR, str(dovetail.engine.cache.cache_dir())]))"
    )
    ours, expected = answer(started(script, tmp_path / "c"))
    assert ours == expected
    assert answer(started(script, tmp_path / "c", NUMBA_CACHE_DIR="elsewhere"))[0] == "elsewhere"


WARM_THEN_WORK = (
    f"{Path(compiled.__file__).read_text()}\n"
    + """
import json
import numpy as np
from dovetail.engine.kernels.compile import cold_kernels, warm

n_warm = warm()
before, cold = compiled_signatures(), cold_kernels()

from dovetail.engine.kernels.arrays import NO_BYTES
from dovetail.engine.kernels.gather import gather_bits, gather_fixed, gather_validity
from dovetail.engine.kernels.gather import gather_bytes, gather_fixed_lists, gather_lists
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.engine.kernels.interning import ByteInterner, PairInterner
from dovetail.engine.kernels.multimap import HashMultimap

plain = np.arange(300)
fixed = np.arange(300); fixed.flags.writeable = False
unaligned = np.arange(301).view(np.uint8)[1:2401].view(np.int64)
for keys in (plain, fixed, plain[::-1], plain[::3], plain.astype(np.int32), plain.astype(np.uint8), unaligned):
    pairs = HashMultimap()
    slots = pairs.insert(keys, keys)
    pairs.probe(keys), list(pairs.probe_chunks(keys, 7)), pairs.delete_slots(slots[::2])
    folded(keys, keys), PairInterner().intern(keys, keys), PairInterner().find(keys, keys, keys > 3)
rows = np.array([3, 1, -1, 2])
data = np.arange(2000).astype(np.uint8)
for memory in (data, data[1:], data.view(np.int64), data.reshape(-1, 8)):
    for width in (1, 2, 3, 4, 8, 12, 16, 24, 32):
        gather_fixed(memory, width, rows)
    gather_bits(memory, 3, rows), gather_validity(memory, 1, rows, 9), gather_validity(NO_BYTES, 0, rows, 9)
    for dtype in (np.int32, np.int64):
        for offsets in (np.arange(10, dtype=dtype), np.arange(20, dtype=dtype)[::2]):
            gather_bytes(offsets, memory, rows)
            gather_lists(offsets, rows), gather_fixed_lists(3, rows, 9)
            strings = ByteInterner()
            strings.intern(offsets, memory), text_hashes(offsets, memory.reshape(-1).view(np.uint8))
            strings.find(offsets, memory, np.ones(len(offsets) - 1, bool))
after = compiled_signatures()
print(json.dumps({"n": n_warm, "all": len(before), "cold": cold, "new": [k for k in before if before[k] != after[k]]}))
"""
)


def test_after_warming_nothing_is_cold_and_no_work_compiles(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(WARM_THEN_WORK)
    found = answer(started(script, cache_dir().parent))
    assert found["cold"] == []
    assert found["n"] == found["all"] > 60
    assert found["new"] == []


def test_warming_runs_what_was_registered_and_counts_what_is_ready(monkeypatch, tmp_path):
    compiling.import_kernels()
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))  # an earlier run may have left the kernel in the usual place
    monkeypatch.setattr(compiling, "_WARMUPS", [])
    monkeypatch.setattr(compiling, "_KERNELS", [])
    calls = []

    @kernel
    def double(value: int) -> int:
        return 2 * value

    assert compiling.cold_kernels() == [f"{__name__}.{double.py_func.__qualname__}"]
    register_warmup(lambda: calls.append(double(21)))
    assert warm() == 1
    assert calls == [42]
    assert list(compiled.compiled_signatures().values()) == [1]
