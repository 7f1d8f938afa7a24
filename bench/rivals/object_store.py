"""An object store with the protocol of S3, in memory, for tests and benchmarks: slow or unavailable on request."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
import uuid
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

KEY, SECRET = "reader-of-tests", "secret-of-tests-5f1c"


def settings_of(endpoint: str) -> dict[str, str]:
    """The settings with which Spark reaches a store at this address."""
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


class Object(NamedTuple):
    """An object under a key; readers compare the tag, to see that they read one object."""

    data: bytes
    at: float
    tag: str


class ObjectStore(ThreadingHTTPServer):
    """The server, with one bucket. A context manager.

    `latency_s` is added to every request. `down` answers 503 to all of them. `requests` counts them by method, `sent`
    the bytes of objects, and `most_at_once` the requests that were under way together.
    `forgetful` accepts conditional writes as if they had no condition, as some stores do. `unsettled` of the next
    conditional writes are answered 409, as by a store that is not done with another one.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, bucket: str = "data", latency_s: float = 0.0, address: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((address, port), _Handler)
        self.bucket, self.latency_s, self.down, self.forgetful = bucket, latency_s, False, False
        self.unsettled = 0
        self.objects: dict[str, Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: Counter[str] = Counter()
        self.sent = self.under_way = self.most_at_once = 0
        self.guard = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        """The address that clients are given."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which Spark reaches it."""
        return settings_of(self.endpoint)

    def put(self, key: str, data: bytes, only_new: bool = False) -> bool:
        """Store an object; False if it must be new and is not."""
        with self.guard:
            if only_new and not self.forgetful and key in self.objects:
                return False
            self.objects[key] = Object(data, time.time(), _etag(data))
            return True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that went away are no error."""

    def __enter__(self) -> ObjectStore:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ObjectStore
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def handle_one_request(self) -> None:
        self.wfile = _Buffered(self.connection)  # type: ignore[assignment]  # headers and body in one packet
        super().handle_one_request()

    def handle_expect_100(self) -> bool:
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _begin(self) -> tuple[str, dict[str, str], bytes]:
        body = self._body()
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        self._wait()
        if bucket != self.server.bucket:
            raise _RefusalError(404, "NoSuchBucket")
        if self.server.down:
            raise _RefusalError(503, "SlowDown")
        if KEY not in self.headers.get("Authorization", ""):
            raise _RefusalError(403, "AccessDenied")
        return key, query, body

    def _wait(self) -> None:
        server = self.server
        with server.guard:
            server.requests[self.command] += 1
            server.under_way += 1
            server.most_at_once = max(server.most_at_once, server.under_way)
        time.sleep(server.latency_s)
        with server.guard:
            server.under_way -= 1

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            data = _unchunked(self.rfile)
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        signed = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _unchunked(BytesIO(data)) if signed and data else data

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            with self.server.guard:
                self.server.sent += len(body)
        self.wfile.flush()

    def _xml(self, text: str, status: int = 200) -> None:
        self._answer(status, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), Content_Type="application/xml")

    def _served(self) -> None:
        try:
            getattr(self, f"_{self.command.lower()}")(*self._begin())
        except _RefusalError as refused:
            self._xml(f"<Error><Code>{refused.code}</Code><Message>{refused.code}</Message></Error>", refused.status)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _served  # noqa: N815  (the names that http.server calls)

    def _found(self, key: str) -> Object:
        try:
            return self.server.objects[key]
        except KeyError:
            raise _RefusalError(404, "NoSuchKey") from None

    def _head(self, key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            return self._answer(200)
        found = self._found(key)
        return self._answer(200, b"", Content_Length=str(len(found.data)), **_stamps(found))

    def _get(self, key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            return self._xml(_listing(self.server, query))
        found = self._found(key)
        data = found.data
        if self.headers.get("If-Match", found.tag) != found.tag:
            raise _RefusalError(412, "PreconditionFailed")
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, data, **_stamps(found))
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(len(data), int(last or len(data) - 1) + 1)
        if start >= stop:
            raise _RefusalError(416, "InvalidRange")
        span = f"bytes {start}-{stop - 1}/{len(data)}"
        return self._answer(206, data[start:stop], Content_Range=span, **_stamps(found))

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            if query["uploadId"] not in self.server.uploads:
                raise _RefusalError(404, "NoSuchUpload")
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self._answer(200, ETag=_etag(body))
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            body = self._found(unquote(source).lstrip("/").partition("/")[2]).data
        if self.server.unsettled and self.headers.get("If-None-Match") == "*":
            self.server.unsettled -= 1
            raise _RefusalError(409, "ConditionalRequestConflict")
        if not self.server.put(key, body, self.headers.get("If-None-Match") == "*"):
            raise _RefusalError(412, "PreconditionFailed")
        if source is not None:
            stamp = f"<LastModified>{_time(time.time())}</LastModified>"
            return self._xml(f"<CopyObjectResult>{stamp}<ETag>{_etag(body)}</ETag></CopyObjectResult>")
        return self._answer(200, ETag=_etag(body))

    def _post(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            names = [node.text or "" for node in ElementTree.fromstring(body).iter() if node.tag.endswith("Key")]  # noqa: S314  (our own client's)
            for name in names:
                self.server.objects.pop(name, None)
            return self._xml("<DeleteResult/>")
        if "uploads" in query:
            number = uuid.uuid4().hex
            self.server.uploads[number] = {}
            return self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self.server.uploads.get(query["uploadId"])
        if parts is None:
            raise _RefusalError(404, "NoSuchUpload")
        data = b"".join(parts[number] for number in sorted(parts))
        if not self.server.put(key, data, self.headers.get("If-None-Match") == "*"):
            raise _RefusalError(412, "PreconditionFailed")
        self.server.uploads.pop(query["uploadId"], None)
        return self._xml(f"<CompleteMultipartUploadResult><ETag>{_etag(data)}</ETag></CompleteMultipartUploadResult>")

    def _delete(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.server.uploads.pop(query["uploadId"], None)
        else:
            self.server.objects.pop(key, None)
        self._answer(204)


class _RefusalError(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Buffered:
    """A writer whose parts are sent at once."""

    closed = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._parts = connection, list[bytes]()

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def flush(self) -> None:
        data, self._parts = b"".join(self._parts), []
        if data:
            self._connection.sendall(data)

    def close(self) -> None:
        self._parts = []


def _unchunked(source: BufferedIOBase) -> bytes:
    """The content of chunks, each after its size, up to an empty one; signatures and trailers are left out."""
    found: list[bytes] = []
    while True:
        size = int(source.readline().partition(b";")[0], 16)
        if not size:
            while source.readline().strip():
                pass
            return b"".join(found)
        found.append(source.read(size))
        source.readline()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _stamps(found: Object) -> dict[str, str]:
    return {"Last_Modified": formatdate(found.at, usegmt=True), "ETag": found.tag, "Accept_Ranges": "bytes"}


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))


def _listing(store: ObjectStore, query: dict[str, str]) -> str:
    """A page of keys, and of their common beginnings up to the delimiter."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after") or ""
    most = int(query.get("max-keys") or 1000)
    with store.guard:
        known = {key: found for key, found in store.objects.items() if key.startswith(prefix)}
    shown: dict[str, str] = {}
    for key in sorted(known):
        inside = key[len(prefix) :]
        if delimiter and delimiter in inside:
            name = prefix + inside.partition(delimiter)[0] + delimiter
            shown[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        else:
            found = known[key]
            shown[key] = (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_time(found.at)}</LastModified>"
                f"<ETag>{escape(found.tag)}</ETag><Size>{len(found.data)}</Size>"
                f"<StorageClass>STANDARD</StorageClass></Contents>"
            )
    names = [name for name in sorted(shown) if name > after]
    page = names[:most]
    more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > most else ""
    return (
        f"<ListBucketResult><Name>{store.bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(len(names) > most).lower()}</IsTruncated>{more}"
        f"{''.join(shown[name] for name in page)}</ListBucketResult>"
    )
