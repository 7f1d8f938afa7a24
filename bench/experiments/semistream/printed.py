"""The equations of Naeem 2012 as they are printed, those that experiments compare; the library has corrected ones.

Costs `c` are c_h (probe), c_o (output), c_e (remove), c_s (take from the stream), c_a (admit) and c_f (compare), in
seconds; each equation takes those that it names.
"""

from __future__ import annotations

import math

from dovetail.joins.semistream.cost.setting import SOURCE_COSTS

UNITS = {"c_h": SOURCE_COSTS.probe, "c_o": SOURCE_COSTS.emit, "c_e": SOURCE_COSTS.evict, "c_s": SOURCE_COSTS.receive,
         "c_a": SOURCE_COSTS.admit}  # fmt: skip
GAMMA = 0.5772
"""Euler's constant to the places that the source prints."""
Parts3 = tuple[float, float, float]


def eq_3_2(*, c_io: float, w: float, b: float, v_p: float, v_r: float, sigma: float, **c: float) -> float:
    """c_loop; sigma, which the source never defines, is results per probed master row."""
    rows = b * v_p / v_r
    return c_io + w * (c["c_e"] + c["c_s"] + c["c_a"]) + rows * c["c_h"] + sigma * rows * c["c_o"]


def eq_3_3(*, memory: float, b: float, v_p: float, v_s: float, n_r: float, q: float = 4, f: float = 4.8) -> float:
    """w from the memory: disk buffer, stream buffer, queue and hash table add up to it."""
    return (memory - b * v_p) / (v_s + (n_r / b) * q + (n_r / b) * v_s * f)


def eq_3_4(*, w: float, c_loop: float) -> float:
    """Service rate mu: rows of an iteration over its seconds."""
    return w / c_loop


eq_5_4 = eq_6_6 = eq_3_4


def queue_ratio(*, v_s: float, q: float = 4, f: float = 8) -> float:
    """r: bytes of the queue for each byte of the hash table."""
    return q / (f * v_s)


def alpha_4(*, v_s: float, q: float = 4, f: float = 8) -> float:
    """alpha = 1 / (1 + r), the hash table's part of what the disk buffer leaves; not printed, but it fits table 4.2."""
    return 1 / (1 + queue_ratio(v_s=v_s, q=q, f=f))


def eq_4_1(*, memory: float, b: float, v_p: float, alpha: float) -> Parts3:
    """Disk buffer, hash table H_m and queue Q_m; they add to M whatever alpha is, so that nothing is constrained."""
    return eq_5_1(memory=memory, buffer=b * v_p, alpha=alpha)


def eq_4_2(*, h_s: float, n_p: float, parts: float) -> float:
    """w = h_S / Q_p, Q_p = n_p l."""
    return h_s / (n_p * parts)


def eq_4_3(*, c_io: float, w: float, b: float, parts: float, v_p: float, v_r: float, **c: float) -> float:
    """c_loop of one logical part; output is charged per master row, where results are per stream tuple."""
    rows = (b / parts) * (v_p / v_r)
    return c_io / parts + w * (c["c_e"] + c["c_s"] + c["c_a"]) + rows * (c["c_h"] + c["c_o"])


def eq_5_1(*, memory: float, buffer: float, alpha: float) -> Parts3:
    """Disk buffer, hash table, queue: an identity, as 4.1."""
    rest = memory - buffer
    return buffer, alpha * rest, (1 - alpha) * rest


def eq_5_2(*, h_s: float, d: float, r_t: float, kappa: float = 1.36) -> float:
    """w = kappa h_S d / R_t with a measured kappa; 2 is its value where every segment is asked for several times."""
    return kappa * h_s * d / r_t


def eq_5_3(*, c_io: float, d: float, w: float, **c: float) -> float:
    """c_loop."""
    return c_io + d * c["c_h"] + w * (c["c_o"] + c["c_e"] + c["c_s"] + c["c_a"])


def eq_6_5(*, c_io: float, d_s: float, d_n: float, w: float, **c: float) -> float:
    """c_loop of the tuned X-HYBRIDJOIN."""
    return eq_5_3(c_io=c_io, d=d_n + d_s, w=w, **c)


def harmonic(n: float) -> float:
    """The sum of 1/x up to n as the source has it: ln n + gamma."""
    return math.log(n) + GAMMA


def eq_6_7(*, d_s: float, d_n: float, r_t: float) -> float:
    """p_old = 1/n, the mean share of a swappable partition."""
    return d_s / (r_t - d_n)


def eq_6_8(*, d_s: float, d_n: float, r_t: float) -> float:
    """p_new = p_N + p_S / n."""
    p_n = harmonic(d_n) / harmonic(r_t)
    return p_n + (1 - p_n) * eq_6_7(d_s=d_s, d_n=d_n, r_t=r_t)


def eq_6_9(*, h_s: float, d_s: float, d_n: float, r_t: float) -> float:
    """w as printed: the variance p (1 - p) of a trial stands where its mean belongs."""
    old, new = eq_6_7(d_s=d_s, d_n=d_n, r_t=r_t), eq_6_8(d_s=d_s, d_n=d_n, r_t=r_t)
    return h_s * old * (1 - old) / (1 + old * (1 - old) - new * (1 - new))


def eq_7_2(*, c_io: float, d: float, w_s: float, w_n: float, **c: float) -> float:
    """c_loop; tuples that missed H_R are not charged for that probe."""
    return eq_5_3(c_io=c_io, d=d, w=w_s, **c) + w_n * (c["c_h"] + c["c_o"] + c["c_s"])


def eq_7_3(*, w_n: float, w_s: float, c_loop: float) -> float:
    """Service rate mu."""
    return (w_n + w_s) / c_loop


def eq_7_4(*, h_r: float, r_t: float) -> float:
    """p_N, about ln h_R / ln R_t."""
    return math.log(h_r) / math.log(r_t)


def eq_7_6(*, p_n: float, tuples: float, iterations: float) -> float:
    """w_N from the tuples of a whole run, whose number per iteration is the unknown itself."""
    return p_n * tuples / iterations


def eq_7_7(*, d: float, h_r: float, r_t: float) -> float:
    """p_S, the share of one partition, taken of all master data where only the tail belongs."""
    n = (r_t - h_r) / d
    return (math.log(r_t) - math.log(h_r + 1)) / (n * (math.log(r_t) + GAMMA))


def eq_7_9(*, h_s: float, p_s: float) -> float:
    """w_S = p_S h_S."""
    return h_s * p_s


def eq_8_1(*, c_io: float, d: float, w_s: float, w_n: float, c_f: float, **c: float) -> float:
    """c_loop of CACHEJOIN; every row of the segment is charged a comparison, where only matching ones are compared."""
    return eq_7_2(c_io=c_io, d=d, w_s=w_s, w_n=w_n, **c) + d * c_f
