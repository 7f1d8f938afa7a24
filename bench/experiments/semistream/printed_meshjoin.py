"""MESHJOIN's and R-MESHJOIN's equations as they are printed, for comparison; the corrected ones are in `meshjoin`.

Symbols are the source's: b pages in the disk buffer, v_p, v_r, v_s bytes of a page, master row and stream tuple, n_r
pages of master data, q bytes of a pointer, f the fudge factor, l logical parts, n_p partitions. Seconds throughout: the
printed 10^-9 only turns nanoseconds into seconds.
Reference: Naeem 2012, chapters 3 and 4; docs/algorithms/semistream.md, 3.1 and 3.2.
"""

from __future__ import annotations


def eq_3_1(*, b: float, v_p: float, w: float, v_s: float, n_r: float, q: float = 4, f: float = 4.8) -> float:
    """Memory M: disk buffer, stream buffer, queue, hash table."""
    return b * v_p + w * v_s + w * (n_r / b) * q + w * f * (n_r / b) * v_s


def eq_3_2(
    *,
    c_io: float,
    w: float,
    b: float,
    v_p: float,
    v_r: float,
    sigma: float,
    c_e: float,
    c_s: float,
    c_a: float,
    c_h: float,
    c_o: float,
) -> float:
    """c_loop; sigma, which the source never defines, is results per probed master row."""
    rows = b * v_p / v_r
    return c_io + w * (c_e + c_s + c_a) + rows * c_h + sigma * rows * c_o


def eq_3_3(*, memory: float, b: float, v_p: float, v_s: float, n_r: float, q: float = 4, f: float = 4.8) -> float:
    """w from the memory: (3.1) solved."""
    return (memory - b * v_p) / (v_s + (n_r / b) * q + (n_r / b) * v_s * f)


def eq_3_4(*, w: float, c_loop: float) -> float:
    """Service rate mu; with (3.3) inserted for w it is (3.5)."""
    return w / c_loop


def eq_3_5(
    *, memory: float, b: float, v_p: float, v_s: float, n_r: float, c_loop: float, q: float = 4, f: float = 4.8
) -> float:
    """Service rate mu from the memory."""
    return eq_3_4(w=eq_3_3(memory=memory, b=b, v_p=v_p, v_s=v_s, n_r=n_r, q=q, f=f), c_loop=c_loop)


def queue_ratio(*, v_s: float, q: float = 4, f: float = 8) -> float:
    """r: bytes of the queue for each byte of the hash table."""
    return q / (f * v_s)


def alpha_4(*, v_s: float, q: float = 4, f: float = 8) -> float:
    """alpha = 1 / (1 + r), the hash table's part of what the disk buffer leaves; not printed, but it fits table 4.2."""
    return 1 / (1 + queue_ratio(v_s=v_s, q=q, f=f))


def eq_4_1(*, memory: float, b: float, v_p: float, alpha: float) -> tuple[float, float, float]:
    """Disk buffer, hash table H_m and queue Q_m; they add to M whatever alpha is, so that nothing is constrained."""
    rest = memory - b * v_p
    return b * v_p, alpha * rest, (1 - alpha) * rest


def eq_4_2(*, h_s: float, n_p: float, parts: float) -> float:
    """w = h_S / Q_p, Q_p = n_p l."""
    return h_s / (n_p * parts)


def eq_4_3(
    *,
    c_io: float,
    w: float,
    b: float,
    parts: float,
    v_p: float,
    v_r: float,
    c_e: float,
    c_s: float,
    c_a: float,
    c_h: float,
    c_o: float,
) -> float:
    """c_loop of one logical part; output is charged per master row, where results are per stream tuple."""
    return c_io / parts + w * (c_e + c_s + c_a) + (b / parts) * (v_p / v_r) * (c_h + c_o)


def eq_4_4(*, w: float, c_loop: float) -> float:
    """Service rate mu."""
    return w / c_loop


def eq_4_5(
    *,
    memory: float,
    b: float,
    v_p: float,
    alpha: float,
    n_p: float,
    parts: float,
    v_s: float,
    c_loop: float,
    f: float = 8,
) -> float:
    """Service rate mu with (4.2) inserted."""
    return alpha * (memory - b * v_p) / (n_p * parts * v_s * f * c_loop)
