"""HYBRIDJOIN's and X-HYBRIDJOIN's equations as they are printed, for comparison.

Symbols are the source's; `buffer` is its v_P of chapter 5, which there means the whole disk buffer. What to use instead
stands in `hybridjoin` and `x_hybridjoin`.
Reference: Naeem 2012, chapters 5 and 6; docs/algorithms/semistream.md, 3.4 to 3.6.
"""

from __future__ import annotations

import math

GAMMA = 0.5772
"""Euler's constant to the places that the source prints."""


def eq_5_1(*, memory: float, buffer: float, alpha: float) -> tuple[float, float, float]:
    """Disk buffer, hash table, queue: an identity, as 4.1."""
    rest = memory - buffer
    return buffer, alpha * rest, (1 - alpha) * rest


def eq_5_2(*, h_s: float, d: float, r_t: float, kappa: float = 1.36) -> float:
    """w = kappa h_S d / R_t with a measured kappa; 2 is its value where every segment is asked for several times."""
    return kappa * h_s * d / r_t


def eq_5_3(*, c_io: float, d: float, w: float, c_h: float, c_o: float, c_e: float, c_s: float, c_a: float) -> float:
    """c_loop."""
    return c_io + d * c_h + w * (c_o + c_e + c_s + c_a)


def eq_5_4(*, w: float, c_loop: float) -> float:
    """Service rate mu."""
    return w / c_loop


def eq_6_1(*, memory: float, buffer: float, alpha: float) -> tuple[float, float, float]:
    """Both parts of the disk buffer, hash table, queue: an identity."""
    return eq_5_1(memory=memory, buffer=2 * buffer, alpha=alpha)


def eq_6_2(*, c_io: float, d: float, w: float, c_h: float, c_o: float, c_e: float, c_s: float, c_a: float) -> float:
    """c_loop of the untuned X-HYBRIDJOIN: two buffers of d rows are probed."""
    return eq_5_3(c_io=c_io, d=2 * d, w=w, c_h=c_h, c_o=c_o, c_e=c_e, c_s=c_s, c_a=c_a)


def eq_6_3(*, w: float, c_loop: float) -> float:
    """Service rate mu."""
    return w / c_loop


def eq_6_4(*, memory: float, swappable: float, pinned: float, alpha: float) -> tuple[float, float, float]:
    """Both parts of the disk buffer of their own sizes, hash table, queue: an identity."""
    return eq_5_1(memory=memory, buffer=swappable + pinned, alpha=alpha)


def eq_6_5(
    *,
    c_io: float,
    d_s: float,
    d_n: float,
    w: float,
    c_h: float,
    c_o: float,
    c_e: float,
    c_s: float,
    c_a: float,
) -> float:
    """c_loop of the tuned X-HYBRIDJOIN."""
    return eq_5_3(c_io=c_io, d=d_n + d_s, w=w, c_h=c_h, c_o=c_o, c_e=c_e, c_s=c_s, c_a=c_a)


def eq_6_6(*, w: float, c_loop: float) -> float:
    """Service rate mu."""
    return w / c_loop


def harmonic(n: float) -> float:
    """The sum of 1/x up to n as the source has it: ln n + gamma."""
    return math.log(n) + GAMMA


def partition_share(*, j: int, d_s: float, d_n: float, r_t: float) -> float:
    """p_j: the share of swappable partition j, counted from 1, among all swappable ones."""
    inside = harmonic(d_n + j * d_s) - harmonic(d_n + (j - 1) * d_s)
    return inside / (harmonic(r_t) - harmonic(d_n))


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


def eq_6_9_with_means(*, h_s: float, d_s: float, d_n: float, r_t: float) -> float:
    """(6.9) with p for p (1 - p): better, and still without the tuples that collect for a whole window."""
    old, new = eq_6_7(d_s=d_s, d_n=d_n, r_t=r_t), eq_6_8(d_s=d_s, d_n=d_n, r_t=r_t)
    return h_s * old / (1 + old - new)
