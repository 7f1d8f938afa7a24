"""The experiments of online joins: every figure has one, counts agree with each other, verdicts follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench.catalogue import load_experiments
from bench.context import BenchContext
from bench.experiments.online import counting, many, recorded, streams
from bench.experiments.online.pausing import Setting, miner_paused, paused
from bench.experiments.online.shares import proved
from bench.experiments.online.streams import CHAIN, chain_relations, star_relations
from bench.judge import Figures
from tests.workloads.goodness import ENOUGH, chi_square_p

from dovetail.errors import DataError, DovetailError, PlanError
from dovetail.joins.online.kernels.tree import LINK_BYTES, empty_trees
from dovetail.joins.online.operators.miner import Miner

PLACES = {f"figure {n}" for n in range(7, 23)} | {"table 3", "table 4"}
FAST = ("online-bands", "online-weather-over-time")


def mine() -> dict[str, object]:
    return {name: each for name, each in load_experiments().items() if each.family == "online"}


def test_every_figure_and_table_of_the_source_has_an_experiment() -> None:
    places = [place for each in mine().values() for place in each.places]
    assert set(places) == PLACES
    assert len(places) == len(PLACES)
    assert {each.ground for each in mine().values()} == {"counted"}
    assert {each.source for each in mine().values()} == {"Bornea 2010"}


@pytest.mark.parametrize("name", FAST)
def test_experiments_run_and_repeat_exactly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On few rows of the same streams."""
    few = [streams.synthetic("weather", None, 150), streams.recorded("New York").first(150)]
    monkeypatch.setattr(recorded, "like_the_source", lambda small: few)
    monkeypatch.setattr(recorded, "SOURCE_ROWS", {"weather": 150})
    monkeypatch.setattr(recorded, "recorded", lambda name: few[1])
    experiment = load_experiments()[name]
    with BenchContext("small") as bench:
        first, again = experiment.run(bench), experiment.run(bench)
    assert first == again
    assert first.rows > 0
    assert first.statements
    assert json.loads(json.dumps(first.to_json()))["tables"]


def test_all_joins_give_the_definition_and_what_is_counted_for_them() -> None:
    names = (*counting.HASHED, "DINER", "PMJ")
    keys = streams.synthetic("zipf", 1, 120)
    assert proved(keys, names, 120) == keys.pairs
    prices = streams.synthetic("csco", None, 100).within(4)
    assert proved(prices, ("DINER", "PMJ"), 100) == prices.pairs


def test_a_count_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = counting.Counted(np.array([7]), np.array([1]))
    monkeypatch.setattr("bench.experiments.online.shares.counted", lambda *given: wrong)
    with pytest.raises(DataError, match=r"DINER over zipf 1 gave \d+ pairs while rows came, but 7 were counted"):
        proved(streams.synthetic("zipf", 1, 100), ["DINER"], 100)


@pytest.mark.parametrize("rows", [(3000, 3000), (3000, 500)])
def test_oldest_first_by_windows_is_oldest_first_by_the_kernel(rows: tuple[int, int]) -> None:
    keys = streams.synthetic("zipf", 1, *rows)
    by_kernel = counting.counted("oldest", keys, 300, 10)
    spec = counting.specification("DINER")
    by_windows = counting.arriving(spec, keys.batches(), 300, 10, oldest=True)
    assert by_kernel.pairs.tolist() == by_windows.pairs.tolist()
    assert by_kernel.rows.tolist() == by_windows.rows.tolist()


@pytest.mark.parametrize(("least", "verdict"), [(9.9, "does not hold"), (11.8, "holds")])
def test_a_share_that_any_join_has_is_not_well_above_its_memory(least: float, verdict: str) -> None:
    """Rows that leave oldest first give 9.75 % with 5 % of memory, on any data without order."""
    judge = load_experiments()["online-recorded-shares"].run.judge
    diner = {name: [least, 60.0] for name in ("csco", "ipix", "MSFT", "IBM", "weather")}
    found = judge.statements(judge.names(Figures({"diner": diner, "closed": [9.75, 36.0]})))
    assert [one.verdict for one in found] == ["holds", "holds", verdict]


def test_hash_joins_count_no_bands() -> None:
    with pytest.raises(DovetailError, match="HMJ hashes its keys"):
        counting.counted("HMJ", streams.synthetic("csco", None, 100).within(4), 20, 5)


@pytest.mark.parametrize("shape", ["chain of 2", "chain of 3", "chain of 4", "star of 4"])
def test_many_inputs_with_room_for_all_give_everything(shape: str) -> None:
    for how in ("MINER", "oldest"):
        assert many.share(f"{shape}, {how}", 101, 2_000, 10) == pytest.approx(100.0), how
        assert 0 < many.share(f"{shape}, {how}", 20, 2_000, 10) < 100


def test_chain_of_two_oldest_first_is_the_two_way_join() -> None:
    inputs, on = many.joined("chain of 2", 2_000)
    keys = streams.Streams("a2", *(inputs[name]["a2"].to_numpy() for name in ("R2", "R3")))
    found = counting.arriving(many.specification("oldest", inputs, on), inputs, 400, 10, oldest=True)
    assert found.found == counting.counted("oldest", keys, 400, 10).found


def test_pauses_lose_no_result_and_hand_over_in_time() -> None:
    setting = Setting(memory=100, block=5, max_new=20, outer_blocks=9)
    found = paused("DINER", "zipf", 1_000, 50, setting, to_the_end=True)
    assert 0 < found.arriving + found.reactive < found.total
    assert found.reactive > 0
    assert found.most <= setting.max_new + found.step_rows
    several = miner_paused(3, 1_000, 50, Setting(memory=105, block=5, max_new=20, outer_blocks=9), to_the_end=True)
    assert 0 < several.arriving + several.reactive < several.total


def test_recorded_streams_are_those_of_the_packages() -> None:
    stock, weather = streams.recorded("MSFT"), streams.recorded("New York")
    assert len(stock.left) == len(stock.right) == 2 * 3270
    assert (stock.left[:2].tolist(), stock.right[:2].tolist()) == ([8962, 8894], [9081, 9409])
    assert weather.left[0] == round((39.02 - 32) / 0.18)
    assert -300 < weather.right.min() < weather.right.max() < 500


def test_a_chain_has_the_same_number_of_results_with_two_three_and_four_inputs() -> None:
    chain = chain_relations(4, rows=3000, domain=500, seed=1)
    assert list(chain) == ["R1", "R2", "R3", "R4"]
    t = {name: {column: r.table()[column].to_numpy() for column, _ in r.laws} for name, r in chain.items()}
    pairs = (t["R2"]["a2"][:, None] == t["R3"]["a2"]).astype(np.int64)
    first = (t["R2"]["a1"][:, None] == t["R1"]["a1"]).sum(axis=1)
    last = (t["R3"]["a3"][:, None] == t["R4"]["a3"]).sum(axis=1)
    assert pairs.sum() > 0
    assert pairs.sum() == first @ pairs.sum(axis=1) == first @ pairs @ last
    assert list(chain_relations(2)) == ["R2", "R3"]
    assert list(chain_relations(3)) == ["R1", "R2", "R3"]


def test_chain_attributes_are_zipf_from_zero() -> None:
    table = chain_relations(2)["R2"].table()
    for column in ("a1", "a2"):
        assert chi_square_p(table[column].to_numpy(), 1.0 / np.arange(1, 10_001), first=0) > ENOUGH
    assert not table["a1"].equals(table["a2"])


def test_a_star_has_one_common_attribute() -> None:
    star = star_relations(4, rows=1000, domain=100)
    assert {name: r.rows for name, r in star.items()} == {"R1": 100, "R2": 1000, "R3": 1000, "R4": 100}
    assert all(r.schema.names == ["id", "at", "key"] for r in star.values())
    assert np.array_equal(np.sort(star["R1"].table()["key"].to_numpy()), np.arange(100))
    with pytest.raises(PlanError, match="2, 3 or 4"):
        chain_relations(5)


def test_shares_of_miners_slots_are_those_of_the_specification() -> None:
    """The table of docs/algorithms/online.md, 4.1, by the bytes that `Footprint` counts and those that arrays take."""
    text = (Path(__file__).parents[3] / "docs" / "algorithms" / "online.md").read_text()
    tree = (("R1.a", "R2.a"), ("R2.b", "R3.b"), ("R2.c", "R4.c"))
    shapes = {"two inputs": CHAIN[:1], "chain of four": CHAIN, "a tree with an input of three attributes": tree}
    for name, on in shapes.items():
        inputs = tuple(sorted({end.partition(".")[0] for pair in on for end in pair}))
        spec = Miner(inputs=inputs, on=on)
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |") and line.endswith("% |")]
        printed = [float(cell.strip(" %")) for cell in line.split("|")[3:-1]]
        shares, most = many.slot_percents(spec), spec.most_attributes
        links = sum(np.asarray(array).nbytes for array in empty_trees(len(inputs), most, 10_000)) / 10_000
        assert links == pytest.approx(printed[1], rel=0.05)
        found = [spec.footprint().slot, LINK_BYTES * most, sum(shares.values()), shares["links"]]
        assert found == pytest.approx(printed, abs=0.51), name
