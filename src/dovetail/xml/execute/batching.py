"""Rows of Python values as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

ROWS = 2048
"""Rows of a batch."""


def batched(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of these rows, in order; none if there are no rows."""
    source = iter(rows)
    while some := list(islice(source, ROWS)):
        columns = [pa.array(cells, field.type) for cells, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
