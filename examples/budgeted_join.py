"""A join that does not fit into its memory budget: the same answer, some of it by way of the disk."""

from dovetail.engine.host import run_local
from dovetail.engine.nested_loop import NestedLoopJoin
from dovetail.workloads import orders, products

JOIN = NestedLoopJoin(on=("product_id",))


def joined(budget: str) -> int:
    """Rows of 3,000 orders with their products, and a line about what it took."""
    inputs = {"left": orders(rows=3_000, products=100, seed=1).batches(), "right": products(100, seed=1).batches()}
    run = run_local(JOIN, inputs, budget)
    rows = run.table().num_rows
    spilled, peak = run.metrics.value("spilled"), run.metrics.value("memory_peak")
    print(f"budget {budget:>6}: {rows} rows, peak {peak:,} bytes, spilled {spilled:,} bytes")
    return rows


if __name__ == "__main__":
    assert joined("8MB") == joined("64KB")
