"""The shop: its four tables fit together, and their columns follow the laws they state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.workloads.goodness import ENOUGH, chi_square_p, ks_p

from dovetail.errors import PlanError
from dovetail.workloads import orders, products, promotions, shipments
from dovetail.workloads.retail import CATEGORIES, WAREHOUSES

DAY_US = 86_400_000_000
START = 1_704_067_200_000_000


def micros(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


def test_every_order_names_a_product_and_costs_what_the_product_costs() -> None:
    bought = orders(rows=50_000, products=300, seed=3).table()
    sold = products(products=300, seed=3).table()
    assert np.array_equal(sold["product_id"], np.arange(1, 301))
    price = sold["price_cents"].to_numpy()[bought["product_id"].to_numpy() - 1]
    assert np.array_equal(bought["amount_cents"], bought["quantity"].to_numpy() * price)
    assert price.min() >= 100
    assert price.max() < 50_000


def test_popular_products_are_zipf_and_scattered() -> None:
    ids = orders(rows=100_000, products=500, seed=4).table()["product_id"].to_numpy()
    counts = np.bincount(ids, minlength=501)[1:]
    ranked = np.repeat(np.arange(500), np.sort(counts)[::-1])
    top_share = (ranked < 10).mean()
    law = 1 / np.arange(1, 501)
    assert top_share == pytest.approx(law[:10].sum() / law.sum(), abs=0.01)
    assert counts.argmax() != 0


def test_orders_arrive_as_a_poisson_process_over_the_days() -> None:
    at = micros(orders(rows=40_000, days=10, seed=5).table()["at"])
    assert at[0] >= START
    assert at[-1] == pytest.approx(START + 10 * DAY_US, rel=1e-3)
    gap = 10 * DAY_US / 40_000
    assert ks_p(np.diff(at) / gap, stats.expon.cdf) > ENOUGH


def test_quantities_prices_and_categories_are_spread_evenly() -> None:
    table = orders(rows=60_000, seed=6).table()
    assert chi_square_p(table["quantity"].to_numpy(), np.full(5, 0.2), first=1) > ENOUGH
    assert set(table["customer_id"].to_numpy().tolist()) <= set(range(1, 5001))
    goods = products(products=40_000, seed=6).table()
    assert ks_p((goods["price_cents"].to_numpy() - 100) / 49_900, stats.uniform.cdf) > ENOUGH
    codes = goods["category"].combine_chunks().dictionary_encode()
    assert set(codes.dictionary.to_pylist()) == set(CATEGORIES)
    assert chi_square_p(codes.indices.to_numpy().astype(np.int64), np.full(8, 1 / 8)) > ENOUGH


def test_shipments_belong_to_the_orders_and_leave_after_them() -> None:
    parameters = {"rows": 40_000, "products": 100, "days": 5.0, "seed": 7}
    bought = orders(**parameters).table()  # type: ignore[arg-type]  # a mixed mapping
    sent = shipments(**parameters).table()  # type: ignore[arg-type]  # a mixed mapping
    assert sent["order_id"].equals(bought["order_id"])
    assert sent["product_id"].equals(bought["product_id"])
    hours = (micros(sent["shipped_at"]) - micros(bought["at"])) / (DAY_US / 24)
    assert ks_p((hours - 1) / 47, stats.uniform.cdf) > ENOUGH
    way = (micros(sent["received_at"]) - micros(sent["shipped_at"])) / DAY_US - 0.25
    assert ks_p(way / 2, stats.expon.cdf) > ENOUGH
    assert set(sent["warehouse"].to_pylist()) == set(WAREHOUSES)


def test_promotions_last_from_an_hour_to_three_weeks() -> None:
    table = promotions(rows=40_000, products=50, days=30, seed=8).table()
    start, end = micros(table["starts_at"]), micros(table["ends_at"])
    assert ks_p((start - START) / (30 * DAY_US), stats.uniform.cdf) > ENOUGH
    hours = (end - start) / (DAY_US / 24)
    assert ks_p(np.log(hours) / np.log(21 * 24), stats.uniform.cdf) > ENOUGH
    assert chi_square_p(table["percent"].to_numpy() // 5, np.full(10, 0.1), first=1) > ENOUGH
    assert chi_square_p(table["product_id"].to_numpy(), np.full(50, 0.02), first=1) > ENOUGH


def test_a_shop_that_cannot_be_is_refused() -> None:
    with pytest.raises(PlanError, match="products must be an integer >= 1"):
        orders(products=0)
    with pytest.raises(PlanError, match="days must be positive"):
        shipments(days=0)
    with pytest.raises(PlanError, match="customers must be an integer"):
        orders(customers=0)
