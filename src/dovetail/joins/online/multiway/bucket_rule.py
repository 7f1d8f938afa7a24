"""Which buckets a row of a multiway join belongs to: all cells that agree with its keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.bucket_rule import Homes, bucket_of, rule_text
from dovetail.joins.online.multiway.cells import Cells
from dovetail.joins.online.multiway.keys import MultiKeys

_APART = 0x632BE59BD9B4E019  # axes hash differently, so that equal values do not meet on a diagonal


class MultiBucketRule:
    """The buckets of rows, the same in every process."""

    def __init__(self, cells: Cells, schemas: Mapping[str, pa.Schema]) -> None:
        self._cells, self._keys = cells, MultiKeys(cells.graph, schemas)
        self.count = cells.count
        steps = np.cumprod([1, *cells.shares[:-1]])
        self._steps = [int(step) for step in steps]

    @property
    def rule(self) -> str:
        """All that a row's bucket depends on, beyond the predicates, as text."""
        return rule_text(buckets=self.count, shares=self._cells.shares)

    def homes(self, relation: int, batch: pa.RecordBatch) -> Homes:
        """The buckets of an input's rows; rows without a key are dropped."""
        key, valid = self._keys.encode(relation, batch)
        rows = np.flatnonzero(valid)
        own = self._cells.axes_of(relation)
        bucket = np.zeros(len(rows), np.int64)
        for axis, attribute in own.items():
            salt = np.int64(np.uint64((axis * _APART) % 2**64).view(np.int64))
            with np.errstate(over="ignore"):
                bucket += self._steps[axis] * bucket_of(key[attribute][rows] + salt, self._cells.shares[axis])
        offsets = self._offsets(set(own))
        homes = (bucket[:, None] + offsets[None, :]).reshape(-1)
        order = np.argsort(homes, kind="stable")
        return Homes(np.repeat(rows, len(offsets))[order], homes[order], batch.num_rows - len(rows))

    def _offsets(self, own: set[int]) -> I64:
        """The cells along all axes on which an input has no place."""
        found = np.zeros(1, np.int64)
        for axis, (share, step) in enumerate(zip(self._cells.shares, self._steps, strict=True)):
            if axis not in own:
                found = (found[:, None] + step * np.arange(share)[None, :]).reshape(-1)
        return found
