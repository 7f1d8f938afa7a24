"""Cost models of the semi-stream joins: tuples per load, service rates, waiting times, tuning, and the choice.

Pure Python on summaries of stream and store. Symbols follow the source: M memory, R_t master rows, v_R and v_S bytes
of a master row and a stream tuple, d rows of a segment, h_S waiting tuples, h_R cached rows, p_i the share of the
stream that asks for segment i, p_N the share that the cache answers, w tuples finished per iteration, T_w the window,
mu the service rate.
"""

from dovetail.joins.semistream.cost.arrival import Residence, at_rate, page_reads_suffice
from dovetail.joins.semistream.cost.batch import BatchPrice, drained
from dovetail.joins.semistream.cost.best_buffer import best_buffer_bytes, loss_of, seek_equivalent_bytes
from dovetail.joins.semistream.cost.choose import ALGORITHMS, Choice, Price, choose, price
from dovetail.joins.semistream.cost.distribution import Distribution, Zipf, cached_share, uniform
from dovetail.joins.semistream.cost.empirical import Empirical
from dovetail.joins.semistream.cost.learned import learned_share, suitable_threshold
from dovetail.joins.semistream.cost.lookup import second_position
from dovetail.joins.semistream.cost.meshjoin import RoundTimes, round_times
from dovetail.joins.semistream.cost.models import MODELS, Model, predict, service_rate
from dovetail.joins.semistream.cost.prediction import NoRoomError, Prediction, Sizes
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.setting import SOURCE_ENTRIES, EntryBytes, Policy, Setting, our_entries
from dovetail.joins.semistream.cost.skew import SkewEstimate, estimate_skew
from dovetail.joins.semistream.cost.tune import Tuned, tune
from dovetail.joins.semistream.cost.units import SOURCE_COSTS, ReadCosts, UnitCosts, from_profile
from dovetail.joins.semistream.cost.window import Steady, best_gain, best_possible, fixed_point, oldest_first

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "SOURCE_COSTS",
    "SOURCE_ENTRIES",
    "BatchPrice",
    "Choice",
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
    "Segments",
    "Setting",
    "Sizes",
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
