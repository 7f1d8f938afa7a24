"""The models against operators that really run, and tuned sizes that they really take."""

from __future__ import annotations

import pyarrow as pa
import pytest
from bench.simulation import SimulatedPages
from tests.semistream.cost.against_operators import Case

from dovetail.joins.semistream.cost.choose import tune
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import MODELS, predict
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, Policy
from dovetail.joins.semistream.decision import setting_of
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.sizes import Sizes

STREAM = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("amount", pa.int64(), nullable=False)])
GUARDED, ALTERNATE = {"lookup": "guarded"}, {"lookup": "alternate"}
ADAPTIVE = {"cache": "adaptive", "threshold": 2}


@pytest.mark.parametrize(
    "case",
    [
        Case("inlj"),
        Case("meshjoin", rows=4000),
        Case("r_meshjoin", rows=4000, segment_rows=100, parts=2),
        Case("hybridjoin", exponent=0.0),
        Case("hybridjoin"),
        Case("hybridjoin", order="none", policy=ALTERNATE),
        Case("hybridjoin", exponent=0.8, policy=ALTERNATE),
        Case("hybridjoin", policy=GUARDED),
        Case("hybridjoin", rows=40_000, policy=GUARDED),
        Case("hybridjoin", policy={"lookup": "position"}),
        Case("hybridjoin", exponent=0.0, policy={"lookup": "position"}),
        Case("hybridjoin", exponent=0.8, policy={"lookup": "greedy"}),
        Case("hybridjoin", policy={"lookup": "greedy_oldest"}),
        Case("x_hybridjoin", cached=100),
        Case("x_hybridjoin", cached=200, exponent=0.7, policy=GUARDED),
        Case("optimised_x_hybridjoin", cached=200),
        Case("optimised_x_hybridjoin", cached=400, exponent=0.7),
        Case("optimised_x_hybridjoin", cached=400, policy=GUARDED),
        Case("cachejoin", cached=200),
        Case("cachejoin", cached=200, order="none"),
        Case("cachejoin", cached=200, order="none", policy=ADAPTIVE),
        Case("cachejoin", cached=400, exponent=0.7, policy=ADAPTIVE | GUARDED),
        Case("sscj", cached=200),
        Case("ssij"),
        Case("ssij", cached=500),
        Case("ssij", cached=500, exponent=0.5, order="none"),
        Case("partitioned", exponent=0.0),
        Case("partitioned"),
        Case("partitioned", cached=500),
        Case("partitioned", cached=500, exponent=0.7, order="none"),
    ],
    ids=str,
)
def test_the_model_is_within_15_percent_of_the_operator(case: Case) -> None:
    counted, predicted = case.run(), case.model()
    assert 1 / predicted.loads_per_tuple == pytest.approx(counted.rows_per_load, rel=0.15)
    assert predicted.mu == pytest.approx(counted.per_second, rel=0.15)
    assert predicted.p_n == pytest.approx(counted.cached_share, abs=0.05)


@pytest.mark.parametrize("algorithm", list(MODELS))
@pytest.mark.parametrize("limit", [1_000_000, 4_000_000])
def test_operators_take_tuned_sizes_and_wait_with_as_many_rows_as_predicted(algorithm: str, limit: int) -> None:
    pages = SimulatedPages(50_000, 64, 120, "frequency")
    setting = setting_of(pages, STREAM, limit, Zipf(50_000, 1.0), SOURCE_COSTS, policy=Policy(lookup="oldest"))
    tuned = tune(algorithm, setting).sizes
    join = ALGORITHMS[algorithm](pages=pages, on=("key",), sizes=tuned)
    fitted = join.fit(limit, STREAM)
    predicted = predict(algorithm, setting, tuned).sizes.waiting
    assert predicted == pytest.approx(fitted.waiting or 1, rel=0.3)


def test_a_setting_is_made_from_store_and_budget() -> None:
    pages = SimulatedPages(50_000, 64, 120, "key")
    setting = setting_of(pages, STREAM, 10**6, Zipf(50_000, 1.0), SOURCE_COSTS, batch_rows=7)
    assert (setting.memory, setting.order, setting.indexed) == (10**6, "key", True)
    assert (setting.batch_rows, setting.page_rows) == (7, 64)
    assert setting.costs.read.seconds(60_000) == pytest.approx(9.94e-3)
    assert setting.read_bytes(10) == pytest.approx(1200)


def test_rows_are_kept_in_the_units_of_each_algorithm() -> None:
    pages = SimulatedPages(50_000, 64, 120, "frequency")
    setting = setting_of(pages, STREAM, 10**6, Zipf(50_000, 1.0), SOURCE_COSTS)
    made = {name: str(model.keeping(Sizes(per_segment=4), 64 * 8, setting)) for name, model in MODELS.items()}
    assert made == {
        "inlj": "per_segment=4",
        "meshjoin": "per_segment=4",
        "r_meshjoin": "per_segment=4",
        "partitioned": "per_segment=4, resident=2",
        "ssij": "per_segment=4, resident=2",
        "hybridjoin": "per_segment=4",
        "x_hybridjoin": "per_segment=4, pinned=8",
        "optimised_x_hybridjoin": "per_segment=4, pinned=8",
        "cachejoin": "per_segment=4, cached=512",
        "sscj": "per_segment=4, cached=512",
    }
