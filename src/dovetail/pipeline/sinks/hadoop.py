"""Files on any file system that Spark reaches, by Hadoop's API; used for commits by renaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """The file system of one path."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        session: Any = spark
        self._jvm = session._jvm
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._root = self.path(place)
        self._system = self._root.getFileSystem(conf)

    def path(self, place: str) -> Any:
        """The path as a Hadoop object."""
        return self._jvm.org.apache.hadoop.fs.Path(place)

    def address(self, place: str) -> str:
        """The path with the file system that Spark takes it for."""
        return str(self._system.makeQualified(self.path(place)).toString())

    def exists(self, place: str) -> bool:
        """Whether the path exists."""
        return bool(self._system.exists(self.path(place)))

    def make(self, place: str) -> None:
        """Make a directory and its parents."""
        self._system.mkdirs(self.path(place))

    def delete(self, place: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        self._system.delete(self.path(place), True)

    def rename(self, old: str, new: str) -> None:
        """Rename one file; OSError if that fails."""
        if not self._system.rename(self.path(old), self.path(new)):
            raise OSError(f"cannot move {old} to {new}")

    def files(self, place: str) -> Iterator[str]:
        """Paths of the data files below a directory, relative to it; names that begin with _ or . are skipped."""
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
        """Write a small file; one that exists is replaced."""
        stream = self._system.create(self.path(place), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def keep(self, place: str, text: str) -> None:
        """Replace a small file atomically: after a crash `kept` reads the former content or this one."""
        self.put(f"{place}.new", text)
        self.delete(place)
        self.rename(f"{place}.new", place)

    def kept(self, place: str) -> str | None:
        """The content of a file that `keep` wrote; None if there is none."""
        text = self.text(place)
        # A process that died between removing and renaming has left the new file, which is whole.
        return self.text(f"{place}.new") if text is None else text
