"""Spill files: every block comes back as written, counts are exact, and a disk that refuses is an error of its own."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.storage.spill import SpillFile, spill_directory
from dovetail.errors import ConfigError

BATCH = pa.record_batch({"k": pa.array([1, 2, None, 4]), "s": pa.array(["a", None, "ccc", ""])})


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def random_batches(seed: int, n: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    for _ in range(n):
        size = int(rng.integers(0, 50))
        ints = pa.array(rng.integers(0, 9, size), mask=rng.random(size) < 0.2)
        text = pa.array(["x" * int(n) for n in rng.integers(0, 30, size)], pa.string())
        nested = pa.array([[int(v)] * int(v % 3) for v in rng.integers(0, 9, size)], pa.list_(pa.int64()))
        words = pa.array(np.array(["red", "green", "blue"])[rng.integers(0, 3, size)], pa.string())
        whole = pa.record_batch({"i": ints, "t": text, "n": nested, "d": words})
        yield whole.slice(int(rng.integers(0, size + 1)))


@pytest.mark.parametrize("dictionary", [False, True])
def test_blocks_come_back_in_any_order_while_appending(tmp_path: Path, dictionary: bool) -> None:
    rng = np.random.default_rng(5)
    batches = list(random_batches(1, 40))
    if dictionary:
        at = batches[0].schema.get_field_index("d")
        batches = [b.set_column(at, "d", b.column("d").dictionary_encode()) for b in batches]
    with closing(SpillFile(batches[0].schema, tmp_path)) as spill:
        reads = 0
        for i, batch in enumerate(batches):
            assert spill.append(batch) == i
            block = int(rng.integers(0, i + 1))
            assert spill.read(block).equals(batches[block])
            reads += 1
        assert spill.rows == sum(b.num_rows for b in batches)
        assert (spill.blocks, spill.blocks_written, spill.blocks_read) == (40, 40, reads)
        assert [b.to_pydict() for b in spill.replay()] == [b.to_pydict() for b in batches]


def test_counts_are_those_of_the_disk(tmp_path: Path) -> None:
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        sizes = [BATCH.serialize().size, BATCH.slice(1).serialize().size]
        spill.append(BATCH)
        spill.append(BATCH.slice(1))
        (file,) = files_in(tmp_path)
        assert file.stat().st_size == spill.bytes_written == sum(sizes)
        assert [spill.size_of(0), spill.size_of(1)] == sizes
        spill.read(1)
        assert (spill.bytes_read, spill.blocks_read) == (sizes[1], 1)
        list(spill.replay())
        assert (spill.bytes_read, spill.blocks_read) == (sizes[0] + 2 * sizes[1], 3)


def test_a_slice_does_not_drag_its_parent_to_disk(tmp_path: Path) -> None:
    wide = pa.record_batch({"k": pa.array(np.arange(100_000))})
    with closing(SpillFile(wide.schema, tmp_path)) as spill:
        spill.append(wide.slice(777, 3))
        assert spill.bytes_written < 1000
        assert spill.read(0).to_pydict() == {"k": [777, 778, 779]}


def test_replay_ignores_later_blocks(tmp_path: Path) -> None:
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        spill.append(BATCH.slice(1, 1))
        spill.append(BATCH.slice(2, 1))
        replay = spill.replay()
        spill.append(BATCH)
        assert [b.num_rows for b in replay] == [1, 1]


def test_nothing_touches_the_disk_before_the_first_block(tmp_path: Path) -> None:
    target = tmp_path / "later"
    with closing(SpillFile(BATCH.schema, target)) as spill:
        assert list(spill.replay()) == []
        assert not target.exists()


def test_close_removes_everything_and_is_final(tmp_path: Path) -> None:
    spill, other = SpillFile(BATCH.schema, tmp_path), SpillFile(BATCH.schema, tmp_path)
    spill.append(BATCH)
    other.append(BATCH)
    assert len({file.parent for file in files_in(tmp_path)}) == 1
    spill.close()
    spill.close()
    assert len(files_in(tmp_path)) == 1
    other.close()
    assert list(tmp_path.iterdir()) == []
    assert spill.rows == 4
    with pytest.raises(ValueError, match="closed"):
        spill.append(BATCH)
    with pytest.raises(ValueError, match="closed"):
        spill.read(0)


def test_an_error_inside_the_block_removes_the_file(tmp_path: Path) -> None:
    def failing() -> None:
        with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
            spill.append(BATCH)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_misuse_is_refused(tmp_path: Path) -> None:
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        spill.append(BATCH)
        for block in (-1, 1):
            with pytest.raises(IndexError, match="1 blocks"):
                spill.read(block)
        with pytest.raises(ValueError, match="the batch has"):
            spill.append(pa.record_batch({"other": [1]}))
        assert spill.blocks == 1


def test_a_directory_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    spill = SpillFile(BATCH.schema, blocker / "below")
    with pytest.raises(ConfigError, match=r"cannot spill to .*below.*spark\.local\.dir"):
        spill.append(BATCH)


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "no room to spill"), (errno.EDQUOT, "no room to spill"), (errno.EMFILE, "ulimit -n")],
)
def test_errors_of_the_disk_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    spill = SpillFile(BATCH.schema, tmp_path)
    spill.append(BATCH)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(ConfigError, match=message):
        spill.append(BATCH)
    assert list(tmp_path.iterdir()) == []


_TOO_LARGE = """
import sys
from pathlib import Path
import pyarrow as pa
from dovetail.engine.storage.spill import SpillFile
from dovetail.errors import ConfigError

batch = pa.record_batch({"k": list(range(1000))})
spill = SpillFile(batch.schema, Path(sys.argv[1]))
try:
    for _ in range(100):
        spill.append(batch)
except ConfigError as error:
    print(spill.blocks, error)
    print(list(Path(sys.argv[1]).iterdir()))
"""


def test_the_operating_system_stops_the_file_midway(tmp_path: Path) -> None:
    limit = 100_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = subprocess.run(
        [sys.executable, "-c", _TOO_LARGE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
    )
    first, rest = run.stdout.splitlines()
    assert first.startswith("12 no room to spill")
    assert rest == "[]"


def test_a_truncated_file_is_noticed(tmp_path: Path) -> None:
    with closing(SpillFile(BATCH.schema, tmp_path)) as spill:
        spill.append(BATCH)
        (file,) = files_in(tmp_path)
        os.truncate(file, 10)
        with pytest.raises(ConfigError, match="ends at byte 10"):
            spill.read(0)


def test_directory_comes_from_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert spill_directory() == tmp_path
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("LOCAL_DIRS", f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    assert spill_directory() == tmp_path / "b"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "c"))
    assert spill_directory() == tmp_path / "c"
    with closing(SpillFile(BATCH.schema)) as spill:
        spill.append(BATCH)
        assert len(files_in(tmp_path / "c")) == 1
