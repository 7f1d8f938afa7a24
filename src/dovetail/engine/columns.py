"""Arrow columns as operators handle them: rows by number, how many bytes they hold, copies that hold no more."""

from __future__ import annotations

import pyarrow as pa

from dovetail.engine.take import take_columns, take_runs, taken_bytes

__all__ = ["compact", "compact_bytes", "held_bytes", "nbytes", "take_columns", "take_runs", "taken_bytes"]


def nbytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Bytes of the rows themselves: of a slice only its own part, whatever it was cut from."""
    return int(batch.nbytes)


def held_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Bytes that this batch keeps alive: of a slice all that it was cut from, of shared buffers each once."""
    return int(batch.get_total_buffer_size())


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in memory of their own if the batch keeps more alive than it shows, else the batch itself."""
    return batch if held_bytes(batch) <= compact_bytes(batch) else pa.concat_batches([batch])


def compact_bytes(batch: pa.RecordBatch) -> int:
    """An upper bound of `held_bytes(compact(batch))`, for reserving before the copy is made."""
    return nbytes(batch) + 16 * sum(_n_buffers(field.type) for field in batch.schema)


def _n_buffers(kind: pa.DataType) -> int:
    own = kind.num_buffers or 3  # view types have as many as they need; a compact copy has one
    return own + sum(_n_buffers(kind.field(i).type) for i in range(kind.num_fields))
