"""Sinks that are directories of Parquet or CSV files: every micro-batch once, for any reader.

Files are written apart and then renamed into the directory under names that carry the number of their micro-batch. One
that is repeated after a crash first removes what it had put there. Spark repeats the newest micro-batch only, so all
others are final. Unlike with Spark's own sink, a reader needs no log to tell files that count from those that do not.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import ConfigError, DataError
from dovetail.pipeline.declared import Step
from dovetail.pipeline.hadoop import Files

_OURS = "_dovetail"


@dataclass(slots=True)
class FileSink:
    """A directory that one sink of one pipeline writes to. `owner` is the same as long as the checkpoint is."""

    files: Files
    step: Step
    place: str
    label: str
    owner: str
    fresh: bool = True
    """Nothing was written in this run yet, so that the next micro-batch may be a repeated one."""

    @classmethod
    def of(cls, spark: SparkSession, step: Step, label: str, owner: str) -> FileSink:
        """The sink of a step; `label` is its name among all pipelines."""
        place = step.values["path"].rstrip("/")
        return cls(Files(spark, place), step, place, label, owner)

    def claim(self) -> None:
        """Mark the directory as this checkpoint's; ConfigError if it has rows of an earlier one of the same sink.

        A run that starts anew would write all rows once more beside those.
        """
        known = self.files.text(self._mark)
        if known not in (None, self.owner) and self._mode() == "append" and any(self.files.files(self.place)):
            raise ConfigError(
                f"{self.place} has rows that this sink wrote with another checkpoint; they would be there twice. "
                f"Give the former checkpoint, or another path, or remove the directory."
            )
        self.files.make(f"{self.place}/{_OURS}")
        self._clear(f"{self.owner[:8]}-")
        self.files.put(self._mark, self.owner)

    def write(self, rows: DataFrame, number: int) -> int:
        """Take a micro-batch as a whole; how many files it has."""
        prefix = f"{self.owner[:8]}-{number:09d}"
        written = self._staged(rows, prefix)
        if self.fresh:
            self._remove(lambda name: name.startswith(prefix))
            self.fresh = False
        moved = self._moved(written, prefix)
        if self._mode() == "complete":
            self._remove(lambda name: not name.startswith(prefix))
        return moved

    def write_batch(self, rows: DataFrame) -> int:
        """Take a whole batch DataFrame; the answer of an earlier run is replaced, kept, or in the way, by mode.

        Files that this sink did not write are replaced only if the pipeline says mode = "overwrite".
        """
        mode = self._mode("overwrite")
        if mode == "error" and any(self.files.files(self.place)):
            raise DataError(
                f"{self.place} has files, and mode is 'error'; remove them, or use 'overwrite' or 'append'."
            )
        if "mode" not in self.step.values and self.files.text(self._mark) is None and any(self.files.files(self.place)):
            raise DataError(
                f'{self.place} has files that this sink did not write; give mode = "overwrite" to replace them, '
                f'mode = "append" to keep them, or another path.'
            )
        self.files.make(f"{self.place}/{_OURS}")
        if mode == "overwrite":
            self.files.put(self._mark, self.owner)
        prefix = f"{self.owner[:8]}-batch"
        self._clear("")
        written = self._staged(rows, prefix)
        # A run that died while it renamed is remembered here; what it had put in place does not count.
        begun = self.files.text(f"{self._mark}.begun")
        self.files.put(f"{self._mark}.begun", prefix)
        self._remove(lambda name: name.startswith(prefix) or name.startswith(begun or prefix))
        moved = self._moved(written, prefix)
        if mode == "overwrite":
            self._remove(lambda name: not name.startswith(prefix))
        self.files.delete(f"{self._mark}.begun")
        return moved

    @property
    def _mark(self) -> str:
        return f"{self.place}/{_OURS}/{self.label}"

    def _mode(self, usual: str = "append") -> str:
        return str(self.step.values.get("mode", usual))

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

    def _moved(self, staging: str, prefix: str) -> int:
        names = sorted(self.files.files(staging))
        for number, name in enumerate(names):
            directory, _, file = name.rpartition("/")
            suffix = file[file.index(".") :] if "." in file else ""
            target = "/".join(filter(None, (self.place, directory)))
            self.files.make(target)
            self.files.rename(f"{staging}/{name}", f"{target}/{prefix}-{number:05d}{suffix}")
        self.files.delete(staging)
        return len(names)

    def _clear(self, prefix: str) -> None:
        """Remove what runs that died had written apart."""
        left = {name.split("/")[0] for name in self.files.files(f"{self.place}/{_OURS}") if "/" in name}
        for name in left:
            if name.startswith(prefix):
                self.files.delete(f"{self.place}/{_OURS}/{name}")

    def _remove(self, goes: Any) -> None:
        for name in list(self.files.files(self.place)):
            if goes(name.rpartition("/")[2]):
                self.files.delete(f"{self.place}/{name}")
