"""The object store of the cluster, on a host of its own: all that hosts share but the network.

`python -m tests.cluster.store` is the server. Signal USR1 has it refuse all requests until the next one.
"""

from __future__ import annotations

import signal
import threading
import time

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from bench.rivals.object_store import KEY, SECRET, ObjectStore, settings_of
from tests.cluster.hosts import STORE

from dovetail.engine.storage.remote import Remote, S3Access

PORT = 9000
ENDPOINT = f"http://{STORE.name}:{PORT}"
SETTINGS = settings_of(ENDPOINT)
"""With which Spark reaches it."""
_ACCESS = S3Access(endpoint=ENDPOINT, region="us-east-1", key=KEY, secret=SECRET, path_style=True, ssl=False)


def place_for(name: str) -> Remote:
    """A directory of the store."""
    return Remote(f"s3a://data/{name}", _ACCESS)


def write_table(table: pa.Table, place: Remote) -> None:
    """Write a Parquet file."""
    pq.write_table(table, place.path, filesystem=place.system)


def read_tables(place: Remote, columns: list[str]) -> pa.Table:
    """All Parquet files of a directory; hidden ones do not count."""
    return pq.read_table(place.path, filesystem=place.system, columns=columns)


def refuse(seconds: float) -> None:
    """Have the store refuse all requests for a while."""
    (server,) = (one for one in psutil.process_iter(["cmdline"]) if (one.info["cmdline"] or [])[1:] == ["-m", __name__])
    server.send_signal(signal.SIGUSR1)
    try:
        time.sleep(seconds)
    finally:
        server.send_signal(signal.SIGUSR1)


def main() -> None:
    """Serve until the host ends."""
    with ObjectStore(address="0.0.0.0", port=PORT) as server:  # noqa: S104  (a host that only the others reach)
        signal.signal(signal.SIGUSR1, lambda *_: setattr(server, "down", not server.down))
        threading.Event().wait()


if __name__ == "__main__":
    main()
