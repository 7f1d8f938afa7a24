"""TPC-H tables at small scale factors, made by `tpchgen-cli` from PyPI, and the shipping intervals in them."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.errors import ConfigError
from dovetail.workloads.blocks import require

Table = Literal["orders", "customer", "lineitem"]

TABLES: tuple[Table, ...] = ("orders", "customer", "lineitem")

_PROGRAM = "tpchgen-cli"


def tpch_files(scale: float, directory: str | Path, tables: Iterable[Table] = TABLES) -> dict[Table, Path]:
    """Parquet files of the tables at a scale factor (1 = 1 GB), in the directory; existing ones are used again.

    TPC-H has no seed: a scale factor fixes every row.
    """
    wanted = list(tables)
    unknown = sorted(set(wanted) - set(TABLES))
    require(not unknown, f"unknown TPC-H tables {unknown}; allowed: {', '.join(TABLES)}.")
    require(0 < scale <= 100, f"the scale factor must be above 0 and at most 100, not {scale}.")
    home = Path(directory) / f"sf{scale:g}"
    missing = [name for name in wanted if not (home / f"{name}.parquet").exists()]
    if missing:
        _generate(scale, home, missing)
    return {name: home / f"{name}.parquet" for name in wanted}


def tpch_table(name: Table, scale: float = 0.01, directory: str | Path | None = None) -> pa.Table:
    """One TPC-H table as Arrow; without a directory its file is made in a temporary place and removed."""
    if directory is not None:
        return _read(tpch_files(scale, directory, [name])[name])
    with tempfile.TemporaryDirectory(prefix="dovetail-tpch-") as place:
        return _read(tpch_files(scale, place, [name])[name])


def shipping_intervals(lineitem: pa.Table) -> pa.Table:
    """Rows `id`, `key` (the order), `start`, `end`: the days from shipped to received, as days since 1970-01-01.

    Between 1 and 30 days. The self-join of scale factor 0.01 has 44 million overlaps.
    Reference: Carman 2020, 3.4; docs/algorithms/interval.md, 5.2.
    """
    days = {name: lineitem[f"l_{name}date"].cast(pa.int32()).cast(pa.int64()) for name in ("ship", "receipt")}
    ids = pa.array(range(lineitem.num_rows), pa.int64())
    columns = [ids, lineitem["l_orderkey"], days["ship"], days["receipt"]]
    return pa.table(columns, names=["id", "key", "start", "end"])


def _generate(scale: float, home: Path, tables: list[Table]) -> None:
    """Into a scratch directory first, so that an interrupted run leaves no half-written table behind."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=home) as scratch:
        command = [_program(), "parquet", "-q", "-s", f"{scale:g}", "-T", ",".join(tables), "-o", scratch]
        # S603: the program is the one found below and every argument is ours.
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise ConfigError(f"{_PROGRAM} failed with code {done.returncode}: {(done.stderr or done.stdout).strip()}")
        for name in tables:
            (Path(scratch) / f"{name}.parquet").replace(home / f"{name}.parquet")


def _program() -> str:
    scripts = sysconfig.get_path("scripts")
    found = shutil.which(_PROGRAM, path=scripts) or shutil.which(_PROGRAM)
    if found is None:
        raise ConfigError(f"{_PROGRAM} is neither in {scripts} nor on PATH; install it: pip install 'dovetail[tpch]'.")
    return found


def _read(path: Path) -> pa.Table:
    """Plain strings instead of string views, which pandas and Spark do not take, and no Parquet field numbers."""
    table = pq.read_table(path)
    plain = [
        pa.field(field.name, pa.string() if field.type == pa.string_view() else field.type, field.nullable)
        for field in table.schema
    ]
    return table.cast(pa.schema(plain))
