"""Files of a collection: found in the order of their names, and packed so that tasks end together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.xml.execute.scan_task import packed_apart
from dovetail.xml.scan.files import Collection, File, _below, local_paths


def test_no_task_gets_more_than_its_share_and_one_file():
    source = random.Random(7)  # noqa: S311  (sizes, no secrets)
    for _ in range(300):
        sizes = [source.choice((0, 1, 10, 1000, source.randint(1, 5000))) for _ in range(source.randint(1, 60))]
        files = tuple(File(number, f"{number}.xml", size) for number, size in enumerate(sizes))
        partitions = source.randint(1, 8)
        runs = Collection("c", files).packed(partitions)
        assert [file for run in runs for file in run] == list(files)
        assert all(runs)
        share, slack = sum(max(1, size) for size in sizes) / partitions, max(*sizes, 1)
        assert max(sum(max(1, file.size) for file in run) for run in runs) <= share + slack


def test_files_below_a_directory(tmp_path: Path):
    (tmp_path / "b").mkdir()
    for name in ("c.xml", "a.xml.gz", "b/z.xml", "b/a.xml", "b/notes.txt", "d.XML"):
        (tmp_path / name).write_text("<r/>")
    (tmp_path / "link.xml").symlink_to(tmp_path / "c.xml")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    found = local_paths(str(tmp_path)) or []
    names = [str(Path(path).relative_to(tmp_path.resolve())) for path, _ in found]
    assert names == ["a.xml.gz", "b/a.xml", "b/z.xml", "c.xml", "link.xml"]
    assert {size for _, size in found} == {4}
    with pytest.raises(ConfigError, match="cannot be listed"):
        list(_below(str(tmp_path / "nowhere")))


def test_the_lists_of_files_that_tasks_get_are_small():
    files = tuple(File(number, f"/data/weather/sensors/GHCND_{number:06}.xml", 430_000) for number in range(20_000))
    packed = packed_apart(Collection("c", files).packed(8))
    assert len(packed) == 8
    assert sum(map(len, packed)) < 10 * len(files)
