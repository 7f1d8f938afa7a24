"""Optimised X-HYBRIDJOIN's and CACHEJOIN's equations as they are printed, for comparison.

Symbols are the source's; doubling factors are the factors by which a share changes when one size doubles. What to
use instead stands in `cached`.
Reference: Naeem 2012, chapters 7 and 8; docs/algorithms/semistream.md, 3.7 and 3.8.
"""

from __future__ import annotations

import math

from bench.experiments.semistream.printed_hybridjoin import GAMMA


def eq_7_1(*, memory: float, swappable: float, pinned: float, alpha: float) -> tuple[float, float, float, float]:
    """Disk buffer, H_R, H_S and queue: an identity, in which H_R has no overhead though it is a hash table."""
    rest = memory - swappable - pinned
    return swappable, pinned, alpha * rest, (1 - alpha) * rest


def eq_7_2(
    *,
    c_io: float,
    d: float,
    w_s: float,
    w_n: float,
    c_h: float,
    c_o: float,
    c_e: float,
    c_s: float,
    c_a: float,
) -> float:
    """c_loop; tuples that missed H_R are not charged for that probe."""
    return c_io + d * c_h + w_s * (c_o + c_e + c_s + c_a) + w_n * (c_h + c_o + c_s)


def eq_7_3(*, w_n: float, w_s: float, c_loop: float) -> float:
    """Service rate mu."""
    return (w_n + w_s) / c_loop


def eq_7_4(*, h_r: float, r_t: float) -> float:
    """p_N, about ln h_R / ln R_t."""
    return math.log(h_r) / math.log(r_t)


def eq_7_5(*, h_r: float, r_t: float, phi_n: float, psi_n: float) -> float:
    """p_N as a power law in both sizes, from doubling factors; a ratio of logarithms is none."""
    return math.pow(r_t, math.log2(phi_n)) * math.pow(h_r, math.log2(psi_n))


def eq_7_6(*, p_n: float, tuples: float, iterations: float) -> float:
    """w_N from the tuples of a whole run, whose number per iteration is the unknown itself."""
    return p_n * tuples / iterations


def eq_7_7(*, d: float, h_r: float, r_t: float) -> float:
    """p_S, the share of one partition, taken of all master data where only the tail belongs."""
    n = (r_t - h_r) / d
    return (math.log(r_t) - math.log(h_r + 1)) / (n * (math.log(r_t) + GAMMA))


def eq_7_8(*, d: float, h_r: float, r_t: float, theta_s: float, psi_s: float, phi_s: float) -> float:
    """p_S as a power law in three sizes, from doubling factors."""
    return math.pow(d, math.log2(theta_s)) * math.pow(h_r, math.log2(psi_s)) * math.pow(r_t, math.log2(phi_s))


def eq_7_9(*, h_s: float, p_s: float) -> float:
    """w_S = p_S h_S."""
    return h_s * p_s


def eq_8_1(
    *,
    c_io: float,
    d: float,
    w_s: float,
    w_n: float,
    c_h: float,
    c_f: float,
    c_o: float,
    c_e: float,
    c_s: float,
    c_a: float,
) -> float:
    """c_loop of CACHEJOIN; every row of the segment is charged a comparison, where only matching ones are compared."""
    return c_io + d * (c_h + c_f) + w_s * (c_o + c_e + c_s + c_a) + w_n * (c_h + c_o + c_s)


def eq_8_2(*, w_n: float, w_s: float, c_loop: float) -> float:
    """Service rate mu."""
    return (w_n + w_s) / c_loop
