"""The parts of a query executed without Spark, as its tasks and its join would: for many queries in little time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.xquery.rules.sample import COLLECTIONS

from dovetail.engine.metrics import Metrics
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import available
from dovetail.xml.execute.parts import Direct, Part, ScanPart, Whole, divided, planned_join
from dovetail.xml.execute.rows import ARROW, ITEM, ORDER, Fields, Sent, SentFields, SentState, State, Wanted, schema_of
from dovetail.xml.execute.scan_task import scanned
from dovetail.xml.execute.scan_work import ColumnScan, planned_scan
from dovetail.xml.execute.tasks import CUT, Job, Row, WholeTask, run_joined, run_rest, run_whole
from dovetail.xml.rules.order import rewrite
from dovetail.xml.scan.files import Collection, collection_of, local_paths
from dovetail.xml.syntax.parser import parse

ONE_ROW = pa.RecordBatch.from_pydict({"id": [0]})


def written_collections(home: Path) -> dict[str, Collection]:
    """The sample's collections as files; those without documents are left out."""
    found = {}
    for name, texts in COLLECTIONS.items():
        place = home / (name or "default").strip("/")
        place.mkdir()
        for number, text in enumerate(texts):
            (place / f"{number}.xml").write_text(text)
        if texts:
            found[name or ""] = collection_of(name or "", str(place), local_paths(str(place)) or [])
    return found


@dataclass
class Local:
    """Executes a query as `plan_xquery` would; `used` tells what was used on the way."""

    collections: dict[str, Collection]
    way: str = "auto"
    partitions: int = 2
    memory: int = 64 << 20

    def __post_init__(self) -> None:
        self.used: set[str] = set()

    def items(self, query: str) -> list[str]:
        module = parse(query)
        plan: Any = rewrite(normalise(module)).plan
        job = Job(module, self.collections, memory=self.memory)
        division = divided(plan, module)
        if self.way == "one task" or isinstance(division, Whole):
            self.used.add("one task")
            return _items(run_whole(WholeTask(job, plan, Row()), iter([ONE_ROW]), Metrics()))
        if isinstance(division, Direct):
            table = self.rows(job, division.cut.part, division.cut.wanted)
            return table.column(ITEM).to_pylist()
        self.used.add("rest")
        sent, batches = list[Sent](), []
        for number, cut in enumerate(division.cuts):
            table = self.rows(job, cut.part, cut.wanted)
            sent.append(
                SentState(cut.wanted) if isinstance(cut.wanted, State) else SentFields(tuple(self.forms.items()))
            )
            cells = table.append_column(CUT, pa.array([number] * len(table), pa.int64()))
            batches += cells.combine_chunks().to_batches()
        return _items(run_rest(job, division.rest, sent, Row(), iter(batches)))

    def rows(self, job: Job, part: Part, wanted: Wanted) -> pa.Table:
        return self._scan(job, part, wanted) if isinstance(part, ScanPart) else self._join(job, part, wanted)

    def _scan(self, job: Job, part: ScanPart, wanted: Wanted) -> pa.Table:
        work = planned_scan(part, wanted, by_tuples=self.way == "tuples")
        self.used.add("columns" if isinstance(work, ColumnScan) else "tuples")
        if isinstance(wanted, State):
            self.used.add("aggregate")
        packed = job.collections[part.collection or ""].packed(self.partitions)
        batches = [batch for files in packed for batch in scanned(job, work, files, Metrics())]
        table = pa.Table.from_batches(batches, schema_of(wanted, work.forms))
        self.forms = dict(zip(wanted.variables, work.forms, strict=True)) if isinstance(wanted, Fields) else {}
        self.orders = (ORDER,)
        return table

    def _join(self, job: Job, part: Any, wanted: Wanted) -> pa.Table:
        self.used.add("join")
        work = planned_join(part, wanted)
        sides, forms = [], {}
        for side, keys in ((part.outer, [k.keys[1] for k in part.keys]), (part.inner, [k.keys[0] for k in part.keys])):
            mine = tuple(one for one in work.needed if one in available(side.plan))
            table = self.rows(job, side, Fields(mine, tuple(keys), work.typed & set(mine)))
            forms |= self.forms
            order = list(zip(*(table.column(name).to_pylist() for name in self.orders), strict=True))
            sides.append([row | {"order": one} for row, one in zip(table.to_pylist(), order, strict=True)])
        found = sorted(self._pairs(sides, len(part.keys)), key=lambda row: row["order"])
        width = len(found[0]["order"]) if found else 0
        self.orders = tuple(f"o{n}" for n in range(width))
        fields = [
            *((name, pa.int64()) for name in self.orders),
            *((f"v{v.number}", ARROW[f]) for v, f in forms.items()),
        ]
        table = pa.Table.from_pylist(
            [row | dict(zip(self.orders, row["order"], strict=True)) for row in found], schema=pa.schema(fields)
        )
        return self._above(job, work, forms, table, wanted)

    def _pairs(self, sides: list[list[dict[str, Any]]], n: int) -> Iterator[dict[str, Any]]:
        for outer, inner in product(*sides):
            if all(_texts(outer[f"k{k}"]) & _texts(inner[f"k{k}"]) for k in range(n)):
                yield outer | inner | {"order": outer["order"] + inner["order"]}

    def _above(self, job: Job, work: Any, forms: Any, table: pa.Table, wanted: Wanted) -> pa.Table:
        orders, self.forms = self.orders, {}
        if isinstance(wanted, Fields):
            self.orders, self.forms = (*orders, "sub"), dict.fromkeys(wanted.variables, "items")
        schema = schema_of(wanted, self.forms.values(), self.orders)
        return pa.Table.from_batches(run_joined(job, work, forms, orders, schema, iter(table.to_batches())), schema)


def _items(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [item for batch in batches for item in batch[ITEM].to_pylist()]


def _texts(key: Any) -> set[str]:
    return {key} if isinstance(key, str) else set(key or ())
