"""`dovetail doctor`: whether this machine can run Dovetail, and the fix for what stands in the way."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.cli import checks

app = typer.Typer()

STYLES = {"ok": "green", "warning": "yellow", "broken": "bold red"}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Also start Spark and run one query (some seconds).")] = False,
) -> None:
    """Check Python, Java, Spark, memory, disk, sockets and the calibration; exit 1 if something is broken."""
    chosen = (*checks.CHECKS, checks.query) if start else checks.CHECKS
    findings = [check(os.environ) for check in chosen]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.status == "broken" for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[checks.Finding]) -> None:
    table = Table("check", "status", "found", "what to do")
    for finding in findings:
        status = Text(finding.status, style=STYLES[finding.status])
        # Text, not str: paths and messages may hold brackets that Rich would take for markup.
        table.add_row(finding.name, status, Text(finding.found, overflow="fold"), Text(finding.fix, overflow="fold"))
    Console().print(table)
