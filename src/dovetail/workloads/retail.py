"""A small shop: orders, products, shipments, promotions, and its suppliers' price lists as XML files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.workloads.arrivals import Poisson
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    I64,
    TIMESTAMP,
    Workload,
    generator,
    mix64,
    require,
    require_count,
    require_seed,
    timestamps,
    uniforms,
    whole,
)
from dovetail.workloads.zipf import ZipfKeys

CATEGORIES = ("books", "garden", "kitchen", "music", "office", "outdoor", "toys", "tools")
WAREHOUSES = ("Hamburg", "Leipzig", "Lyon", "Madrid", "Turin")
_ADJECTIVES = ("blue", "compact", "folding", "heavy", "light", "plain", "quiet", "round", "small", "sturdy")
_NOUNS = ("basket", "bench", "box", "clock", "frame", "kettle", "lamp", "ladder", "mat", "rack", "stand", "tray")

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


def price_cents(products: I64, seed: int) -> I64:
    """The price of each product, from 1.00 to 499.99: the same for orders and products of one seed."""
    return (100 + mix64(products, seed * 16 + 1) % np.uint64(49_900)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Shop(Workload):
    """The common part of the four tables of a shop; tables of the same seed, products, days and orders fit together."""

    rows: int = 100_000
    products: int = 2_000
    days: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_count("rows", self.rows)
        require_count("products", self.products, 1)
        require(self.days > 0, f"days must be positive; it is {self.days}.")
        require_seed(self.seed)

    def _order_times(self, block: int, n: int) -> I64:
        return Poisson(self.days * _DAY_US / max(1, self.rows)).times_us(self.seed, "order", block, n, self.rows)

    def _order_products(self, block: int, n: int) -> I64:
        return ZipfKeys(self.products, 1.0, scattered=True).keys(self.seed, "order product", block, n)

    def _numbers(self, block: int, n: int) -> I64:
        return 1 + block * BLOCK_ROWS + np.arange(n, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Orders(_Shop):
    """`rows` orders over `days`: order_id, at, customer_id, product_id, quantity, amount_cents (quantity times price).

    They arrive as a Poisson process; products are Zipf with popular ones scattered, customers slightly skewed.
    More rows in the same days are not an extension of fewer: they come faster.
    """

    customers: int = 5_000

    def __post_init__(self) -> None:
        _Shop.__post_init__(self)
        require_count("customers", self.customers, 1)

    @property
    def schema(self) -> pa.Schema:
        """order_id, at, customer_id, product_id, quantity, amount_cents."""
        names = ["customer_id", "product_id", "quantity", "amount_cents"]
        return pa.schema([("order_id", pa.int64()), ("at", TIMESTAMP)] + [(name, pa.int64()) for name in names])

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        product = self._order_products(block, n)
        customer = ZipfKeys(self.customers, 0.5, scattered=True).keys(self.seed, "order customer", block, n)
        quantity = generator(self.seed, "order quantity", block).integers(1, 6, n)
        amount = quantity * price_cents(product, self.seed)
        at = timestamps(self._order_times(block, n))
        return [
            pa.array(self._numbers(block, n)),
            at,
            *(pa.array(column) for column in (customer, product, quantity, amount)),
        ]


@dataclass(frozen=True, slots=True)
class Products(_Shop):
    """Every product once: product_id (1..products), name, category, price_cents."""

    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.products)
        _Shop.__post_init__(self)

    @property
    def schema(self) -> pa.Schema:
        """product_id, name, category, price_cents."""
        return pa.schema(
            [("product_id", pa.int64()), ("name", pa.string()), ("category", pa.string()), ("price_cents", pa.int64())]
        )

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = self._numbers(block, n)
        hashed = mix64(ids, self.seed * 16 + 2)
        words = [f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS]
        name = pa.array(words).take(pa.array(hashed % np.uint64(len(words))))
        category = pa.array(CATEGORIES).take(pa.array((hashed >> np.uint64(32)) % np.uint64(len(CATEGORIES))))
        return [pa.array(ids), name, category, pa.array(price_cents(ids, self.seed))]


@dataclass(frozen=True, slots=True)
class Shipments(_Shop):
    """One shipment for each of `rows` orders: shipment_id, order_id, product_id, warehouse, shipped_at, received_at.

    Shipped 1 to 48 hours after the order; on the way for 6 hours and, on average, two days more, exponentially.
    """

    @property
    def schema(self) -> pa.Schema:
        """shipment_id, order_id, product_id, warehouse, shipped_at, received_at."""
        ids = [(name, pa.int64()) for name in ("shipment_id", "order_id", "product_id")]
        return pa.schema([*ids, ("warehouse", pa.string()), ("shipped_at", TIMESTAMP), ("received_at", TIMESTAMP)])

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = self._numbers(block, n)
        wait = whole((1.0 + 47.0 * uniforms(self.seed, "shipment wait", block, n)) * _HOUR_US)
        gone = -np.log1p(-uniforms(self.seed, "shipment way", block, n))
        shipped = self._order_times(block, n) + wait
        received = shipped + 6 * _HOUR_US + whole(gone * 2 * _DAY_US)
        house = generator(self.seed, "shipment house", block).integers(0, len(WAREHOUSES), n)
        warehouse = pa.array(WAREHOUSES).take(pa.array(house))
        product = pa.array(self._order_products(block, n))
        return [pa.array(ids), pa.array(ids), product, warehouse, timestamps(shipped), timestamps(received)]


@dataclass(frozen=True, slots=True)
class Promotions(_Shop):
    """`rows` promotions: promotion_id, product_id, percent, starts_at, ends_at.

    They start anywhere in the `days`; most last hours, some last for weeks (log-uniform from 1 hour to 21 days).
    """

    @property
    def schema(self) -> pa.Schema:
        """promotion_id, product_id, percent, starts_at, ends_at."""
        ids = [(name, pa.int64()) for name in ("promotion_id", "product_id", "percent")]
        return pa.schema([*ids, ("starts_at", TIMESTAMP), ("ends_at", TIMESTAMP)])

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        product = generator(self.seed, "promotion product", block).integers(1, self.products + 1, n)
        percent = 5 * generator(self.seed, "promotion percent", block).integers(1, 11, n)
        start = whole(uniforms(self.seed, "promotion start", block, n) * (self.days * _DAY_US))
        length = whole(_HOUR_US * np.exp(uniforms(self.seed, "promotion length", block, n) * np.log(21 * 24)))
        ids = [pa.array(column) for column in (self._numbers(block, n), product, percent)]
        return [*ids, timestamps(start), timestamps(start + length)]


def orders(
    rows: int = 100_000, products: int = 2_000, days: float = 30.0, seed: int = 0, customers: int = 5_000
) -> Orders:
    """Orders of a shop, see `Orders`."""
    return Orders(rows, products, days, seed, customers)


def products(products: int = 2_000, seed: int = 0) -> Products:
    """The products that `orders` of the same seed and number of products name."""
    return Products(products=products, seed=seed)


def shipments(rows: int = 100_000, products: int = 2_000, days: float = 30.0, seed: int = 0) -> Shipments:
    """The shipments of `orders` with the same parameters."""
    return Shipments(rows, products, days, seed)


def promotions(rows: int = 500, products: int = 2_000, days: float = 30.0, seed: int = 0) -> Promotions:
    """Promotions of the products in the same days as `orders`."""
    return Promotions(rows, products, days, seed)


CURRENCIES = ("EUR", "USD")
_SCHEMA = pa.schema(
    [
        ("supplier", pa.string()),
        ("month", pa.string()),
        ("product_id", pa.int64()),
        ("currency", pa.string()),
        ("cents", pa.int64()),
        ("stock", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class PriceLists:
    """Offers of `suppliers` over `months`, `offers` in a list, for products 1 to `products` of the shop of that seed.

    A price is 60 to 100 % of the shop's price; a supplier states all its prices in one currency.
    """

    suppliers: int = 4
    months: int = 3
    offers: int = 1_000
    products: int = 2_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("suppliers", "months", "offers", "products"):
            require_count(name, getattr(self, name), 1)
        require_seed(self.seed)

    def table(self) -> pa.Table:
        """The content of the files: supplier, month, product_id, currency, cents, stock."""
        lists = [self._list(s, m) for s in range(self.suppliers) for m in range(self.months)]
        return pa.concat_tables(lists)

    def write(self, directory: str | Path) -> Path:
        """One file a list: priceList (supplier, month)/offer (product)/price (currency) and stock."""
        home = Path(directory)
        home.mkdir(parents=True, exist_ok=True)
        for supplier in range(self.suppliers):
            for month in range(self.months):
                offers = self._list(supplier, month)
                name = f"{offers['supplier'][0]}-{offers['month'][0]}.xml"
                (home / name).write_text(_document(offers), encoding="utf-8")
        return home

    def _list(self, supplier: int, month: int) -> pa.Table:
        rng = generator(self.seed, f"price list {supplier}", month)
        product: I64 = rng.integers(1, self.products + 1, self.offers)
        cents = price_cents(product, self.seed) * rng.integers(60, 101, self.offers) // 100
        columns = [
            pa.repeat(pa.scalar(_supplier(supplier)), self.offers),
            pa.repeat(pa.scalar(f"{2024 + month // 12}-{month % 12 + 1:02d}"), self.offers),
            pa.array(product),
            pa.repeat(pa.scalar(CURRENCIES[supplier % len(CURRENCIES)]), self.offers),
            pa.array(np.maximum(1, cents)),
            pa.array(rng.integers(0, 500, self.offers)),
        ]
        return pa.table(columns, schema=_SCHEMA)


def _supplier(number: int) -> str:
    return f"{WAREHOUSES[number % len(WAREHOUSES)].lower()}-{number + 1}"


def _document(offers: pa.Table) -> str:
    """One list, formatted column by column."""
    cents = offers["cents"]
    rest = pc.subtract(cents, pc.multiply(pc.divide(cents, 100), 100))
    body = pc.binary_join_element_wise(
        '<offer product="',
        offers["product_id"].cast(pa.string()),
        '"><price currency="',
        offers["currency"],
        '">',
        pc.divide(cents, 100).cast(pa.string()),
        ".",
        pc.utf8_lpad(rest.cast(pa.string()), 2, "0"),
        "</price><stock>",
        offers["stock"].cast(pa.string()),
        "</stock></offer>\n",
        "",
    )
    root = f'<priceList supplier="{offers["supplier"][0]}" month="{offers["month"][0]}">'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n{"".join(body.to_pylist())}</priceList>\n'
