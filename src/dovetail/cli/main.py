"""Runs the command `dovetail`; the module of a subcommand is imported when it is used."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator, MutableMapping
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


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; a module is imported when its command is first used."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The command, ready to run; KeyError if there is none of that name."""
        if name not in self._loaded:
            command = typer.main.get_command(importlib.import_module(self._modules[name]).app)
            command.name = name
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._modules.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


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
    """The subcommands of `dovetail`, each loaded when it is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands(dict(COMMANDS))

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table, without importing any module."""
        return list(self.commands)


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
