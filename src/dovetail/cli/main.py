"""Runs the command `dovetail`; the module of a subcommand is imported when it is used."""

from __future__ import annotations

import importlib
import traceback
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from dovetail.errors import DovetailError
from dovetail.version import __version__

COMMANDS = {
    "demo": "dovetail.cli.demo",
    "doctor": "dovetail.cli.doctor",
    "calibrate": "dovetail.cli.calibrate",
    "xquery": "dovetail.cli.xquery",
    "page": "dovetail.cli.page",
    "run": "dovetail.cli.run",
    "check": "dovetail.cli.check",
    "explain": "dovetail.cli.explain",
}
"""Subcommand -> the module that holds its Typer `app`. A new subcommand is one line here and one module."""

FAILED = 2
"""Exit code of a `DovetailError`; 1 means that the command ran and found problems."""


class ErrorGroup(TyperGroup):
    """A group of commands whose errors are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; an error of ours becomes one red line and exit code 2."""
        try:
            return super().invoke(ctx)
        except DovetailError as error:
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            show_error(error)
            raise typer.Exit(FAILED) from None


class DovetailGroup(ErrorGroup):
    """The subcommands of `dovetail`; the module of one is imported when it is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = dict.fromkeys(COMMANDS)  # their names, which a misspelt one is compared with

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, ready to run; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


def show_error(error: DovetailError) -> None:
    """Print the message of the error on stderr, in red where the terminal has colours."""
    kind = type(error).__name__
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(f"{kind}: {error}", style="bold red"))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dovetail {__version__}")
        raise typer.Exit


app = typer.Typer(cls=DovetailGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error, not only its message.")
    ] = False,
) -> None:
    """Joins that Apache Spark does not have, each inside a memory budget that you set."""


def run() -> None:
    """Run the command line; the entry point of the installed script."""
    app()
