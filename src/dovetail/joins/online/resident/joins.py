"""Joins that a host can run, from their text: of two inputs or of many."""

from __future__ import annotations

import json
from typing import TypeAlias

from dovetail.joins.online.bucket_join import BucketJoin
from dovetail.joins.online.multiway.bucket_join import KIND, MultiBucketJoin

ResidentJoin: TypeAlias = BucketJoin | MultiBucketJoin


def join_from_json(text: str) -> ResidentJoin:
    """What `to_json` of either join wrote."""
    return MultiBucketJoin.from_json(text) if json.loads(text)[0] == KIND else BucketJoin.from_json(text)
