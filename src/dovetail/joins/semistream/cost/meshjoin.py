"""MESHJOIN and R-MESHJOIN, and the disk buffer that serves them best, in closed form.

Reference: equation F5 of docs/algorithms/semistream.md, 3.1.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dovetail.joins.semistream.cost.setting import Prediction, Setting, capacity
from dovetail.joins.semistream.sizes import Sizes


def seek_equivalent_bytes(setting: Setting, *, sequential: bool = False) -> float:
    """a: the bytes whose transfer and probing take as long as one seek, from the costs of 64 KiB and 1 MiB."""
    costs = setting.costs
    small, large = 65_536.0, 1_048_576.0
    low, high = (costs.load_s(size, sequential=sequential) for size in (small, large))
    per_byte = max(0.0, high - low) / (large - small)
    seek = max(0.0, low - per_byte * small)
    return seek / (per_byte + costs.probe / setting.row_bytes) if seek else 0.0


def best_buffer_bytes(memory: float, a: float) -> float:
    """b* = -a + sqrt(a^2 + a M), about sqrt(a M): where b (M - b) / (a + b) is largest."""
    return -a + math.sqrt(a * a + a * memory)


def predict_meshjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """MESHJOIN with a disk buffer of d rows: w tuples enter and leave with each of n_p reads of a round.

    w = (M - b v_P) / (v_S + n_p (f v_S + q)), whole and at least 1; output is paid per result, not per master row.
    Reference: Naeem 2012, equations 3.1 to 3.5; docs/algorithms/semistream.md, 3.1.
    """
    n_p = -(-setting.master_rows // setting.segment_rows(sizes))
    per_tuple = setting.stream_bytes + n_p * setting.entries.chunked
    return _prediction("meshjoin", setting, sizes, n_p, per_tuple)


def predict_r_meshjoin(setting: Setting, sizes: Sizes) -> Prediction:
    """R-MESHJOIN: the buffer is worked through in `parts` parts, tuples enter and leave after each of them.

    h_S = (M - b v_P) / (f v_S + q) tuples in n_p l chunks. One part is MESHJOIN without a stream buffer in the count.
    Reference: Naeem 2012, equations 4.1 to 4.5; docs/algorithms/semistream.md, 3.2.
    """
    chunks = -(-setting.master_rows // setting.segment_rows(sizes)) * (sizes.parts or 1)
    return _prediction("r_meshjoin", setting, sizes, chunks, chunks * setting.entries.chunked)


def _prediction(algorithm: str, setting: Setting, sizes: Sizes, chunks: int, chunk_bytes: float) -> Prediction:
    spare = setting.entries.chunk_spare * setting.entries.chunked * chunks
    rows = setting.segment_rows(sizes)
    buffer = setting.buffer_bytes(rows) + spare
    costs, parts = setting.costs, (sizes.parts or 1) if algorithm == "r_meshjoin" else 1
    if sizes.waiting is None:
        w = capacity(setting, sizes, buffer, chunk_bytes)
    else:
        w = capacity(setting, sizes, buffer, setting.entries.chunked, least=chunks) // chunks
    nbytes = setting.read_bytes(rows)
    in_turn, anywhere = costs.load_s(nbytes, sequential=True), costs.load_s(nbytes)
    reading = in_turn + (anywhere - in_turn) * parts / chunks  # a round begins again at the other end
    return Prediction(
        algorithm=algorithm,
        sizes=replace(sizes, waiting=w * chunks),
        segment_rows=rows,
        w_n=0.0,
        w_s=float(w),
        step_s=(reading + rows * costs.probe) / parts,
        miss_s=costs.evict + costs.receive + costs.admit + setting.matched * costs.emit,
        hit_s=0.0,
        window=float(w * chunks),
        waiting=float(w * chunks),
        asked=float(chunks // parts),
        bound_steps=float(chunks),
        memory=(("disk buffer", buffer), ("waiting tuples", w * chunk_bytes)),
        steps_per_load=parts,
    )
