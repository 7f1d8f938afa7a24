"""Chapter 4: R-MESHJOIN, whose disk buffer can be tuned whatever the size of the master data is."""

from __future__ import annotations

import itertools

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import MILLION, SMALL, counted
from bench.experiments.semistream.judging import close, grid, judged, wave
from bench.experiments.semistream.mesh_counting import CHAPTER_4, Mesh, best_buffer, count_mesh, tuned
from bench.experiments.semistream.printed_meshjoin import alpha_4, eq_4_1, eq_4_4

_TABLE_4_2 = ((50, 0.31, 48.47, 1.21, 0.0005, 49.9905), (100, 0.43, 97.14, 2.42, 0.0013, 99.9913),
              (150, 0.52, 145.83, 3.64, 0.0024, 149.9924))  # fmt: skip
_TABLE_4_3 = ((25, 3_318, 11_454, 2_514, 12_851, 607_116, 5_496, 642_749),
              (68, 3_674, 25_422, 3_632, 26_819, 831_048, 7_454, 898_049),
              (125, 3_731, 53_917, 5_029, 54_476, 1_018_704, 9_136, 1_144_993))  # fmt: skip
_TABLE_4_4 = ((0.5, 134, 64), (1, 268, 32), (2, 536, 16), (4, 1072, 8), (8, 2144, 4), (16, 4288, 2))
_MEMORY = (25, 50, 100, 150, 200, 250)
_PRINTED_BEST = {50: 0.31, 100: 0.43, 150: 0.52}
_NOTE = (
    "Counted on a disk with 0.25 ms a request, which the printed optimum of 0.31 MB at 50 MB implies, and 0.099 us a "
    "byte; fudge factor 8, 2 million rows unless said."
)


def _mesh(memory: float, rows: float = 2, parts: int = 0, buffer: float = 0.43) -> Mesh:
    n = int(rows * MILLION)
    return Mesh(memory_mb=memory, buffer_mb=buffer, rows=n, fudge=8, equal_mb=CHAPTER_4, parts=parts)


def _divide(bench: BenchContext, small: int = SMALL) -> int:
    return 1 if bench.scale == "full" else small


def _tables(bench: BenchContext) -> Findings:
    checks, split, costs = [], [], []
    for memory, buffer, table, queue, stream, total in _TABLE_4_2:
        _, by_table, by_queue = eq_4_1(memory=memory, b=buffer, v_p=1, alpha=alpha_4(v_s=20))
        split.append((memory, buffer, by_table, table, by_queue, queue, buffer + table + queue + stream, total))
        checks.append(close(f"the hash table at {memory} MB", by_table, table, 0.002))
    for w, *parts, total in _TABLE_4_3:
        costs.append((w, sum(parts), total, float(eq_4_4(w=w, c_loop=sum(parts) / 1e9)), parts[0] / total))
        checks.append(close(f"the sum of the row with w = {w}", sum(parts), total, 1e-5))
    share = max(float(row[4]) for row in costs)
    note = (
        f"Reading is {share:.1%} of an iteration at most in table 4.3: the file was in memory, so that rates of this "
        "chapter cannot be compared with those of later ones."
    )
    heads = ("memory, MB", "buffer", "table by 4.1", "printed", "queue by 4.1", "printed", "sum", "printed")
    heads_3 = ("w", "sum of the parts, ns", "printed", "rows a second", "share of reading")
    return judged(checks, note, tables=[grid("Table 4.2", heads, split), grid("Table 4.3", heads_3, costs)])


def _master_size(bench: BenchContext) -> Findings:
    rows, divide = [], _divide(bench, 8)
    for millions, n_p, parts in _TABLE_4_4:
        mesh, mine = best_buffer(_mesh(100, millions)), best_buffer(_mesh(100, millions, parts))
        at_printed = count_mesh(_mesh(100, millions, parts, 0.427), divide)
        calculated = _mesh(100, millions, parts, 0.427)
        rows.append((millions, mesh, mine, n_p * parts, calculated.w, at_printed.per_second, calculated.rate))
    moves, stays = ([float(row[i] or 0) for row in rows] for i in (1, 2))
    chunks, w = {row[3] for row in rows}, [float(row[4] or 0) for row in rows]
    off = max(abs(float(row[5] or 0) / float(row[6] or 1) - 1) for row in rows)
    checks = [
        Part(f"MESHJOIN's best buffer moves from {moves[0]:.3f} to {moves[-1]:.3f} MB", moves[-1] > 1.02 * moves[0]),
        Part(f"R-MESHJOIN's stays at {stays[0]:.3f} MB (printed 0.427)", max(stays) < 1.005 * min(stays)),
        Part("Q_p is 8,576 in all rows of table 4.4", chunks == {8576}),
        Part(f"w is {w[0]:.1f} in all rows, printed 75, which does not fit in 100 MB", max(w) < 1.01 * min(w)),
    ]
    lines = {"MESHJOIN": [(row[0], row[1]) for row in rows], "R-MESHJOIN": [(row[0], row[2]) for row in rows]}
    chart = Chart("Best disk buffer, 100 MB", "master rows, million", "MB", lines, log_x=True)
    heads = ("million rows", "best, MESHJOIN, MB", "best, R-MESHJOIN", "Q_p", "w", "counted, rows/s", "by 4.4")
    note = f"{_NOTE} MESHJOIN's moves only because its stream buffer counts. The join runs {off:.1%} from 4.4 at most."
    return judged(checks, note, [chart], [grid("Table 4.4, 100 MB, buffer 0.427 MB", heads, rows)])


def _parts(bench: BenchContext) -> Findings:
    divide = _divide(bench)

    def run(of: Mesh) -> float:
        return count_mesh(of, divide).per_second

    room = 97.0  # megabytes that 100 leave to table and queue
    table = [(share, run(_mesh(share + 0.43, parts=2))) for share in (12, 24, 48, 97)]
    free = [(b, run(_mesh(room + b, parts=2, buffer=b))) for b in (0.02, 0.1, 1, 2)]
    fixed = [(b, run(_mesh(100, parts=2, buffer=b))) for b in (0.03, 0.1, 0.3, 1, 4, 16)]
    by_table, by_buffer, inside = ([y for _, y in points] for points in (table, free, fixed))
    early, late = by_buffer[1] / by_buffer[0], by_buffer[-1] / by_buffer[-2]
    checks = [
        Part(f"with 8 times the hash table the rate is {by_table[-1] / by_table[0]:.2f} times as high",
              all(b > a for a, b in itertools.pairwise(by_table))),
        Part(f"a buffer of 0.1 MB gives {early:.3f} times the rate of one of 0.02, and one of 2 MB {late:.3f} times "
              "that of 1 MB", early > 1.03 and 0.98 < late < 1.02),
        Part(f"within 100 MB there is one maximum, near {fixed[inside.index(max(inside))][0]} MB", wave(inside)),
    ]  # fmt: skip
    charts = [
        Chart("Hash table (buffer 0.43 MB)", "MB", "rows a second", {"R-MESHJOIN": table}),
        Chart("Buffer beside a table of 97 MB", "MB", "rows a second", {"R-MESHJOIN": free}, log_x=True),
        Chart("Buffer inside 100 MB", "MB", "rows a second", {"R-MESHJOIN": fixed}, log_x=True),
    ]
    return judged(checks, _NOTE, charts)


def _against(bench: BenchContext) -> Findings:
    divide, by_memory, by_rows = _divide(bench, 2), [], []
    for memory in _MEMORY:
        mesh, mine = tuned(_mesh(memory)), tuned(_mesh(memory, parts=4))
        found = count_mesh(mine, divide)
        off = found.per_second / mine.rate - 1
        by_memory.append((memory, mesh.buffer_mb, mine.buffer_mb, mesh.rate, mine.rate, found.per_second, off))
    for millions, _, parts in _TABLE_4_4:
        mesh, mine = tuned(_mesh(100, millions)), tuned(_mesh(100, millions, parts))
        by_rows.append((millions, mesh.rate, mine.rate, 100 * (mine.rate / mesh.rate - 1)))
    gains = [100 * (row[4] / row[3] - 1) for row in by_memory]
    off = max(abs(row[6]) for row in by_memory)
    first, last = by_memory[0], by_memory[-1]
    checks = [
        Part(f"(a) calculated and counted costs differ by {off:.1%} at most", off < 0.03),
        Part(f"(b) R-MESHJOIN's best buffer is {first[2]:.3f} MB against {first[1]:.3f} at 25 MB and {last[2]:.3f} "
              f"against {last[1]:.3f} at 250; printed: smaller, the more so the more memory", last[2] < last[1]),
        Part(f"(c) R-MESHJOIN is faster, by {gains[0]:.2f} % at 25 MB and {gains[-1]:.2f} % at 250",
              all(gain > 0 for gain in gains)),
        Part("(c) and the gain grows with memory", gains[-1] > gains[0] * 1.1),
        Part(f"(d) it is faster by {by_rows[0][3]:.2f} % at 0.5 million rows and by {by_rows[-1][3]:.2f} % at 16",
              by_rows[0][3] > by_rows[-1][3] >= 0),
    ]  # fmt: skip
    lines = {"MESHJOIN": [(r[0], r[3]) for r in by_memory], "R-MESHJOIN": [(r[0], r[4]) for r in by_memory]}
    sizes = {"MESHJOIN": [(r[0], r[1]) for r in by_memory], "R-MESHJOIN": [(r[0], r[2]) for r in by_memory]}
    charts = [Chart("Rates with the best buffers", "memory, MB", "rows a second", lines),
              Chart("Best buffers", "memory, MB", "MB", sizes)]  # fmt: skip
    heads = ("memory, MB", "best, MESHJOIN", "best, R-MESHJOIN", "MESHJOIN, rows/s", "R-MESHJOIN", "counted", "off by")
    tables = [grid("By memory", heads, by_memory),
              grid("By master rows", ("million", "MESHJOIN, rows/s", "R-MESHJOIN", "gain, %"), by_rows)]  # fmt: skip
    return judged(checks, f"{_NOTE} The gain is what MESHJOIN's stream buffer takes of memory.", charts, tables)


EXPERIMENTS = (
    counted(
        "r-mesh-tables",
        ("table 4.2", "table 4.3"),
        "R-MESHJOIN's memory, and what an iteration costs, in three cases.",
        _tables,
    ),
    counted(
        "r-mesh-master-size",
        ("table 4.4", "figure 4.2", "figure 4.9"),
        "The size of the master data moves "
        "MESHJOIN's best buffer, but not R-MESHJOIN's, whose chunks stay as they are.",
        _master_size,
    ),
    counted(
        "r-mesh-parts",
        ("figure 4.5", "figure 4.6", "figure 4.7"),
        "The rate grows with the hash table; it grows "
        "with the buffer until it saturates; and within fixed memory one buffer is best.",
        _parts,
    ),
    counted(
        "r-mesh-against-mesh",
        ("figure 4.8 (a)", "figure 4.8 (b)", "figure 4.8 (c)", "figure 4.8 (d)"),
        "Calculated costs are close to measured ones; R-MESHJOIN's best buffer is smaller than MESHJOIN's and the "
        "gap grows with memory; it is a little faster, the more so with more memory and with less master data.",
        _against,
    ),
)
