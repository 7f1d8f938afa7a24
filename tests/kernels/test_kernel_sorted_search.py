"""Blocked searches against NumPy's."""

from __future__ import annotations

import numpy as np

from dovetail.joins.semistream.kernels.byte_keys import count_below


def test_equals_searchsorted() -> None:
    rng = np.random.default_rng(0)
    extremes = np.array([-(2**63), 2**63 - 1, 0])
    for n_keys in (0, 1, 2, 3, 7, 64, 1000):
        for n_wanted in (0, 1, 63, 64, 65, 500):
            for span in (3, 1000, 2**62):
                keys = np.sort(np.append(rng.integers(-span, span, n_keys), extremes[: n_keys % 4]))
                wanted = np.append(rng.integers(-span - 1, span + 1, n_wanted), extremes)
                assert count_below(keys, wanted).tolist() == np.searchsorted(keys, wanted).tolist()
                right = np.searchsorted(keys, wanted, side="right")
                assert count_below(keys, wanted, or_equal=True).tolist() == right.tolist()
