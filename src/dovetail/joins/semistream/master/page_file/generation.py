"""The directory of a page file: immutable generations, and a manifest that names the newest and is replaced atomically.

products.pages/
    MANIFEST.json              which generation is current
    generation-3/
        generation.json        schema, key, order, parts, index, with checksums
        0-1f2e3d.rows          pages, one after the other
        0-1f2e3d.table         sizes, rows, checksums and fences of those pages, as Arrow
        0-1f2e3d.cells         of ranges: where the cells of those pages begin, as Arrow
        index.codes index.pages    for orders other than by key and hash: sorted codes, and the page of each
        pages.table            of a changed file: where every page is; most are in files of earlier generations
    .held/<query id>/          versions that a stream still needs, which pruning leaves alone
        batch-17-3-1f2e3d      micro-batch 17 may take version 3-1f2e3d
        owner-4d5e6f           one line per version with which its waiting rows were admitted

An object store renames no directory, and has no locks. There a build claims the next number first (generation-3/claim)
and writes to its directory, the description ends the build, and the highest number that has one is the current version.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place
from dovetail.engine.storage.remote import Remote, overlapped
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.cells import Ranged
from dovetail.joins.semistream.master.pages import PageOrder


@contextlib.contextmanager
def locked(path: Place) -> Iterator[None]:
    """Holds an exclusive lock on the page file at this path, if the file system supports locks."""
    if sys.platform == "win32" or isinstance(path, Remote):
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


T = TypeVar("T")
P = ParamSpec("P")
FORMAT = 1
FORMAT_OF_RANGES = 2
FORMAT_OF_CHANGES = 3
FORMAT_OF_OFFSETS = 4
MANIFEST = "MANIFEST.json"
DESCRIPTION = "generation.json"
HELD = ".held"  # a directory for each query, with files of versions that it needs
_BUILDING = ".building-"
_BEGAN = ".began"  # in it: the changes that the file had when the build began
_CLAIM, PRUNED = "claim", "pruned"  # marks in the directory of a generation on an object store
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
    home: int = 0  # the generation in whose directory its files are, if not its own

    @property
    def files(self) -> list[str]:
        """The names of all its files."""
        return [name for name in (self.rows_file, self.table_file, self.cells_file) if name]

    def to_json(self) -> dict[str, Any]:
        """Its entry in the description; without cells as the first format has it."""
        found = asdict(self)
        for name in () if self.cells_file else ("cells_file", "cells_crc", "number"):
            del found[name]
        if not self.home:
            del found["home"]
        return found


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The dense index on disk: entries, and for stretches of them the checksums of codes and of pages."""

    entries: int
    stretches: tuple[tuple[int, int, int], ...]  # entries, crc of codes, crc of pages
    clashing_keys: tuple[str, ...] = ()  # base64 of normal keys
    clashing_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The pages of a changed file in key order, wherever they are: a table of them, and what is in use of all parts."""

    table_file: str
    table_crc: int
    pages: int
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The last micro-batch of changes that a file has, the query that it belongs to, and a digest of its offsets."""

    query: str
    batch: int
    offsets: str = ""  # of versions before format 4


@dataclass(frozen=True, slots=True)
class Generation:
    """The parts of one generation of a page file."""

    id: str
    schema: pa.Schema
    key: tuple[str, ...]
    order: PageOrder
    unique: bool
    page_bytes: int
    null_keys: int
    parts: tuple[PartFile, ...]
    index: IndexFile | None
    number: int = 0
    created: str = ""
    null_part: PartFile | None = None  # rows with a null in the key, where they were kept
    ranged: Ranged | None = None  # the columns of ranges, whose cells are the key
    layout: Layout | None = None  # of a file that changes were applied to
    applied: Applied | None = None

    @property
    def format(self) -> int:
        """The first format that has it."""
        if self.applied is not None and self.applied.offsets:
            return FORMAT_OF_OFFSETS
        if self.layout is not None or self.applied is not None:
            return FORMAT_OF_CHANGES
        return FORMAT if self.ranged is None else FORMAT_OF_RANGES

    @property
    def version(self) -> str:
        """The name of this generation: its number and an id that no other build has."""
        return f"{self.number}-{self.id}"

    @property
    def rows(self) -> int:
        """Rows in all pages."""
        return self.layout.rows if self.layout else sum(part.rows for part in self.parts)

    @property
    def n_pages(self) -> int:
        """Pages in all parts."""
        return self.layout.pages if self.layout else sum(part.pages for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self.layout.nbytes if self.layout else sum(part.nbytes for part in self.parts)

    @property
    def all_parts(self) -> tuple[PartFile, ...]:
        """The parts, and that of rows with a null in the key."""
        return (*self.parts, *([self.null_part] if self.null_part else []))

    @property
    def files(self) -> set[tuple[int, str]]:
        """Every file but the description, with the number of the generation in whose directory it is."""
        found = {(part.home or self.number, name) for part in self.all_parts for name in part.files}
        own = [
            *(["index.codes", "index.pages"] if self.index else []),
            *([self.layout.table_file] if self.layout else []),
        ]
        return found | {(self.number, name) for name in own}

    def to_json(self) -> str:
        """The description, as it stands in the directory."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["schema"] = base64.b64encode(self.schema.serialize()).decode()
        found["parts"] = [part.to_json() for part in self.parts]
        found["index"] = asdict(self.index) if self.index else None
        found["null_part"] = self.null_part.to_json() if self.null_part else None
        for name in ("ranged", "layout", "applied"):
            value = found.pop(name)
            if value is not None:
                found[name] = asdict(value)
        return json.dumps({"format": self.format, **found}, indent=1)


def _from_json(path: Place, text: bytes) -> Generation:
    found: dict[str, Any] = json.loads(text)
    _check_format(path, found.pop("format"))
    found["schema"] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
    found["key"] = tuple(found["key"])
    found["parts"] = tuple(PartFile(**part) for part in found["parts"])
    if found.get("null_part"):
        found["null_part"] = PartFile(**found["null_part"])
    if found.get("ranged"):
        ranged = found["ranged"]
        found["ranged"] = Ranged(tuple(ranged["key"]), ranged["start"], ranged["end"])
    for name, kind in (("layout", Layout), ("applied", Applied)):
        if found.get(name):
            found[name] = kind(**found[name])
    if found["index"]:
        index = found["index"]
        found["index"] = IndexFile(
            index["entries"],
            tuple((n, codes, pages) for n, codes, pages in index["stretches"]),
            tuple(index["clashing_keys"]),
            tuple(index["clashing_pages"]),
        )
    return Generation(**found)


def _told(work: Callable[Concatenate[Place, P], T]) -> Callable[Concatenate[Place, P], T]:
    """The function with errors of the file system as `ConfigError` with the place."""

    @wraps(work)
    def told(path: Place, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(path, *args, **kwargs)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror or error}; check place and rights.") from error

    return told


@_told
def current_version(path: Place) -> str:
    """The version that the manifest names, or on an object store the one with the highest number."""
    if isinstance(path, Remote):
        return _newest(path).version
    text = _read(path / MANIFEST, path)
    try:
        manifest = json.loads(text)
        known, version = manifest["format"], str(manifest["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path / MANIFEST} is damaged ({error}); build the page file again.") from error
    _check_format(path, known)
    return version


def _newest(path: Remote) -> Generation:
    for number in reversed(directories(path)):
        with contextlib.suppress(FileNotFoundError):  # a build that has not ended, or a version that was pruned
            return _parsed(path, number, files.read_small(directory(path, number) / DESCRIPTION))
    raise _missing(path, MANIFEST)


def is_page_file(path: Place) -> bool:
    """Whether there is a page file at this place."""
    return bool(numbers(path)) if isinstance(path, Remote) else (path / MANIFEST).exists()


def _check_format(path: Place, known: object) -> None:
    if known not in range(FORMAT, FORMAT_OF_OFFSETS + 1):
        reads = f"{FORMAT} to {FORMAT_OF_OFFSETS}"
        raise ConfigError(f"{path} has format {known}; this version of dovetail reads {reads}. Build it again.")


@_told
def versions(path: Place) -> list[str]:
    """Versions that can still be opened, oldest first."""
    current_version(path)
    found = [load(path, number) for number in numbers(path)]
    return [generation.version for generation in found]


@_told
def load_version(path: Place, version: str | None = None) -> Generation:
    """The description of a version, by default the current one; a `ConfigError` if it is gone or damaged."""
    if isinstance(path, Remote) and version is None:
        return _newest(path)
    current = None if isinstance(path, Remote) else current_version(path)  # a store is asked only if it must be
    wanted = version or str(current)
    number = wanted.partition("-")[0]
    if not number.isdigit():
        current = current or current_version(path)
        raise PlanError(f"{wanted!r} is not a version of a page file; one looks like {current!r}.", argument="version")
    if files.size(directory(path, int(number)) / DESCRIPTION) is None:
        current = current or current_version(path)
        raise ConfigError(
            f"{path} has no version {wanted} any more (current is {current}): it was pruned or removed. Keep more "
            f"generations, or start the query from the current version."
        )
    found = load(path, int(number))
    if found.version != wanted:
        raise ConfigError(f"{path} was rebuilt: version {wanted} is gone, its number now stands for {found.version}.")
    return found


def load(path: Place, number: int) -> Generation:
    """The description of the generation of that number."""
    return _parsed(path, number, _read(directory(path, number) / DESCRIPTION, path))


def _parsed(path: Place, number: int, data: bytes) -> Generation:
    body, _, tail = data.rpartition(b"\n")
    if tail != f"{zlib.crc32(body):08x}".encode():
        place = directory(path, number) / DESCRIPTION
        raise ConfigError(f"{place} is damaged or cut short; build the page file again.")
    return _from_json(path, body)


def directory(path: Place, number: int) -> Place:
    """The directory of a generation's files."""
    return path / f"generation-{number}"


def directories(path: Place) -> list[int]:
    """Numbers of directories of generations, also of those that are gone but for files that later ones need."""
    names = [name.removeprefix("generation-") for name in files.names(path)]
    return sorted(int(name) for name in names if name.isdigit())


def numbers(path: Place) -> list[int]:
    """Generations that have a description."""
    found = directories(path)
    looks = [partial(files.size, directory(path, number) / DESCRIPTION) for number in found]
    sizes = overlapped(looks) if isinstance(path, Remote) else [look() for look in looks]
    return [number for number, size in zip(found, sizes, strict=True) if size is not None]


def _read(place: Place, path: Place) -> bytes:
    try:
        return files.read_small(place)
    except FileNotFoundError as error:
        raise _missing(path, place.name) from error
    except OSError as error:
        reason = error.strerror
        raise ConfigError(f"cannot read {place}: {reason}; check permissions and that it is a page file.") from error


def _missing(path: Place, name: str) -> ConfigError:
    is_there = path.exists() if isinstance(path, Path) else bool(files.names(path))
    hint = "is not a page file" if is_there else "does not exist"
    return ConfigError(f"{path} {hint} ({name} is missing); build it with MasterStore.build, or correct the path.")


@contextlib.contextmanager
def building(path: Place) -> Iterator[Place]:
    """A new directory beside the generations to build one in; removed if the build fails."""
    try:
        _check_place(path)
        work = _new_directory(path)
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {error.strerror}; give a path that can be written.") from error
    remove_abandoned(path)
    try:
        if isinstance(work, Path):
            (work / _BEGAN).write_text(json.dumps(_applied_json(path)))
        yield work
        if isinstance(work, Path) or files.size(work / DESCRIPTION) is None:
            files.remove_tree(work)  # still there if there was nothing to commit
    except OSError as error:
        files.remove_tree(work)
        raise ConfigError(
            f"building {path} failed: {error.strerror or error}; free space or check the disk."
        ) from error
    except BaseException:
        files.remove_tree(work)
        raise


def _new_directory(path: Place) -> Place:
    if isinstance(path, Path):
        work = path / f"{_BUILDING}{uuid.uuid4().hex[:12]}"
        work.mkdir(parents=True)
        return work
    files.check_creates(path)
    while True:
        claimed = directory(path, max(directories(path), default=0) + 1)
        if files.create(claimed / _CLAIM, uuid.uuid4().bytes):
            return claimed


def _check_place(path: Place) -> None:
    if isinstance(path, Path) and path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file; a page file is a directory. Give another path.")
    known = (".", "generation-", MANIFEST)
    strange = [] if is_page_file(path) else [name for name in files.names(path) if not name.startswith(known)]
    if strange:
        raise ConfigError(f"{path} has files that are not a page file, {strange[0]}; give a new directory.")


def commit(path: Place, work: Place, generation: Generation, expected: str | None = None) -> Generation:
    """Make what was built in `work` the newest generation, atomically for readers.

    With `expected`, only if that is still the current version. Which changes were applied is known of a file that is
    rebuilt, too.
    """
    began = json.loads((work / _BEGAN).read_text()) if isinstance(work, Path) else None
    listed = {name for home, name in generation.files if home == generation.number}
    for left_over in [name for name in files.names(work) if name not in (*listed, _CLAIM)]:
        files.remove(work / left_over)  # of failed task attempts
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with locked(path):
        if expected is not None:
            _check_current(path, expected)
        elif isinstance(work, Path) and _applied_json(path) != began:
            raise ConfigError(
                f"changes were applied to {path} while it was built, which the new version may lack; nothing was "
                f"written. Build it again while the query of changes is stopped."
            )
        local = isinstance(work, Path)
        number = max(directories(path), default=0) + 1 if local else int(work.name.rpartition("-")[2])
        applied = generation.applied or _applied(path)
        final = replace(generation, number=number, created=created, applied=applied)
        body = final.to_json()
        files.write(work / DESCRIPTION, f"{body}\n{zlib.crc32(body.encode()):08x}".encode())
        if isinstance(work, Path) and isinstance(path, Path):
            work.rename(path / f"generation-{number}")
            files.write(path / MANIFEST, json.dumps({"format": final.format, "version": final.version}).encode())
            sync_directory(path)
    return final


def _check_current(path: Place, expected: str) -> None:
    current = current_version(path)
    if current != expected:
        raise ConfigError(
            f"{path} got version {current} from another writer while changes were applied to {expected}; nothing was "
            f"written. Let one query write to a page file, and start it again."
        )


def _applied_json(path: Place) -> dict[str, Any] | None:
    found = _applied(path)
    return None if found is None else asdict(found)


def _applied(path: Place) -> Applied | None:
    """The changes that the current version has; None if there is none that can be read."""
    with contextlib.suppress(ConfigError):
        return load_version(path).applied
    return None


def exists(path: Place, version: str) -> bool:
    """Whether the version can be opened, and is not being removed."""
    number = int(version.partition("-")[0])
    found = files.names(directory(path, number))
    return DESCRIPTION in found and PRUNED not in found and load(path, number).version == version


def sync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk."""
    with contextlib.suppress(OSError):  # some file systems do not sync directories; the rename itself is atomic
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_abandoned(path: Place) -> None:
    """Remove what killed builds left, and on an object store the files of generations that were pruned."""
    if isinstance(path, Remote):
        kept = numbers(path)
        homes = [directory(path, number) for number in directories(path) if number not in kept]
        old = [home for home in homes if _is_abandoned(files.entries(home))]
    else:
        old = [path / entry.name for entry in files.entries(path)
               if entry.name.startswith(_BUILDING) and _is_abandoned([entry])]  # fmt: skip
    for home in old:
        files.remove_tree(home)


def _is_abandoned(found: Sequence[files.Entry]) -> bool:
    return max((entry.changed_at for entry in found), default=time.time()) < time.time() - _ABANDONED_S
