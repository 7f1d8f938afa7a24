"""On paper: a terabyte of input on a hundred nodes, with every assumption beside the figures."""

from __future__ import annotations

import time
from dataclasses import fields

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.scale.paper_bills import (
    Bill,
    Cluster,
    interval_bill,
    online_bill,
    semistream_bill,
    xquery_bill,
)
from bench.xquery_weather import QUERIES, answer, expected, megabytes, places
from dovetail.engine.profile import Cost, Profile, load_profile
from dovetail.errors import DataError
from dovetail.xml.api import plan_xquery

_QUERY = "7.4"
_STATIONS = {"small": (4, 16), "full": (16, 64)}


def core_bytes_per_s(bench: BenchContext) -> float:
    """XML bytes that one core reads a second, from the times of two sizes, so that the cost of a query drops out."""
    seconds, sizes = [], []
    for stations in _STATIONS[bench.scale]:
        params = {"query": _QUERY, "stations": stations, "years": 10}
        where, wanted = places(bench, params), expected(params)
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            items = [row.item for row in plan_xquery(bench.spark, QUERIES[_QUERY], where).frame().collect()]
            best = min(best, time.perf_counter() - began)
            if answer(_QUERY, items) != wanted:
                raise DataError(f"query {_QUERY} over {stations} stations answered {items}.")
        seconds.append(best)
        sizes.append(1e6 * megabytes(where))
    cores = bench.spark.sparkContext.defaultParallelism
    return (sizes[1] - sizes[0]) / max(1e-3, seconds[1] - seconds[0]) / cores


def reported(bills: list[Bill], cluster: Cluster, profile: Profile) -> Findings:
    """The bills as figures that claim nothing."""
    rows: list[list[Cell]] = []
    lines: dict[str, list[tuple[str, float]]] = {"processors": [], "disks": [], "network": []}
    for bill in bills:
        times = bill.seconds(cluster)
        for name, seconds in zip(lines, times, strict=True):
            lines[name].append((bill.family, round(seconds / 60, 3)))
        minutes = [round(seconds / 60, 2) for seconds in (*times, max(times), sum(times))]
        rows.append(
            [bill.family, *minutes, _tb(bill.disk_bytes), _tb(bill.shuffle_bytes), float(f"{bill.answers:.3g}")]
        )
    heads = ("family", "processors, min", "disks, min", "network, min", "all at once, min", "one after another, min")
    table = Grid("1 TB on 100 nodes", (*heads, "bytes of disks, TB", "bytes of the shuffle, TB", "answers"), rows)
    told = "; ".join(f"{row[0]} {row[4]} to {row[5]} minutes" for row in rows)
    why = (
        f"From the models and {profile.explain()}: {told}, if everything overlaps and if nothing does. Work is taken "
        f"to spread evenly and nothing to fail; writing results is not counted."
    )
    chart = Chart("Minutes of 100 nodes for 1 TB", "family", "minutes", lines, kind="bar")
    return Findings("reported", why, [chart], [table, _assumed(bills, cluster), _unit_costs(profile)])


def _tb(nbytes: float) -> float:
    return float(f"{nbytes / 1e12:.3g}")


def _assumed(bills: list[Bill], cluster: Cluster) -> Grid:
    rows: list[list[Cell]] = [
        ["all", "cluster", f"{cluster.nodes} nodes of {cluster.cores} cores; every core takes one task at a time"],
        ["all", "network", f"{cluster.network / 1e9:g} GB/s a node, all nodes at once"],
        ["all", "disks", f"{cluster.disk / 1e9:g} GB/s a node in turn, read or written"],
        ["all", "input", f"{cluster.input_bytes / 1e12:g} TB, in rows of {cluster.row_bytes} bytes, but for XML"],
        ["all", "shuffle", "every byte is written once, sent once and read once; a row costs what the profile says"],
    ]
    rows += [[bill.family, what, text] for bill in bills for what, text in bill.notes.items()]
    return Grid("Assumptions", ("family", "what", "assumed or chosen"), rows)


def _unit_costs(profile: Profile) -> Grid:
    costs = [(f.name, getattr(profile, f.name)) for f in fields(profile)]
    rows: list[list[Cell]] = [
        [name, float(f"{1e9 * cost.seconds:.4g}")] for name, cost in costs if isinstance(cost, Cost)
    ]
    pages = (("page read anywhere", profile.page_read_s(65_536)), ("page written", profile.page_write_s(65_536)))
    rows += [[f"{name}, 64 KiB", float(f"{1e9 * seconds:.4g}")] for name, seconds in pages]
    return Grid(f"Unit costs ({profile.explain()})", ("unit", "ns"), rows)


def _run(bench: BenchContext) -> Findings:
    cluster, profile = Cluster(), load_profile()
    bills = [
        interval_bill(cluster, profile),
        semistream_bill(cluster, profile),
        online_bill(cluster, profile),
        xquery_bill(cluster, core_bytes_per_s(bench)),
    ]
    return reported(bills, cluster, profile)


EXPERIMENTS = (
    Experiment(
        name="scale-on-paper",
        family="scale",
        source="our own",
        places=("1 TB on 100 nodes",),
        claim="What a terabyte on a hundred nodes would cost each family, by the models and the costs of single steps.",
        run=_run,
        measures=("engine", "joins/interval", "joins/semistream", "joins/online", "xml", "bench/experiments/scale"),
        ground="measured",
    ),
)
