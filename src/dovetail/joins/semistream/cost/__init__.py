"""Cost models of the semi-stream joins: tuples per load, service rates, waiting times, tuning, and the choice.

* `setting`: memory, master data, stream, policies and unit costs. `reads`: what reads of a store cost.
* `skew`: the skew of a sample. `distribution`: how wanted rows and segments are. `steady`: tuples that a load answers.
* `prediction`: what a model says. `hybridjoin`, `collecting`, `meshjoin`: the models, and `models` by name.
* `rates`: micro-batches and slow streams. `tune`: the best sizes of an algorithm. `choose`: the best algorithm.

Pure Python on summaries of stream and store. Symbols follow the source: M memory, R_t master rows, v_R and v_S bytes
of a master row and a stream tuple, d rows of a segment, h_S waiting tuples, h_R cached rows, p_i the share of the
stream that asks for segment i, p_N the share that the cache answers, w tuples finished per iteration, T_w the window,
mu the service rate.
"""

from dovetail.joins.semistream.cost.choose import ALGORITHMS, Choice, Price, choose, price
from dovetail.joins.semistream.cost.distribution import Demand, Distribution, Empirical, Zipf, cached_share, uniform
from dovetail.joins.semistream.cost.hybridjoin import learned_share, suitable_threshold
from dovetail.joins.semistream.cost.meshjoin import (
    RoundTimes,
    best_buffer_bytes,
    loss_of,
    round_times,
    seek_equivalent_bytes,
)
from dovetail.joins.semistream.cost.models import MODELS, Model, predict, service_rate
from dovetail.joins.semistream.cost.prediction import NoRoomError, Prediction
from dovetail.joins.semistream.cost.rates import BatchPrice, Residence, at_rate, drained, page_reads_suffice
from dovetail.joins.semistream.cost.setting import (
    SOURCE_COSTS,
    SOURCE_ENTRIES,
    EntryBytes,
    Policy,
    ReadCosts,
    Setting,
    UnitCosts,
    from_profile,
    our_entries,
)
from dovetail.joins.semistream.cost.skew import SkewEstimate, estimate_skew
from dovetail.joins.semistream.cost.steady import (
    Steady,
    best_gain,
    best_possible,
    fixed_point,
    oldest_first,
    second_position,
)
from dovetail.joins.semistream.cost.tune import Tuned, tune

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "SOURCE_COSTS",
    "SOURCE_ENTRIES",
    "BatchPrice",
    "Choice",
    "Demand",
    "Distribution",
    "Empirical",
    "EntryBytes",
    "Model",
    "NoRoomError",
    "Policy",
    "Prediction",
    "Price",
    "ReadCosts",
    "Residence",
    "RoundTimes",
    "Setting",
    "SkewEstimate",
    "Steady",
    "Tuned",
    "UnitCosts",
    "Zipf",
    "at_rate",
    "best_buffer_bytes",
    "best_gain",
    "best_possible",
    "cached_share",
    "choose",
    "drained",
    "estimate_skew",
    "fixed_point",
    "from_profile",
    "learned_share",
    "loss_of",
    "oldest_first",
    "our_entries",
    "page_reads_suffice",
    "predict",
    "price",
    "round_times",
    "second_position",
    "seek_equivalent_bytes",
    "service_rate",
    "suitable_threshold",
    "tune",
    "uniform",
]
