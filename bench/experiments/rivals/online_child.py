"""Two streams joined to their end in a Java heap of so many mebibytes.

Run as a module with JOIN MIB DIRECTORY SCALE BATCH_ROWS MEMORY it prints how many pairs there were.
"""

from __future__ import annotations

from pathlib import Path

from bench.case import Outcome, Params, Prepare
from bench.cases.online import CASE, IN_JAVA, OURS, THEIRS
from bench.context import BenchContext
from bench.experiments.rivals.limited import Answer, main, session


def _answer(prepare: Prepare) -> Answer:
    def answer(mib: int, place: Path, words: list[str]) -> int:
        session(mib)
        scale, rows, memory = words
        params: Params = {"batch_rows": int(rows), "memory": memory}
        with BenchContext("full" if scale == "full" else "small") as bench, prepare(bench, params) as turn:
            found = turn()
        return found.answer if isinstance(found, Outcome) else int(found)

    return answer


JOINS = {rival.name: _answer(rival.prepare) for rival in CASE.rivals if rival.name in (OURS, THEIRS, IN_JAVA)}

if __name__ == "__main__":
    main(JOINS)
