"""Writes directories of Parquet or CSV files, every micro-batch exactly once.

Files are written to a staging directory and then renamed into the target under names with the checkpoint's id and the
number of their micro-batch. A micro-batch that is repeated after a crash first removes the files of its first attempt.
Spark repeats the newest micro-batch only, so all earlier ones are final. Readers need no log, unlike with Spark's own
file sink.

A mark file in the directory holds the ids under which the sink wrote. By these ids and the file names the sink knows
its own files; it removes no others. Only a batch with mode = "overwrite" in the pipeline replaces other files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import ConfigError, DataError
from dovetail.pipeline.checkpoint import locked
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.sinks.hadoop import Files
from dovetail.spark.places import local_place

_OURS = "_dovetail"
_NAMED = re.compile(r"([0-9a-f]{8})-(?:\d{9}|batch)-")


@dataclass(slots=True)
class FileSink:
    """The directory of one sink of one pipeline. `owner` is the sink's id in the checkpoint."""

    files: Files
    step: Step
    place: str
    label: str
    owner: str
    streams: bool
    fresh: bool = True
    """Nothing was written in this run yet, so the next micro-batch may be a repeated one."""

    @classmethod
    def of(cls, spark: SparkSession, step: Step, label: str, owner: str, streams: bool) -> FileSink:
        """The sink of a step; `label` is the name of pipeline and sink together."""
        place = step.values["path"].rstrip("/")
        return cls(Files(spark, place), step, place, label, owner, streams)

    def check(self) -> None:
        """Raise an error if rows in the directory would be repeated, or mixed with the rows of this sink.

        A run with a new checkpoint would write all rows again beside those of the former checkpoint. A mode that
        replaces the former result needs the directory for itself.
        """
        owners = self._owners()
        if self._mode == "error" and any(self.files.files(self.place)):
            raise DataError(
                f"path: {self.place} has files, and mode is 'error'; remove them, or use 'overwrite' or 'append'.",
                argument="path",
            )
        if self.streams and self._mode == "append" and owners[:1] != [self.owner] and any(self._mine(owners)):
            raise ConfigError(
                f"path: {self.place} has rows that this sink wrote with another checkpoint; they would be there twice. "
                f"Give the former checkpoint, or another path, or remove the directory.",
                argument="path",
            )
        lost = self._unmarked() if self.streams and self._mode == "append" and not owners else None
        if lost is not None:
            raise ConfigError(
                f"path: {self.place} has rows of a sink whose mark in {_OURS} is gone, such as {lost!r}; if this one "
                f"wrote them, they would be there twice. Give another path, or move them away."
            )
        if self._replaces_its_own and not owners:
            self._check_is_empty()

    def _unmarked(self) -> str | None:
        """A file with an id that no mark file has; None if there is none."""
        home = f"{self.place}/{_OURS}"
        marks = [self.files.text(f"{home}/{name}") or "" for name in self.files.files(home) if "/" not in name]
        known = [self.owner, *" ".join(marks).split()]
        named = (name for name in self.files.files(self.place) if _NAMED.match(_file(name)))
        return next((name for name in named if not _is_of(name, known)), None)

    def _check_is_empty(self) -> None:
        found = next(self.files.files(self.place), None)
        if found is None:
            return
        told = f"path: {self.place} has files that this sink did not write, such as {found!r}"
        if self.streams:
            raise ConfigError(
                f"{told}; a complete answer is alone in its directory. Give another path, or move them.",
                argument="path",
            )
        raise DataError(
            f'{told}; give mode = "overwrite" to replace them, mode = "append" to keep them, or another path.'
        )

    def claim(self) -> None:
        """Mark the directory as this checkpoint's; raises the errors of `check`."""
        self.check()
        owners = self._owners()
        self._clear([self.owner, *owners])
        self._note(owners)

    def write(self, rows: DataFrame, number: int) -> int:
        """Write a micro-batch; returns the number of files."""
        prefix = f"{self.owner[:8]}-{number:09d}"
        if self.fresh and self._mode != "complete":
            self._check_is_newest(number)
        staged = self._staged(rows, prefix)
        if self._mode == "complete":
            return len(self._exchanged(staged, prefix))
        if self.fresh:
            self._remove(lambda name: _file(name).startswith(f"{prefix}-"))
            self.fresh = False
        return len(self._moved(staged, prefix))

    def _check_is_newest(self, number: int) -> None:
        """ConfigError if the directory has later micro-batches: their rows would be repeated under other numbers."""
        mine = [name for name in map(_file, self._mine([self.owner])) if "-batch-" not in name]
        newest = max((int(name.split("-")[1]) for name in mine), default=number)
        if newest > number:
            raise ConfigError(
                f"path: {self.place} has micro-batches of this checkpoint up to {newest}, and the checkpoint is at "
                f"{number}: it was replaced by an older copy. Put the newest back, or give another path and checkpoint."
            )

    def _exchanged(self, staged: str, prefix: str) -> set[str]:
        """Replace all files of this sink: new files are moved in before the former ones are removed."""
        owners = self._owners()
        moved = self._moved(staged, f"{prefix}-{uuid.uuid4().hex[:8]}")
        self._remove(lambda name: name not in moved and _is_of(name, owners))
        if owners != [self.owner]:
            self._note(())
        return moved

    def write_batch(self, rows: DataFrame) -> int:
        """Write a batch DataFrame; the mode decides whether the result of an earlier run is replaced, kept or an error.

        With mode = "overwrite" in the pipeline, other files of the table are removed as well: those of the directory
        itself and of partition folders such as day=1, not those of other folders.
        """
        self.check()
        owners = self._owners()
        self._clear([self.owner, *owners])
        self._note(owners)
        prefix = f"{self.owner[:8]}-batch"
        staged = self._staged(rows, prefix)
        # Marks a run that renames: files that a killed run had moved in are removed by the next one.
        begun = self.files.text(f"{self._mark}.begun")
        self.files.put(f"{self._mark}.begun", prefix)
        if begun:
            self._remove(lambda name: _file(name).startswith(f"{begun}-"))
        if self._mode != "overwrite":
            moved = self._moved(staged, prefix)
        else:
            moved = self._exchanged(staged, prefix)
            if not self._replaces_its_own:
                self._remove(lambda name: name not in moved and _is_of_table(name))
        self.files.delete(f"{self._mark}.begun")
        return len(moved)

    @property
    def _mark(self) -> str:
        return f"{self.place}/{_OURS}/{self.label}"

    @property
    def _mode(self) -> str:
        return str(self.step.values.get("mode", "append" if self.streams else "overwrite"))

    @property
    def _replaces_its_own(self) -> bool:
        """Whether former files of this sink are removed, and no others."""
        return self._mode == "complete" or (self._mode == "overwrite" and "mode" not in self.step.values)

    def _owners(self) -> list[str]:
        """The ids under which this sink wrote to the directory, newest first; empty if it never did."""
        return (self.files.kept(self._mark) or "").split()

    def _note(self, former: Iterable[str]) -> None:
        self.files.make(f"{self.place}/{_OURS}")
        owners = [self.owner, *(owner for owner in former if owner != self.owner)]
        self.files.keep(self._mark, "\n".join(owners))

    def _mine(self, owners: list[str]) -> Iterable[str]:
        return (name for name in self.files.files(self.place) if _is_of(name, owners))

    def _staged(self, rows: DataFrame, prefix: str) -> str:
        # A name of its own: tasks of a run whose driver was killed may still write for a moment.
        staging = f"{self.place}/{_OURS}/{prefix}-{uuid.uuid4().hex[:8]}"
        writer: Any = rows.write.format(self.step.type)
        if self.step.type == "csv":
            writer = writer.option("header", True)
        for key, value in self.step.values.get("options", {}).items():
            writer = writer.option(key, value)
        by = self.step.values.get("partition_by")
        if by is not None:
            writer = writer.partitionBy(*([by] if isinstance(by, str) else by))
        writer.save(staging)
        return staging

    def _moved(self, staging: str, prefix: str) -> set[str]:
        """Move staged files into the directory; returns their names there. ConfigError if another run removed some."""
        self._check_is_there(staging)
        moved = set()
        for number, name in enumerate(sorted(self.files.files(staging))):
            directory, _, file = name.rpartition("/")
            suffix = file[file.index(".") :] if "." in file else ""
            target = "/".join(filter(None, (directory, f"{prefix}-{number:05d}{suffix}")))
            self.files.make(f"{self.place}/{directory}")
            self.files.rename(f"{staging}/{name}", f"{self.place}/{target}")
            moved.add(target)
        self._check_is_there(staging)
        self.files.delete(staging)
        return moved

    def _check_is_there(self, staging: str) -> None:
        if not self.files.exists(staging):
            raise ConfigError(
                f"path: another run of this sink began to write to {self.place}, and removed what this run had staged; "
                f"run one at a time. This micro-batch is repeated when the pipeline is started again.",
                argument="path",
            )

    def _clear(self, owners: list[str]) -> None:
        """Remove staging directories that killed runs of this sink left."""
        left = {name.split("/")[0] for name in self.files.files(f"{self.place}/{_OURS}") if "/" in name}
        for name in left:
            if _is_of(name, owners):
                self.files.delete(f"{self.place}/{_OURS}/{name}")

    def _remove(self, goes: Callable[[str], bool]) -> None:
        for name in list(self.files.files(self.place)):
            if goes(name):
                self.files.delete(f"{self.place}/{name}")


def held_place(spark: SparkSession, step: Step, label: str) -> AbstractContextManager[None]:
    """Lock the sink's directory for the block; a directory on a remote file system cannot be locked.

    A second run would remove the staged files of this one.
    """
    place = step.values["path"]
    taken = f"path: another run writes to {place} for this sink; wait for it to end, or give another path."
    local = local_place(spark, place)
    return nullcontext() if local is None else locked(local / _OURS / f"{label}.lock", taken)


def _file(name: str) -> str:
    return name.rpartition("/")[2]


def _is_of(name: str, owners: list[str]) -> bool:
    """Whether a sink wrote the file under one of these ids."""
    found = _NAMED.match(_file(name))
    return found is not None and any(owner.startswith(found[1]) for owner in owners)


def _is_of_table(name: str) -> bool:
    """Whether a file belongs to the table: it is in the directory itself or in a partition folder."""
    return all("=" in folder for folder in name.split("/")[:-1])


def check_format_place(spark: SparkSession, step: Step, label: str) -> None:
    """Raise an error if a batch in a Spark format would delete other files: Spark overwrites whole directories."""
    if "path" not in step.values or "mode" in step.values:
        return
    place = step.values["path"].rstrip("/")
    files = Files(spark, place)
    is_marked = files.kept(f"{place}/{_OURS}/{label}") is not None
    found = next((name for name in files.files(place) if not (is_marked and _file(name).startswith("part-"))), None)
    if found is not None:
        raise DataError(
            f'path: {place} has files that this sink did not write, such as {found!r}; give mode = "overwrite" to '
            f'replace the whole directory, mode = "append" to keep them, or another path.',
            argument="path",
        )


def mark_format_place(spark: SparkSession, step: Step, label: str) -> None:
    """Mark the directory as written by this sink."""
    if "path" in step.values:
        place = step.values["path"].rstrip("/")
        files = Files(spark, place)
        if files.exists(place):
            files.make(f"{place}/{_OURS}")
            files.keep(f"{place}/{_OURS}/{label}", "format")
