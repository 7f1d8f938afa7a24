"""Versions of a page file that streams still need, which pruning leaves alone.

products.pages/
    .held/
        <query id>/
            batch-17-3-1f2e3d    micro-batch 17 may take version 3-1f2e3d
            owner-4d5e6f         a line each: the versions that rows which wait there were admitted with
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.generation import HELD, exists
from dovetail.joins.semistream.master.lock import locked

_REPLAYED = 1  # batches before the newest one whose versions are held: only the newest one is ever replayed


@dataclass(frozen=True, slots=True)
class Holds:
    """What one query needs of the page file at `path`; written where pruning looks, before rows depend on it."""

    path: str
    query: str

    def take(self, batch: int, version: str) -> bool:
        """Whether the version is there, for a batch that has not begun; if so it stays until two batches later."""
        name = f"batch-{batch}-{version}"
        if not self._write(name, [version]):
            self._remove(name)
            return False
        for other in self._names():
            kind, _, rest = other.partition("-")
            number = rest.partition("-")[0]
            if kind == "batch" and number.isdigit() and int(number) < batch - _REPLAYED:
                self._remove(other)
        return True

    def wait(self, owner: str, versions: Sequence[str]) -> None:
        """Rows of this owner wait for these versions, in the state before a batch or after it; none release all."""
        if versions:
            self._write(f"owner-{owner}", sorted(set(versions)))
        else:
            self._remove(f"owner-{owner}")

    def _write(self, name: str, versions: Sequence[str]) -> bool:
        """Whether all versions are there when it is known that they are needed."""
        path = Path(self.path)
        place = path / HELD / self.query / name
        temporary = place.with_name(f".{uuid.uuid4().hex}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with locked(path):
                temporary.write_text("\n".join(versions), encoding="utf-8")
                temporary.replace(place)
                return all(exists(path, version) for version in versions)
        except OSError as error:
            raise self._unreachable(error) from error

    def _names(self) -> list[str]:
        return [entry.name for entry in os.scandir(Path(self.path) / HELD / self.query)]

    def _remove(self, name: str) -> None:
        try:
            (Path(self.path) / HELD / self.query / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{Path(self.path) / HELD} cannot be written ({error.strerror}), where as_of='admitted' notes the versions "
            f"that must not be pruned; let executors write there, or use as_of='answered'."
        )
