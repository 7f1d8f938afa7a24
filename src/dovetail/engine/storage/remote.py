"""Reaches file systems that are not mounted: places there, connections, parallel requests, conditional writes."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import pyarrow as pa
from pyarrow import fs

from dovetail.engine.storage.hdfs import HdfsAccess, hdfs_file, hdfs_output, hdfs_rename, hdfs_system
from dovetail.errors import ConfigError

S3_SCHEMES = ("s3a", "s3", "s3n")
AT_ONCE = 64  # requests under way for one process, each with a connection of its own
_GAP = 64 << 10  # bytes: to read them costs what a request costs while many are under way
_LARGEST = 1 << 20  # bytes of a request: more are read faster by several
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 20.0
ATTEMPTS = 10  # with a back-off that doubles up to 20 s: a store may refuse for half a minute
T = TypeVar("T")


def is_remote(address: str) -> bool:
    """Whether an address is on S3 or HDFS."""
    return address.partition("://")[0] in (*S3_SCHEMES, "hdfs")


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a bucket is reached, by the names that Spark has for it; keys and tokens are never shown."""

    endpoint: str = ""
    region: str = ""
    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    path_style: bool = False
    ssl: bool = True
    anonymous: bool = False
    attempts: int = ATTEMPTS


Access: TypeAlias = S3Access | HdfsAccess


@dataclass(frozen=True, slots=True)
class Remote:
    """A place on a file system that is not mounted; `address` has scheme, bucket or host, and path."""

    address: str
    access: Access | None = field(default=None, repr=False, compare=False)

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.address}/{name}", self.access)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.address.rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        """The place that this one is in."""
        return Remote(self.address.rpartition("/")[0], self.access)

    @property
    def is_hdfs(self) -> bool:
        """Whether it is on HDFS; all others are object stores."""
        return self._scheme == "hdfs"

    @property
    def _scheme(self) -> str:
        return self.address.partition("://")[0]

    @property
    def path(self) -> str:
        """The path as Arrow's file system has it."""
        inside = self.address.partition("://")[2]
        return inside if self._scheme in S3_SCHEMES else f"/{inside.partition('/')[2]}"

    @property
    def system(self) -> fs.FileSystem:
        """Arrow's file system; made once in a process."""
        with _LOCK:
            return _system(os.getpid(), self._scheme, self.host, self.access)

    @property
    def host(self) -> str:
        """The bucket, or host and port."""
        return self.address.partition("://")[2].partition("/")[0]

    @property
    def s3_access(self) -> S3Access:
        """How the object store is reached."""
        return self.access if isinstance(self.access, S3Access) else S3Access()

    def opened(self) -> Any:
        """The file, open for reading by ranges."""
        if self.is_hdfs:
            return hdfs_file(self.host, _hdfs_access(self.access), self.path)
        return self.system.open_input_file(self.path)

    def created(self) -> Any:
        """A new file, open for writing, which is seen when it is closed."""
        if self.is_hdfs:
            return hdfs_output(self.host, _hdfs_access(self.access), self.path)
        return self.system.open_output_stream(self.path, compression=None)

    def rename_new(self, target: Remote) -> None:
        """Give a file of HDFS a name that is not taken; `FileExistsError` if it is."""
        hdfs_rename(self.host, _hdfs_access(self.access), self.path, target.path)


def put_new(place: Remote, data: bytes) -> bool:
    """A conditional write, which Arrow does not have; a store answers 409 while it settles two of them.

    It is repeated then, after pauses that double up to 20 s, as often as Spark's settings allow.
    """
    bucket, _, key = place.path.partition("/")
    access = place.s3_access
    with reaching(place):
        client = _client(os.getpid(), access)
        for attempt in range(max(1, access.attempts)):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
                return True
            except client.exceptions.ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == 412:
                    return False
                if status != 409 or attempt + 1 == max(1, access.attempts):
                    raise OSError(errno.EIO, str(error)) from error
                _pause(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S))
            except _botocore().exceptions.BotoCoreError as error:
                raise OSError(errno.EIO, str(error)) from error
    raise AssertionError("the last attempt returns or raises")


def get_whole(place: Remote) -> bytes:
    """The content of a small file of S3 by one request; Arrow first asks for its size, by another one."""
    bucket, _, key = place.path.partition("/")
    with reaching(place):
        client = _client(os.getpid(), place.s3_access)
        try:
            return bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
        except client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", str(place)) from error
            raise OSError(errno.EIO, str(error)) from error
        except _botocore().exceptions.BotoCoreError as error:
            raise OSError(errno.EIO, str(error)) from error


def has_client(place: Remote) -> bool:
    """Whether `get_whole` and `put_new` can be called here."""
    return not place.is_hdfs and importlib.util.find_spec("botocore") is not None


def _pause(seconds: float) -> None:
    """Wait for a random part of this time, so that two writers do not stay in step."""
    time.sleep(seconds * random.uniform(0.5, 1))  # noqa: S311  (no secret)


class RemoteFile:
    """An open remote file of known size, read by ranges. Any thread may read."""

    def __init__(self, place: Remote) -> None:
        self.place = place
        with reaching(place):
            self._file = place.opened()
            self.size = int(self._file.size())

    def read_all(self) -> pa.Buffer:
        """The content, by several requests at once if it is large."""
        data = pa.allocate_buffer(self.size)
        if self.size:
            self.fill(memoryview(data))
        return data

    def fill(self, view: memoryview) -> None:
        """Fill the view from the start of the file on, by several requests at once."""
        fill_ranges([self], [[0], [0], [0], [len(view)]], view)

    def read(self, offset: int, nbytes: int) -> memoryview:
        """That many bytes from an offset on, by one request."""
        with reaching(self.place):
            found = memoryview(self._file.read_at(nbytes, offset))
        if len(found) != nbytes:
            raise OSError(errno.EIO, f"{self.place} ends at byte {offset + len(found)}")
        return found

    def close(self) -> None:
        """Close it; twice is fine."""
        self._file.close()


def fill_ranges(sources: Sequence[Any], runs: Sequence[Sequence[int]], view: memoryview) -> None:
    """Fill `view` from remote files: run by run the source, the offset in it, and where its bytes begin and end.

    Runs ascend. Near ones share a request, large ones are divided, and many requests are under way.
    """
    requests: list[list[tuple[int, int, int, int]]] = []
    view = view.cast("B")
    for source, offset, begin, stop in zip(*runs, strict=True):
        for at in range(begin, stop, _LARGEST):
            piece = (source, offset + at - begin, at, min(stop, at + _LARGEST))
            last = requests[-1] if requests else []
            if last and _is_near(last, piece):
                last.append(piece)
            else:
                requests.append([piece])
    overlapped([partial(_fill, sources[pieces[0][0]], pieces, view) for pieces in requests])


def _is_near(pieces: list[tuple[int, int, int, int]], piece: tuple[int, int, int, int]) -> bool:
    source, offset, begin, stop = pieces[-1]
    gap = piece[1] - offset - (stop - begin)
    whole = piece[1] + piece[3] - piece[2] - pieces[0][1]
    return source == piece[0] and 0 <= gap <= _GAP and whole <= _LARGEST


def _fill(source: RemoteFile, pieces: list[tuple[int, int, int, int]], view: memoryview) -> None:
    start, (_, offset, begin, stop) = pieces[0][1], pieces[-1]
    data = source.read(start, offset + stop - begin - start)
    for _, offset, begin, stop in pieces:
        view[begin:stop] = data[offset - start : offset - start + stop - begin]


def overlapped(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of these calls, which wait for a store, in order; many are under way at a time.

    Calls made by such a call are made one after the other: threads that wait for each other would wait for ever.
    """
    if len(calls) < 2 or getattr(_THREAD, "is_ours", False):
        return [call() for call in calls]
    with _LOCK:
        pool = _pool(os.getpid())
    return [found.result() for found in [pool.submit(call) for call in calls]]


_LOCK = threading.Lock()
_THREAD = threading.local()


@lru_cache(maxsize=4)
def _pool(pid: int) -> ThreadPoolExecutor:  # workers are forked: threads of the parent do not run in them
    return ThreadPoolExecutor(AT_ONCE, "dovetail-files", partial(setattr, _THREAD, "is_ours", True))


@lru_cache(maxsize=64)
def _system(pid: int, scheme: str, host: str, access: Access | None) -> fs.FileSystem:
    if scheme == "hdfs":
        return hdfs_system(host, _hdfs_access(access))
    found = access if isinstance(access, S3Access) else S3Access()
    endpoint = urlsplit(found.endpoint if "://" in found.endpoint else f"//{found.endpoint}")
    with _connections(AT_ONCE):
        return _s3_system(found, endpoint)


def _hdfs_access(access: Access | None) -> HdfsAccess:
    return access if isinstance(access, HdfsAccess) else HdfsAccess()


@contextlib.contextmanager
def _connections(most: int) -> Iterator[None]:
    """Let Arrow keep that many connections to a store made in this block: as many as it has threads, at least 25."""
    threads = pa.io_thread_count()
    pa.set_io_thread_count(max(threads, most))
    try:
        yield
    finally:
        pa.set_io_thread_count(threads)


def _s3_system(found: S3Access, endpoint: SplitResult) -> fs.FileSystem:
    return fs.S3FileSystem(
        access_key=found.key or None,
        secret_key=found.secret or None,
        session_token=found.token or None,
        anonymous=found.anonymous,
        region=found.region or None,
        scheme=endpoint.scheme or ("https" if found.ssl else "http"),
        endpoint_override=endpoint.netloc or None,
        force_virtual_addressing=bool(endpoint.netloc) and not found.path_style,
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=found.attempts),
    )


@lru_cache(maxsize=64)
def _client(pid: int, access: S3Access) -> Any:
    scheme = "https" if access.ssl else "http"
    endpoint = access.endpoint if "://" in access.endpoint or not access.endpoint else f"{scheme}://{access.endpoint}"
    botocore = _botocore()
    options = botocore.config.Config(
        s3={"addressing_style": "path" if access.path_style else "auto"},
        retries={"total_max_attempts": access.attempts, "mode": "standard"},
    )
    return botocore.session.get_session().create_client(
        "s3",
        region_name=access.region or None,
        endpoint_url=endpoint or None,
        aws_access_key_id=access.key or None,
        aws_secret_access_key=access.secret or None,
        aws_session_token=access.token or None,
        config=options,
    )


def _botocore() -> Any:
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError as error:
        raise ConfigError(
            "places on S3 need botocore, for writes that only the first of several writers makes: "
            "pip install 'dovetail[s3]', on executors too."
        ) from error
    return botocore


@contextlib.contextmanager
def reaching(place: object) -> Iterator[None]:
    """Errors of a remote file system with its place, and with a reason where others have one."""
    try:
        yield
    except OSError as error:
        if not isinstance(place, Remote) or error.strerror is not None:
            raise
        raise OSError(errno.EIO, f"{place}: {error}") from error
