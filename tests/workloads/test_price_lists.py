"""Price lists say in XML what their table says."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from lxml import etree

from dovetail.errors import PlanError
from dovetail.workloads import PriceLists, price_cents


def test_the_files_hold_the_table(tmp_path: Path) -> None:
    lists = PriceLists(suppliers=3, months=14, offers=20, products=50, seed=5)
    rows = []
    for file in sorted(lists.write(tmp_path / "prices").iterdir()):
        root = etree.parse(file).getroot()
        for offer in root:
            price = offer.find("price")
            cents = Decimal(price.text) * 100
            assert cents == int(cents)
            product, stock = int(offer.get("product")), int(offer.findtext("stock"))
            rows.append((root.get("supplier"), root.get("month"), product, price.get("currency"), int(cents), stock))
    table = lists.table()
    assert sorted(rows) == sorted(zip(*table.to_pydict().values(), strict=True))
    assert len({row[1] for row in rows}) == 14
    asked = price_cents(table["product_id"].to_numpy(), 5)
    assert np.all(table["cents"].to_numpy() <= asked)
    assert np.all(table["cents"].to_numpy() >= asked * 60 // 100)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    once, again = (PriceLists(seed=3, months=1).write(tmp_path / name) for name in ("a", "b"))
    assert [f.read_bytes() for f in sorted(once.iterdir())] == [f.read_bytes() for f in sorted(again.iterdir())]
    assert PriceLists(seed=3).table() != PriceLists(seed=4).table()


def test_a_list_without_offers_is_refused() -> None:
    with pytest.raises(PlanError, match="offers must be an integer >= 1"):
        PriceLists(offers=0)
