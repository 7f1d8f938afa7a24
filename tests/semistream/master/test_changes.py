"""Changes of page files without Spark: rows and versions after random changes, against the definition."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracle import Events, add_events, after_changes, periods

from dovetail.errors import ConfigError, DataError
from dovetail.joins.semistream.master.page_file import change_writer
from dovetail.joins.semistream.master.page_file.change_writer import ChangePlan, commit_changes, write_changes
from dovetail.joins.semistream.master.page_file.changes import OPERATION, PAGE, ChangeForm
from dovetail.joins.semistream.master.page_file.generation import (
    Applied,
    building,
    commit,
    current_version,
    load_version,
    versions,
)
from dovetail.joins.semistream.master.page_file.holds import prune
from dovetail.joins.semistream.master.page_file.reader import PageFile, PageFileSource
from dovetail.joins.semistream.master.page_file.writer import write_pages

OPERATIONS = (("u", "upsert"), ("c", "upsert"), ("d", "delete"))
KEYS: dict[str, tuple[pa.Field, ...]] = {
    "int": (pa.field("k", pa.int32()),),
    "text": (pa.field("k", pa.string()),),
    "both": (pa.field("k", pa.int64()), pa.field("part", pa.string())),
}
Row = dict[str, Any]


def form_of(fields: tuple[pa.Field, ...], history: tuple[str, str] | None = None, stored: bool = False) -> ChangeForm:
    columns = [*fields, pa.field("v", pa.string())]
    if history is not None:
        columns += [pa.field(name, pa.int64()) for name in history]
    if stored:
        columns.append(pa.field("seq", pa.int64()))
    return ChangeForm(pa.schema(columns), tuple(f.name for f in fields), ("seq",), (pa.int64(),), OPERATIONS, history)


def apply(path: Path, form: ChangeForm, rows: list[Row], tasks: int = 1, applied: Applied | None = None) -> Any:
    """What the Spark plan does: place, sort, write in tasks, commit."""
    with building(path) as work:
        plan = ChangePlan(str(path), current_version(path), str(work), form)
        columns = [{PAGE: 0, OPERATION: row["op"], **{n: row.get(n) for n in form.columns.names[2:]}} for row in rows]
        table = pa.Table.from_pylist(columns, form.columns)
        pages = plan.opened()
        page = pages.insertion([table.column(name).combine_chunks() for name in form.key])
        pages.close()
        task = np.maximum(page, 0) * tasks // max(1, pages.generation.n_pages)
        table = table.set_column(0, PAGE, pa.array(page, pa.int32()))
        order = [(name, "ascending") for name in (PAGE, *form.key, *form.sequence)]
        reports = []
        for number in range(tasks):
            mine = table.filter(pa.array(task == number)).sort_by(order)
            report = write_changes(plan, number, mine.to_batches(max_chunksize=7))
            reports += [report] if report else []
        return commit_changes(plan, reports, applied) if reports else None


def contents(path: Path, version: str | None = None) -> tuple[list[Row], PageFile]:
    """All rows, read page by page and all at once, each found in its home page."""
    pages = PageFileSource(str(path)).open(version)
    n = len(pages.starts) - 1
    whole = pages.read(0, n).to_pylist() if n else []
    assert whole == [row for page in range(n) for row in pages.read(page, 1).to_pylist()]
    if n:
        every = np.arange(0, n, 2)
        many, starts = pages.read_many(every, np.ones(len(every), np.int64))
        assert many.to_pylist() == [row for page in every.tolist() for row in pages.read(page, 1).to_pylist()]
        assert starts[-1] == many.num_rows
        table = pa.Table.from_pylist(whole, pages.schema)
        homes = pages.home([table.column(name).combine_chunks() for name in pages.key])
        assert homes.tolist() == np.repeat(np.arange(n), np.diff(pages.starts)).tolist()
    assert pages.generation.rows == len(whole)
    return whole, pages


def random_key(rng: Random, fields: tuple[pa.Field, ...], keys: int) -> Row:
    number = rng.randrange(keys)
    texts = [string.ascii_letters[number % 52] * (number // 52 + 1)]
    return {f.name: texts[0] if pa.types.is_string(f.type) else number * 3 for f in fields}


def changes_of(rng: Random, fields: tuple[pa.Field, ...], n: int, keys: int, first: int, late: int = 0) -> list[Row]:
    places = rng.sample(range(first - late, first + 3 * n), n)
    return [
        {**random_key(rng, fields, keys), "v": rng.choice([None, "x" * rng.randrange(40)]), "seq": place,
         "op": rng.choice("uud")}
        for place in places
    ]  # fmt: skip


def same(found: list[Row], expected: list[Row], names: list[str]) -> None:
    def bag(rows: list[Row]) -> list[str]:
        return sorted(repr([row.get(name) for name in names]) for row in rows)

    assert bag(found) == bag(expected)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("stored", [False, True])
def test_the_last_change_of_a_key_counts(
    tmp_path: Path, kind: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(f"{kind}{stored}")  # noqa: S311  (cases, not secrets)
    for trial in range(6):
        monkeypatch.setattr(change_writer, "_ROWS", rng.choice([1, 5, 4096]))
        monkeypatch.setattr(change_writer, "_PAGES_BYTES", rng.choice([1, 3000, 1 << 24]))
        form, path, keys = form_of(KEYS[kind], stored=stored), tmp_path / f"{trial}.pages", rng.choice([3, 200])
        start = {
            tuple(row.items()): row for row in (random_key(rng, KEYS[kind], keys) for _ in range(rng.choice([0, 90])))
        }
        rows = [{**row, "v": "old", "seq": 0} for row in start.values()]
        write_pages(path, pa.Table.from_pylist(rows, form.schema), form.key, page=rng.choice([64, 512]), unique=True)
        kept = {current_version(path): rows}
        for batch in range(8):
            late = 30 if stored else 0
            changes = changes_of(rng, KEYS[kind], rng.choice([0, 1, 40, 120]), keys, 1 + 400 * batch, late)
            if batch == 6:
                changes = [{**row, "op": "d", "seq": 9000} for row in rows]
            rows = after_changes(rows, changes, form.key, form.sequence, stored)
            made = apply(path, form, changes + rng.choices(changes, k=min(2, len(changes))), rng.choice([1, 3]))
            kept[current_version(path)] = rows
            assert made is None or made.version == current_version(path)
        for version, expected in kept.items():
            found, pages = contents(path, version)
            same(found, expected, form.schema.names)
            keys_of = pages.schema.empty_table() if not expected else pa.Table.from_pylist(expected, form.schema)
            by_key = pages.read_keys([keys_of.column(name).combine_chunks() for name in form.key], 1 << 20)
            same(by_key.to_pylist() if by_key is not None else [], expected, form.schema.names)
            pages.close()


@pytest.mark.parametrize("kind", ["int", "both"])
def test_history_keeps_the_period_of_every_row(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, history = Random(kind), ("valid_from", "valid_to")  # noqa: S311  (cases, not secrets)
    for trial in range(6):
        monkeypatch.setattr(change_writer, "_ROWS", rng.choice([1, 5, 4096]))
        form, path, keys = form_of(KEYS[kind], history), tmp_path / f"{trial}.pages", rng.choice([2, 60])
        write_pages(path, form.schema.empty_table(), form.key, page=rng.choice([64, 512]))
        events: Events = {}
        for batch in range(8):
            changes = changes_of(rng, KEYS[kind], rng.choice([1, 20, 60]), keys, 10 + 50 * batch, late=10)
            changes = list({(*(row[n] for n in form.key), row["seq"]): row for row in changes}.values())
            add_events(events, changes, form.key, "seq")
            apply(path, form, changes, rng.choice([1, 3]))
            found, pages = contents(path)
            pages.close()
            expected = [{**row, "valid_from": at, "valid_to": until} for row, at, until in periods(events)]
            same(found, expected, form.schema.names)


def test_a_small_change_writes_little(tmp_path: Path) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    rows = [{"k": number, "v": "x" * 50} for number in range(50_000)]
    write_pages(path, pa.Table.from_pylist(rows, form.schema), "k", unique=True)
    whole, written = sum(file.stat().st_size for file in (path / "generation-1").iterdir()), []
    for batch in range(40):
        changes = [
            {"k": (batch * 7919 + n * 641) % 50_000, "v": f"{batch}", "seq": batch, "op": "u"} for n in range(10)
        ]
        made = apply(path, form, changes)
        rows_of = {row["k"]: row for row in rows} | {row["k"]: row for row in changes}
        rows = list(rows_of.values())
        written.append(sum(file.stat().st_size for file in (path / f"generation-{made.number}").iterdir()))
        assert len(made.parts) < 12
    assert written[0] < whole / 20
    assert sum(written) / 40 < whole / 8  # files of changes that are merged now and then included
    found, pages = contents(path)
    same(found, rows, ["k", "v"])
    pages.close()


def test_files_of_changes_do_not_outgrow_the_rows(tmp_path: Path) -> None:
    rng, form, path = Random(3), form_of(KEYS["int"]), tmp_path / "m.pages"  # noqa: S311  (cases, not secrets)
    rows = [{"k": number * 3, "v": "x" * 30} for number in range(400)]
    write_pages(path, pa.Table.from_pylist(rows, form.schema), "k", page=256, unique=True)
    for batch in range(60):
        changes = changes_of(rng, KEYS["int"], 30, 400, 1 + 100 * batch)
        changes = [{**row, "op": "u"} for row in changes]
        rows = after_changes(rows, changes, form.key, form.sequence)
        apply(path, form, changes)
        prune(path, 1)
        stored = sum(file.stat().st_size for file in path.glob("generation-*/*.rows"))
        made = PageFileSource(str(path)).open()
        assert stored < 6 * made.generation.nbytes
        made.close()
    found, pages = contents(path)
    same(found, rows, ["k", "v"])
    pages.close()


def test_pruning_leaves_files_that_later_versions_need(tmp_path: Path) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    rows = [{"k": number, "v": "old"} for number in range(3000)]
    write_pages(path, pa.Table.from_pylist(rows, form.schema), "k", unique=True)
    first = current_version(path)
    changes = [{"k": 5, "v": "new", "seq": 1, "op": "u"}]
    old = PageFileSource(str(path)).open(first)
    apply(path, form, changes)
    assert prune(path, 1) == [first]
    assert versions(path) == [current_version(path)]
    assert old.read(0, 1).num_rows
    old.close()
    found, pages = contents(path)
    pages.close()
    same(found, after_changes(rows, changes, form.key, form.sequence), ["k", "v"])
    write_pages(path, pa.Table.from_pylist(rows, form.schema), "k", unique=True)
    prune(path, 1)
    assert [entry.name for entry in path.glob("generation-*")] == ["generation-3"]
    with pytest.raises(ConfigError, match="has no version"):
        PageFileSource(str(path)).open(first)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    write_pages(path, form.schema.empty_table(), "k", unique=True)
    change = [{"k": 1, "v": "a", "seq": 1, "op": "u"}]
    with building(path) as work:
        plan = ChangePlan(str(path), current_version(path), str(work), form)
        table = pa.Table.from_pylist([{PAGE: 0, OPERATION: "u", **change[0]}], form.columns)
        report = write_changes(plan, 0, table.to_batches())
        other = apply(path, form, change, applied=Applied("q", 4))
        with pytest.raises(ConfigError, match=f"got version {other.version} from another writer"):
            commit_changes(plan, [report] if report else [], None)
    assert current_version(path) == other.version
    assert write_pages(path, form.schema.empty_table(), "k", unique=True).applied == Applied("q", 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"k": None}, "no value in column 'k'"),
        ({"seq": None}, "no value in column 'seq'"),
        ({"op": "x"}, r"operation 'x', which is none of \['u', 'c', 'd'\].*operations=\{'x': 'upsert'"),
        ({"op": None}, "operation None"),
        ({"v": "other"}, r"two changes of one key \['k'\] have the same place \['seq'\].*sequence="),
    ],
)
def test_changes_that_cannot_be_applied(tmp_path: Path, row: Row, message: str) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    write_pages(path, pa.Table.from_pylist([{"k": 1, "v": "old"}], form.schema), "k", unique=True)
    change = {"k": 1, "v": "a", "seq": 1, "op": "u"}
    before = current_version(path)
    with pytest.raises(DataError, match=message):
        apply(path, form, [change, {**change, **row}])
    assert current_version(path) == before
    assert [entry.name for entry in path.iterdir() if entry.name.startswith(".building")] == []


def test_changes_that_change_nothing_make_no_version(tmp_path: Path) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    write_pages(path, pa.Table.from_pylist([{"k": 1, "v": "old"}], form.schema), "k", unique=True)
    assert apply(path, form, [{"k": 1, "v": "old", "seq": 1, "op": "u"}, {"k": 7, "seq": 2, "op": "d"}]) is None
    assert versions(path) == [current_version(path)]


def test_changes_at_one_place_that_do_the_same_are_one(tmp_path: Path) -> None:
    form, path = form_of(KEYS["int"]), tmp_path / "m.pages"
    write_pages(path, pa.Table.from_pylist([{"k": 1, "v": "old"}, {"k": 2, "v": "old"}], form.schema), "k", unique=True)
    same_rows = [{"k": 1, "v": "new", "seq": 1, "op": op} for op in "uc"]
    apply(path, form, [*same_rows, {"k": 2, "v": "x", "seq": 2, "op": "d"}, {"k": 2, "v": None, "seq": 2, "op": "d"}])
    found, pages = contents(path)
    pages.close()
    assert found == [{"k": 1, "v": "new"}]


def test_a_column_that_is_never_null_stays_so(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string(), False)])
    form, path = ChangeForm(schema, ("k",), ("seq",), (pa.int64(),), OPERATIONS), tmp_path / "m.pages"
    write_pages(path, pa.Table.from_pylist([{"k": 1, "v": "old"}], schema), "k", unique=True)
    apply(path, form, [{"k": 1, "v": None, "seq": 1, "op": "d"}])
    with pytest.raises(DataError, match="sets column 'v' to null"):
        apply(path, form, [{"k": 1, "v": None, "seq": 1, "op": "u"}])


def test_history_leaves_rows_of_other_keys_as_they_are() -> None:
    """They may overlap, or be empty or inverted: another key of their page has changed, and not they."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("first", pa.int64()), ("end", pa.int64())])
    form = ChangeForm(schema, ("k",), ("ts",), (pa.int64(),), (("u", "upsert"),), ("first", "end"))
    spans = [(0, 10), (5, 15), (5, 5), (9, 7), (None, 5), (None, 9)]
    kept = [{"k": "b", "v": n, "first": first, "end": end} for n, (first, end) in enumerate(spans)]
    change = pa.Table.from_pylist([{PAGE: 0, OPERATION: "upsert", "k": "a", "v": 9, "ts": 3}], form.columns)
    found, _ = form.merged(pa.Table.from_pylist(kept, schema), change, np.zeros(len(kept) + 1, np.int64))
    assert found.to_pylist() == [{"k": "a", "v": 9, "first": 3, "end": None}, *sorted_by_number(found, kept)]
    assert found.schema.equals(schema)


def sorted_by_number(found: pa.Table, rows: list[Row]) -> list[Row]:
    order = [number for number in found.column("v").to_pylist() if number != 9]
    assert sorted(order) == [row["v"] for row in rows]
    return [rows[number] for number in order]


def test_a_build_that_changes_overtook_is_not_committed(tmp_path: Path) -> None:
    """It may lack their rows, and would say that it has them."""
    path, form = tmp_path / "m.pages", form_of(KEYS["int"])
    table = pa.Table.from_pylist([{"k": n, "v": "old"} for n in range(20)], form.schema)
    write_pages(path, table, "k", unique=True)
    changes = [{"op": "u", "k": 3, "v": "new", "seq": 1}]
    with building(path) as work:
        apply(path, form, changes, applied=Applied("q", 0, "digest"))
        with pytest.raises(ConfigError, match=r"changes were applied to .* while it was built"):
            commit(path, work, replace(load_version(path), applied=None))
    assert load_version(path).applied == Applied("q", 0, "digest")
    write_pages(path, table, "k", unique=True)
    assert load_version(path).applied == Applied("q", 0, "digest"), "one that begins after them has them"
