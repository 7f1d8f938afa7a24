"""Versions of a page file that streams hold, and the removal of all others."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place
from dovetail.engine.storage.remote import Remote
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.page_file.generation import (
    DESCRIPTION,
    HELD,
    PRUNED,
    current_version,
    directories,
    directory,
    exists,
    load,
    locked,
    numbers,
    remove_abandoned,
)
from dovetail.request import parse_count

_REPLAYED_BATCHES = 1  # batches before the newest one whose versions are held: only the newest one is ever replayed


@dataclass(frozen=True, slots=True)
class Holds:
    """Versions of the page file at `path` that one query needs; recorded for pruning before rows depend on them."""

    path: Place
    query: str

    def take(self, batch: int, version: str) -> bool:
        """Hold the version for a batch that has not begun, until two batches later; False if it is gone."""
        name = f"batch-{batch}-{version}"
        if not self._write(name, [version]):
            self._remove(name)
            return False
        for other in self._names():
            kind, _, rest = other.partition("-")
            number = rest.partition("-")[0]
            if kind == "batch" and number.isdigit() and int(number) < batch - _REPLAYED_BATCHES:
                self._remove(other)
        return True

    def wait(self, owner: str, versions: Sequence[str]) -> None:
        """Hold the versions that this owner's waiting rows need, before or after a batch; no versions release all."""
        if versions:
            self._write(f"owner-{owner}", sorted(set(versions)))
        else:
            self._remove(f"owner-{owner}")

    def _write(self, name: str, versions: Sequence[str]) -> bool:
        """Record the versions as needed; whether all of them still exist."""
        try:
            with locked(self.path):
                files.write(self.path / HELD / self.query / name, "\n".join(versions).encode(), outlives_power=False)
                return all(exists(self.path, version) for version in versions)
        except OSError as error:
            raise self._unreachable(error) from error

    def _names(self) -> list[str]:
        return files.names(self.path / HELD / self.query)

    def _remove(self, name: str) -> None:
        try:
            files.remove(self.path / HELD / self.query / name)
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.path / HELD} cannot be written ({error.strerror}), where as_of='admitted' notes the versions "
            f"that must not be pruned; let executors write there, or use as_of='answered'."
        )


def held(path: Place) -> set[str]:
    """Versions that streams say they need."""
    found: set[str] = set()
    for query in files.names(path / HELD):
        for name in files.names(path / HELD / query):
            with contextlib.suppress(FileNotFoundError):  # released meanwhile
                found.update([] if name.startswith(".") else files.read(path / HELD / query / name).decode().split())
    return found


def prune(path: Place, keep: int, also_held: bool = False, spared: Collection[str] = ()) -> list[str]:
    """Remove all but the newest `keep` generations, those that are held and `spared`; returns the removed ones.

    Files that a generation which stays needs stay, too. Open readers can continue: on an object store for a day.
    """
    parse_count("keep", keep)
    with locked(path):
        needed = set() if also_held else {int(version.partition("-")[0]) for version in held(path) | set(spared)}
        current, found = int(current_version(path).partition("-")[0]), numbers(path)
        kept = {current, *found[-keep:], *needed}
        removed = [load(path, number).version for number in found if number not in kept]
        if isinstance(path, Remote):
            removed = [version for version in removed if _forgotten(path, version, also_held)]
            remove_abandoned(path)
            return removed
        shared = set().union(*(load(path, number).files for number in found if number in kept))
        for number in [number for number in directories(path) if number not in kept]:
            _remove_files(path / f"generation-{number}", {name for home, name in shared if home == number})
    return removed


def _forgotten(path: Remote, version: str, also_held: bool) -> bool:
    """Remove a description; False if a stream has taken the version meanwhile.

    A stream notes the version and then looks for our mark, and here it is the other way round: one sees the other.
    Files are removed a day after the mark was set.
    """
    home = directory(path, int(version.partition("-")[0]))
    files.write(home / PRUNED, b"")
    if not also_held and version in held(path):
        files.remove(home / PRUNED)
        return False
    files.remove(home / DESCRIPTION)
    return True


def _remove_files(home: Path, kept: set[str]) -> None:
    """Remove the files of a generation but these: its description first, so that no reader finds one with gaps."""
    (home / DESCRIPTION).unlink(missing_ok=True)
    for entry in [entry for entry in home.iterdir() if entry.name not in kept]:
        entry.unlink(missing_ok=True)
    if not kept:
        files.remove_tree(home)
