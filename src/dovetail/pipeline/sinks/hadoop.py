"""Files wherever Spark keeps them: a few calls of Hadoop's file systems, for commits that rename."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """The file system of one place."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        session: Any = spark
        self._jvm = session._jvm
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._root = self.path(place)
        self._system = self._root.getFileSystem(conf)

    def path(self, place: str) -> Any:
        """The place as Hadoop has it."""
        return self._jvm.org.apache.hadoop.fs.Path(place)

    def exists(self, place: str) -> bool:
        """Whether there is anything."""
        return bool(self._system.exists(self.path(place)))

    def make(self, place: str) -> None:
        """Make a directory and those above it."""
        self._system.mkdirs(self.path(place))

    def delete(self, place: str) -> None:
        """Remove a file or a directory with all that is in it; what is not there is no harm."""
        self._system.delete(self.path(place), True)

    def rename(self, old: str, new: str) -> None:
        """Move one file; OSError if it is not done."""
        if not self._system.rename(self.path(old), self.path(new)):
            raise OSError(f"cannot move {old} to {new}")

    def files(self, place: str) -> Iterator[str]:
        """Paths of the data files below a place, relative to it; names that begin with _ or . are passed over."""
        root = self.path(place)
        if not self._system.exists(root):
            return
        base = str(self._system.getFileStatus(root).getPath().toUri().getPath()).rstrip("/") + "/"
        found = self._system.listFiles(root, True)
        while found.hasNext():
            name = str(found.next().getPath().toUri().getPath()).removeprefix(base)
            if not any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/")):
                yield name

    def text(self, place: str) -> str | None:
        """The content of a small file; None if there is none."""
        path = self.path(place)
        if not self._system.exists(path):
            return None
        stream = self._system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def put(self, place: str, text: str) -> None:
        """Write a small file in place of any that is there."""
        stream = self._system.create(self.path(place), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def keep(self, place: str, text: str) -> None:
        """Write a small file that `kept` gives back whole, whenever the process dies: the former or this one."""
        self.put(f"{place}.new", text)
        self.delete(place)
        self.rename(f"{place}.new", place)

    def kept(self, place: str) -> str | None:
        """The content of a file that `keep` wrote; None if there is none."""
        text = self.text(place)
        # A process that died between removing and renaming has left the new file, which is whole.
        return self.text(f"{place}.new") if text is None else text
