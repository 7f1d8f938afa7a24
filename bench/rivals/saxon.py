"""SaxonC-HE in a process of its own: `python -m bench.rivals.saxon` answers queries, a line of JSON each.

One processor lives as long as the process, so that a second run of a query is a warm one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dovetail.errors import ConfigError


def located(query: str, places: Mapping[str, Path]) -> str:
    """The query with addresses that Saxon reads in place of the names of collections."""
    for name, place in places.items():
        query = query.replace(f'collection("{name}")', f'collection("{place.resolve().as_uri()}?select=*.xml")')
    return query


class Saxon:
    """A process that answers queries; a context manager that ends it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)  # noqa: S603  (our own module)

    def items(self, query: str) -> list[str]:
        """The items of the answer, nodes as markup."""
        assert self._process.stdin is not None  # noqa: S101  (both are pipes)
        assert self._process.stdout is not None  # noqa: S101  (as above)
        self._process.stdin.write(json.dumps(query) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ConfigError("SaxonC-HE ended before it answered; it may need more memory than there is.")
        found: list[str] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


def serve() -> None:
    """Answer the queries that come in, until there are no more."""
    from saxonche import PySaxonProcessor

    with PySaxonProcessor(license=False) as processor:
        for line in sys.stdin:
            found: Any = processor.new_xquery_processor().run_query_to_value(query_text=json.loads(line))
            print(json.dumps([str(item) for item in found or ()]), flush=True)


if __name__ == "__main__":
    serve()
