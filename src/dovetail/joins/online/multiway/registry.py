"""The multiway online algorithms by name."""

from __future__ import annotations

from dovetail.joins.online.multiway.miner import Miner
from dovetail.joins.online.multiway.mjoin import MJoin
from dovetail.joins.online.multiway.spec import MultiJoin

MULTIWAY: dict[str, type[MultiJoin]] = {"mjoin": MJoin, "miner": Miner}
