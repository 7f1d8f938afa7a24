"""Every algorithm x every relation x every join type on Spark, against the oracle: minutes, so not part of the tests.

`python -m tests.interval.frame.product 300` works through the product in random order for 300 seconds, or to its
end, each combination with other rows, keys, bounds and partitions; it stops at the first wrong answer.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from typing import Any

from tests.interval.frame.answers import SCHEMA, answered, expected, random_rows
from tests.quick_java import QUICK_JAVA

from dovetail import interval_join, session
from dovetail.joins.interval.relation import RELATIONS

ALGORITHMS = ("auto", "native", "bins", "sort_merge", "time_sweep", "forward_scan", "oip", "dip", "nested_loop")
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
KEYS = ((), [("k", "k")], [("k", "k"), ("j", "j")], [("k", "k"), ("j", "j"), ("id", "id")])
CLOSED = ("left", "right", "both", "neither", ("left", "both"))


def check(spark: Any, algorithm: str, relation: str, how: str, seed: int) -> None:
    """One combination; `AssertionError` if the answer is wrong."""
    rng = random.Random(seed)  # noqa: S311  (test data)
    on, rows, others = rng.choice(KEYS), random_rows(seed, 40), random_rows(seed + 1, 40)
    arguments = {"relation": relation, "closed": rng.choice(CLOSED), "strict": rng.random() < 0.3}
    left, right = (spark.createDataFrame(side, SCHEMA.format("long")) for side in (rows, others))
    partitions = rng.randrange(1, 17)
    answer = interval_join(left, right, how=how, on=on or None, algorithm=algorithm, partitions=partitions, **arguments)
    same = answered(answer) == expected(rows, others, how, on=on, **arguments)
    assert same, (algorithm, relation, how, on, arguments, partitions, seed)


def main(seconds: float) -> None:
    options = {"spark.master": "local[2]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2}
    spark = session("product", conf=options | {"spark.driver.extraJavaOptions": QUICK_JAVA})
    product = list(itertools.product(ALGORITHMS, RELATIONS, HOWS))
    random.Random(len(product)).shuffle(product)  # noqa: S311  (an order)
    end, done = time.monotonic() + seconds, 0
    for seed, (algorithm, relation, how) in enumerate(product):
        if time.monotonic() > end:
            break
        check(spark, algorithm, relation, how, 1000 + 2 * seed)
        done += 1
    spark.stop()
    print(f"{done} of {len(product)} combinations equal the oracle")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
