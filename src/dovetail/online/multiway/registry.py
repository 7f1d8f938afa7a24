"""The multiway online algorithms by name."""

from __future__ import annotations

from dovetail.online.multiway.miner import Miner
from dovetail.online.multiway.mjoin import MJoin
from dovetail.online.multiway.spec import MultiJoin

MULTIWAY: dict[str, type[MultiJoin]] = {"mjoin": MJoin, "miner": Miner}
