"""XML price lists: what each supplier asks for the products of the shop, one file a supplier and month."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.workloads.blocks import I64, generator, require_count, require_seed
from dovetail.workloads.retail import WAREHOUSES, price_cents

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

    A price is 60 to 100 % of what the shop asks; a supplier states all its prices in one currency.
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
        """What the files hold: supplier, month, product_id, currency, cents, stock."""
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
    """One list, put together column by column."""
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
