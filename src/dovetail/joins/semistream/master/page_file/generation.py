"""The directory of a page file: immutable generations, and a manifest that names the newest and is replaced atomically.

products.pages/
    MANIFEST.json              which generation is current
    generation-3/
        generation.json        schema, key, order, parts, index, with checksums
        0-1f2e3d.rows          pages, one after the other
        0-1f2e3d.table         sizes, rows, checksums and fences of those pages, as Arrow
        0-1f2e3d.cells         of ranges: where the cells of those pages begin, as Arrow
        index.codes index.pages    for orders other than by key: sorted codes, and the page of each
    .held/<query id>/          versions that a stream still needs, which pruning leaves alone
        batch-17-3-1f2e3d      micro-batch 17 may take version 3-1f2e3d
        owner-4d5e6f           one line per version with which its waiting rows were admitted
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.cells import Ranged
from dovetail.joins.semistream.master.pages import Order


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the page file at this path, if the file system supports locks."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with contextlib.suppress(OSError):  # no locks here (some network disks): renames still exclude each other
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


FORMAT = 1
FORMAT_OF_RANGES = 2
MANIFEST = "MANIFEST.json"
DESCRIPTION = "generation.json"
HELD = ".held"  # a directory for each query, with files of versions that it needs
_BUILDING = ".building-"
_ABANDONED_S = 24 * 3600  # a build that has not touched its directory for this long was killed


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of pages and the file with its table, as the description lists them."""

    rows_file: str
    table_file: str
    table_crc: int
    pages: int
    rows: int
    nbytes: int
    cells_file: str = ""  # of ranges
    cells_crc: int = 0
    number: int = 0  # of the part, in front of the numbers of its cells

    @property
    def files(self) -> list[str]:
        """The names of all its files."""
        return [name for name in (self.rows_file, self.table_file, self.cells_file) if name]

    def to_json(self) -> dict[str, Any]:
        """Its entry in the description; without cells as the first format has it."""
        found = asdict(self)
        for name in () if self.cells_file else ("cells_file", "cells_crc", "number"):
            del found[name]
        return found


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The dense index on disk: entries, and for stretches of them the checksums of codes and of pages."""

    entries: int
    stretches: tuple[tuple[int, int, int], ...]  # entries, crc of codes, crc of pages
    clashing_keys: tuple[str, ...] = ()  # base64 of normal keys
    clashing_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """The parts of one generation of a page file."""

    id: str
    schema: pa.Schema
    key: tuple[str, ...]
    order: Order
    unique: bool
    page_bytes: int
    null_keys: int
    parts: tuple[PartFile, ...]
    index: IndexFile | None
    number: int = 0
    created: str = ""
    null_part: PartFile | None = None  # rows with a null in the key, where they were kept
    ranged: Ranged | None = None  # the columns of ranges, whose cells are the key

    @property
    def format(self) -> int:
        """The first format that has it."""
        return FORMAT if self.ranged is None else FORMAT_OF_RANGES

    @property
    def version(self) -> str:
        """The name of this generation: its number and an id that no other build has."""
        return f"{self.number}-{self.id}"

    @property
    def rows(self) -> int:
        """Rows in all pages."""
        return sum(part.rows for part in self.parts)

    @property
    def n_pages(self) -> int:
        """Pages in all parts."""
        return sum(part.pages for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return sum(part.nbytes for part in self.parts)

    def to_json(self) -> str:
        """The description, as it stands in the directory."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["schema"] = base64.b64encode(self.schema.serialize()).decode()
        found["parts"] = [part.to_json() for part in self.parts]
        found["index"] = asdict(self.index) if self.index else None
        found["null_part"] = self.null_part.to_json() if self.null_part else None
        ranged = found.pop("ranged")
        if ranged is not None:
            found["ranged"] = asdict(ranged)
        return json.dumps({"format": self.format, **found}, indent=1)


def _from_json(text: str) -> Generation:
    found: dict[str, Any] = json.loads(text)
    del found["format"]
    found["schema"] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
    found["key"] = tuple(found["key"])
    found["parts"] = tuple(PartFile(**part) for part in found["parts"])
    if found.get("null_part"):
        found["null_part"] = PartFile(**found["null_part"])
    if found.get("ranged"):
        ranged = found["ranged"]
        found["ranged"] = Ranged(tuple(ranged["key"]), ranged["start"], ranged["end"])
    if found["index"]:
        index = found["index"]
        found["index"] = IndexFile(
            index["entries"],
            tuple((n, codes, pages) for n, codes, pages in index["stretches"]),
            tuple(index["clashing_keys"]),
            tuple(index["clashing_pages"]),
        )
    return Generation(**found)


def local_path(path: str | Path) -> Path:
    """The absolute path of a page file; a `PlanError` if it is a URI."""
    if "://" in str(path):
        raise PlanError(
            f"{path} is a URI; a page file is a directory that driver and executors mount: give its path.",
            argument="path",
        )
    return Path(path).absolute()


def current_version(path: Path) -> str:
    """The version that the manifest names."""
    text = _read_text(path / MANIFEST, path)
    try:
        manifest = json.loads(text)
        known, version = manifest["format"], str(manifest["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path / MANIFEST} is damaged ({error}); build the page file again.") from error
    if known not in (FORMAT, FORMAT_OF_RANGES):
        reads = f"{FORMAT} and {FORMAT_OF_RANGES}"
        raise ConfigError(f"{path} has format {known}; this version of dovetail reads {reads}. Build it again.")
    return version


def versions(path: Path) -> list[str]:
    """Versions that can still be opened, oldest first."""
    current_version(path)
    found = [load(path, number) for number in _numbers(path)]
    return [generation.version for generation in found]


def load_version(path: Path, version: str | None = None) -> Generation:
    """The description of a version, by default the current one; a `ConfigError` if it is gone or damaged."""
    current = current_version(path)
    wanted = version or current
    number = wanted.partition("-")[0]
    if not number.isdigit():
        raise PlanError(f"{wanted!r} is not a version of a page file; one looks like {current!r}.")
    if not directory(path, int(number)).is_dir():
        raise ConfigError(
            f"{path} has no version {wanted} any more (current is {current}): it was pruned or removed. Keep more "
            f"generations, or start the query from the current version."
        )
    found = load(path, int(number))
    if found.version != wanted:
        raise ConfigError(
            f"{path} was built anew: version {wanted} is gone, its number now stands for {found.version}."
        )
    return found


def load(path: Path, number: int) -> Generation:
    """The description of the generation of that number."""
    place = directory(path, number) / DESCRIPTION
    text = _read_text(place, path)
    body, _, tail = text.rpartition("\n")
    if tail != f"{zlib.crc32(body.encode()):08x}":
        raise ConfigError(f"{place} is damaged or cut short; build the page file again.")
    return _from_json(body)


def directory(path: Path, number: int) -> Path:
    """The directory of a generation's files."""
    return path / f"generation-{number}"


def _numbers(path: Path) -> list[int]:
    names = [entry.name.removeprefix("generation-") for entry in path.glob("generation-*")]
    return sorted(int(name) for name in names if name.isdigit())


def _read_text(place: Path, path: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        hint = "is not a page file" if path.exists() else "does not exist"
        raise ConfigError(
            f"{path} {hint} ({place.name} is missing); build it with MasterStore.build, or correct the path."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot read {place}: {reason}; check permissions and that it is a page file.") from error


@contextlib.contextmanager
def building(path: Path) -> Iterator[Path]:
    """A new directory beside the generations to build one in; removed if the build fails."""
    work = path / f"{_BUILDING}{uuid.uuid4().hex[:12]}"
    try:
        _check_place(path)
        work.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {error.strerror}; give a path that can be written.") from error
    _remove_abandoned(path)
    try:
        yield work
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise ConfigError(
            f"building {path} failed: {error.strerror or error}; free space or check the disk."
        ) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _check_place(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file; a page file is a directory. Give another path.")
    if path.is_dir() and not (path / MANIFEST).exists():
        strange = [e.name for e in path.iterdir() if not e.name.startswith((".", "generation-", MANIFEST))]
        if strange:
            raise ConfigError(f"{path} has files that are not a page file, {strange[0]}; give a new directory.")


def commit(path: Path, work: Path, generation: Generation) -> Generation:
    """Make what was built in `work` the newest generation, atomically for readers."""
    parts = [*generation.parts, *([generation.null_part] if generation.null_part else [])]
    listed = {name for part in parts for name in part.files}
    if generation.index:
        listed |= {"index.codes", "index.pages"}
    for left_over in [entry for entry in work.iterdir() if entry.name not in listed]:
        left_over.unlink()  # of failed task attempts
    with locked(path):
        number = max(_numbers(path), default=0) + 1
        fields = {name: getattr(generation, name) for name in generation.__slots__}
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        final = Generation(**{**fields, "number": number, "created": created})
        body = final.to_json()
        _write_text(work / DESCRIPTION, f"{body}\n{zlib.crc32(body.encode()):08x}")
        work.rename(directory(path, number))
        temporary = path / f".{MANIFEST}-{final.id}"
        _write_text(temporary, json.dumps({"format": final.format, "version": final.version}))
        temporary.replace(path / MANIFEST)
        sync_directory(path)
    return final


def exists(path: Path, version: str) -> bool:
    """Whether the version can be opened."""
    number = version.partition("-")[0]
    return directory(path, int(number)).is_dir() and load(path, int(number)).version == version


def held(path: Path) -> set[str]:
    """Versions that streams say they need."""
    found: set[str] = set()
    for file in (path / HELD).glob("*/[!.]*"):
        with contextlib.suppress(FileNotFoundError):  # released meanwhile
            found.update(file.read_text(encoding="utf-8").split())
    return found


def prune(path: Path, keep: int, also_held: bool = False) -> list[str]:
    """Remove all but the newest `keep` generations and those that are held; returns the removed ones.

    Open readers can continue.
    """
    if keep < 1:
        raise PlanError(f"keep is {keep}; at least 1 generation must stay.", argument="keep")
    with locked(path):
        needed = set() if also_held else {int(version.partition("-")[0]) for version in held(path)}
        current = int(current_version(path).partition("-")[0])
        kept = {current, *_numbers(path)[-keep:], *needed}
        gone = [number for number in _numbers(path) if number not in kept]
        removed = [load(path, number).version for number in gone]
        for number in gone:
            # Renamed first, so that no reader opens a generation with missing files.
            grave = path / f"{_BUILDING}pruned-{number}-{uuid.uuid4().hex[:6]}"
            directory(path, number).rename(grave)
            shutil.rmtree(grave, ignore_errors=True)
    return removed


def _write_text(place: Path, text: str) -> None:
    with place.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk."""
    with contextlib.suppress(OSError):  # some file systems do not sync directories; the rename itself is atomic
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_abandoned(path: Path) -> None:
    for entry in path.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(entry, ignore_errors=True)


_REPLAYED_BATCHES = 1  # batches before the newest one whose versions are held: only the newest one is ever replayed


@dataclass(frozen=True, slots=True)
class Holds:
    """Versions of the page file at `path` that one query needs; recorded for pruning before rows depend on them."""

    path: str
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
