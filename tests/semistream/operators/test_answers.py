"""Every operator against the definition: all joins, key types, batch sizes, pauses, collisions, and small memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.operators.memory_pages import MemoryPages
from tests.semistream.operators.stream_cases import HOWS, KEYS, Case, order_kept, random_case, run, smallest_budget

from dovetail.errors import PlanError
from dovetail.joins.semistream.operators import ALGORITHMS, HybridJoin
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes

LOOKUPS: list[str | float] = ["oldest", "alternate", "guarded", 0.5, "greedy", "greedy_oldest"]
CACHES: Any = ["random", "least_frequent", "adaptive"]


def random_spec(rng: np.random.Generator, name: str, case: Case, how: str, **more: Any) -> Any:
    """The algorithm with random sizes and policies, half of the time with hashes of three bits."""
    cls, options = ALGORITHMS[name], {}
    fields = cls.__dataclass_fields__
    if "lookup" in fields:
        options["lookup"] = Lookup.of(LOOKUPS[rng.integers(len(LOOKUPS))])
    if name == "cachejoin":
        options["cache"] = CachePolicy(CACHES[rng.integers(3)], int(rng.integers(1, 4)))
    if "max_probe" in fields:
        options["max_probe"] = [None, 1, 3, 10][rng.integers(4)]
    per, parts = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    waiting = int(rng.integers(1, 40))
    if "mesh" in name:
        waiting = max(waiting, 2 * parts * -(-len(case.pages.page_lists) // per))
    small = {k: int(rng.integers(0, 5)) for k in ("pinned", "resident", "page_cache")}
    sizes = Sizes(waiting=waiting, per_segment=per, parts=parts, cached=int(rng.integers(1, 9)), **small)
    options = {
        "sizes": Sizes() if rng.random() < 0.2 else sizes,
        "hash_bits": int(rng.choice([64, 3])),
        **options,
        **more,
    }
    return cls(pages=case.pages, on=case.on, how=how, **options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_answers_are_those_of_the_definition_in_the_order_of_each_key(name: str, kind: str) -> None:
    for seed in range(3):
        case, rng = random_case(100 + seed, kind), np.random.default_rng(seed)
        for how in HOWS:
            spec = random_spec(rng, name, case, how)
            got = run(spec, case, pauses=seed % 3)
            assert got.bag == case.expected(how), spec
            assert order_kept(got.rows, case.stream.schema.names, case.on), spec
            met = [got.metrics.value(n) for n in ("answered_by_page", "answered_by_cache", "misses")]
            assert sum(met) == got.metrics.value("rows") == case.stream.num_rows


def wide_case() -> Case:
    """Master rows of 10 kB, for which the smallest budget is so large that other parts grow with it."""
    numbers, wanted = np.arange(60), np.arange(200) * 7 % 70
    texts = [str(n).zfill(10_000) for n in numbers]
    master = pa.table({"k": pa.array(numbers), "r": pa.array(numbers), "text": texts})
    stream = pa.table({"id": pa.array(np.arange(200)), "k": pa.array(wanted), "word": [""] * 200})
    return Case(stream, MemoryPages(master, ("k",), 2, total=True), master, ("k",), 50)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_smallest_legal_budget_is_named_and_is_enough(name: str) -> None:
    cases = [random_case(200 + seed, KEYS[seed % len(KEYS)]) for seed in range(6)]
    for seed, case in enumerate([*cases, wide_case()]):
        spec = ALGORITHMS[name](pages=case.pages, on=case.on, how=HOWS[seed % 4])
        low = smallest_budget(spec, case)
        with pytest.raises(PlanError, match=str(low)):
            spec.fit(low - 1, case.stream.schema)
        got = run(spec, case, memory=low)
        assert got.bag == case.expected(spec.how)
        assert got.budget.peak <= low


def test_memory_of_every_part_is_reserved_by_name() -> None:
    case = random_case(7)
    got = run(ALGORITHMS["cachejoin"](pages=case.pages, on=case.on), case, "1MB")
    parts = got.budget.components()
    for name in (
        "waiting slots",
        "waiting rows",
        "segment chains",
        "disk buffer",
        "cache keys",
        "cache rows",
        "output buffer",
    ):
        assert parts[name][1] > 0, name


def test_output_columns_keep_the_streams_and_suffix_what_clashes() -> None:
    master = pa.table({"k": [1], "word": ["m"], "x": [5]})
    pages = MemoryPages(master, ("k",), 4)
    stream = pa.schema([("k", pa.int64()), ("word", pa.string())])
    spec = HybridJoin(pages=pages, on=("k",), how="left")
    assert spec.shape(stream).schema.names == ["k", "word", "word_master", "x"]
    picked = HybridJoin(pages=pages, on=("k",), columns=("x",))
    assert picked.shape(stream).schema.names == ["k", "word", "x"]
    semi = HybridJoin(pages=pages, on=("k",), how="left_semi")
    assert semi.shape(stream).schema.names == ["k", "word"]
    other = HybridJoin(pages=pages, on=("id",))
    assert other.shape(pa.schema([("id", pa.int64())])).schema.names == ["id", "k", "word", "x"]


def test_narrower_and_dictionary_keys_are_cast_and_others_refused() -> None:
    master = pa.table({"k": pa.array([1, 2], pa.int64()), "x": [5, 6]})
    pages = MemoryPages(master, ("k",), 4)
    for array in (
        pa.array([2, 7, None], pa.int16()),
        pa.array([2, 7, None], pa.uint32()),
        pa.array([2, 7, None], pa.int64()).dictionary_encode(),
    ):
        case = Case(pa.table({"k": array}), pages, master, ("k",), 10)
        assert run(HybridJoin(pages=pages, on=("k",)), case).rows == [(2, 6)]
    with pytest.raises(PlanError, match="cast"):
        HybridJoin(pages=pages, on=("k",)).shape(pa.schema([("k", pa.string())]))
    with pytest.raises(PlanError, match="no column"):
        HybridJoin(pages=pages, on=("z",)).shape(pa.schema([("k", pa.int64())]))


def test_joins_without_an_index_are_the_only_ones_on_plain_pages() -> None:
    master = pa.table({"k": [3, 1, 2], "x": [5, 6, 7]})
    pages = MemoryPages(master, ("k",), 1, indexed=False)
    case = Case(pa.table({"k": [2, 9]}), pages, master, ("k",), 1)
    without = {"meshjoin", "r_meshjoin", "hash_join"}
    for name in without:
        assert run(ALGORITHMS[name](pages=pages, on=("k",), how="left"), case).rows == [(2, 7), (9, None)]
    for name in set(ALGORITHMS) - without:
        with pytest.raises(PlanError, match="index"):
            ALGORITHMS[name](pages=pages, on=("k",))


def test_explain_is_one_line() -> None:
    pages = MemoryPages(pa.table({"k": [1]}), ("k",), 1)
    spec = ALGORITHMS["cachejoin"](pages=pages, on=("id",), sizes=Sizes(waiting=10, cached=3))
    line = "CacheJoin: on id = k, inner, lookup=oldest, cache=adaptive(threshold 2), waiting=10, cached=3"
    assert spec.explain() == line


def test_wrong_requests_say_what_is_allowed() -> None:
    pages = MemoryPages(pa.table({"k": [1]}), ("k",), 1)
    with pytest.raises(PlanError, match="left_semi"):
        HybridJoin(pages=pages, on=("k",), how="full")  # type: ignore[arg-type]
    for bad in (0.0, 1.5, "newest"):
        with pytest.raises(PlanError):
            Lookup.of(bad)
    for sizes in ({"waiting": 0}, {"per_segment": 0}, {"cached": -1}):
        with pytest.raises(PlanError):
            Sizes(**sizes)
