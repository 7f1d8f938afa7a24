"""Prints a Markdown table of the conformance suite: `python -m tests.xquery.conformance.table [--failures]`."""

from __future__ import annotations

import sys

from tests.xquery.conformance.differences import DIFFERENCES
from tests.xquery.conformance.suite import Saxon, expected, features, ours


def main() -> int:
    """The table; 1 if any query fails."""
    saxon, totals, failures = Saxon(), [0, 0, 0, 0, 0], []
    print("| feature | queries | same as SaxonC-HE | different on purpose | fail | errors among them |")
    print("|---|---|---|---|---|---|")
    for feature, queries in features().items():
        row = [len(queries), 0, 0, 0, 0]
        for query in queries:
            reference, found = saxon.answer(query), ours(query)
            wanted = expected(query, reference)
            row[3 if found != wanted else 2 if query in DIFFERENCES else 1] += 1
            row[4] += bool(wanted.error)
            if found != wanted:
                failures.append((query, wanted, found))
        totals = [total + part for total, part in zip(totals, row, strict=True)]
        print(f"| {feature} | " + " | ".join(map(str, row)) + " |")
    print("| **all** | " + " | ".join(map(str, totals)) + " |")
    print("\nWhy an answer differs on purpose is said beside each such query in `differences.py`.")
    if "--failures" in sys.argv:
        for query, wanted, found in failures:
            print(f"\n{query}\n  Saxon {wanted}\n  ours  {found}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
