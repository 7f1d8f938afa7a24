"""Many Arrow messages made one batch: as Arrow does it, for whatever messages there may be."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from dovetail.joins.semistream.kernels import message_parts as kernels
from dovetail.joins.semistream.master.page_file.decode import joined_pages

SCHEMA = pa.schema(
    [("k", pa.int32()), ("t", pa.string()), ("w", pa.large_binary()), ("b", pa.bool_()), ("d", pa.date32())]
)


def rows(rng: np.random.Generator, n: int, nulls: float) -> pa.RecordBatch:
    def some(values: list[object]) -> list[object]:
        return [None if rng.random() < nulls else value for value in values]

    texts = ["é" * int(x) for x in rng.integers(0, 5, n)]
    columns = [list(range(n)), texts, [t.encode() for t in texts], [x > 3 for x in range(n)], list(range(n))]
    arrays = [pa.array(some(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]  # type: ignore[arg-type]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def laid_out(messages: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Messages one after the other, each at a multiple of 64."""
    padded = [message + bytes(-len(message) % 64) for message in messages]
    stops = np.cumsum([len(message) for message in padded]).astype(np.int64)
    data = np.frombuffer(b"".join(padded), np.uint8)
    starts = stops - np.array([len(message) for message in padded], np.int64)
    for array in (starts, stops):
        array.flags.writeable = False
    return data, starts, stops


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_joined_pages_are_the_batches_one_after_the_other(nulls: float, codec: str | None) -> None:
    rng = np.random.default_rng(1)
    whole = rows(rng, 500, nulls)
    cuts = [0, 0, 1, 9, 40, 41, 300, 500]
    batches = [whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    options = pa.ipc.IpcWriteOptions(compression=codec)
    messages = []
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
            stream.write_batch(batch)
        messages.append(next(m for m in pa.ipc.MessageReader.open_stream(sink.getvalue()) if m.type == "record batch"))
    data, starts, stops = laid_out([m.serialize(alignment=8).to_pybytes() for m in messages])
    found = joined_pages(data, starts, stops, SCHEMA)
    found.validate(full=True)
    assert found.equals(whole)
    parts = kernels.empty_parts(len(starts), 5, 12)
    assert kernels.message_parts(data, starts, stops, parts) == (codec is None)


def test_what_is_no_record_batch_is_an_error() -> None:
    data, starts, stops = laid_out([SCHEMA.serialize().to_pybytes(), bytes(100)])
    with pytest.raises((pa.ArrowException, OSError)):
        joined_pages(data, starts, stops, SCHEMA)
