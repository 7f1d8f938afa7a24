"""What is left for waiting tuples when the other parts of a join have their memory."""

from __future__ import annotations

from dovetail.joins.semistream.cost.prediction import NoRoomError, Sizes
from dovetail.joins.semistream.cost.setting import Setting

Parts = tuple[tuple[str, float], ...]


def waiting_room(setting: Setting, sizes: Sizes, cached: tuple[str, float] = ("cache", 0.0)) -> tuple[int, Parts]:
    """h_S, and the bytes of every part: h_S = (M - d v_R - cache - index - counters) / (f v_S + q).

    Reference: replaces the identities 5.1, 6.1, 6.4 and 7.1 of Naeem 2012; docs/algorithms/semistream.md, 3.4 to 3.7.
    """
    n_segments = -(-setting.master_rows // sizes.segment_rows)
    parts = (
        ("disk buffer", setting.buffer_bytes(sizes.segment_rows)),
        cached,
        ("index", setting.index_bytes),
        ("segment counters", setting.entries.per_segment * n_segments),
    )
    room = capacity(setting, sizes, sum(nbytes for _, nbytes in parts), setting.entries.waiting)
    return room, (*(part for part in parts if part[1]), ("waiting tuples", room * setting.entries.waiting))


def capacity(setting: Setting, sizes: Sizes, taken: float, entry_bytes: float, least: int = 1) -> int:
    """Tuples that fit beside `taken` bytes, or as many as the sizes ask for; `least` must fit."""
    room = int((setting.memory - taken) // entry_bytes)
    wanted = room if sizes.waiting_rows is None else sizes.waiting_rows
    if wanted > room or wanted < least:
        raise NoRoomError(
            f"{taken:,.0f} of {setting.memory:,} bytes go to other parts: {max(room, 0):,} tuples can wait, "
            f"{max(wanted, least):,} must; give more memory, smaller segments or a smaller cache."
        )
    return wanted
