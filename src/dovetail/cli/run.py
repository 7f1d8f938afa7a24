"""`dovetail run`: runs a pipeline file, with its progress on the terminal and on a live page."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dovetail.pipeline.file.declared import Pipeline
    from dovetail.pipeline.record.watch import Watch
    from dovetail.pipeline.run import Run

app = typer.Typer()
_LINE_EVERY_S = 10.0
INTERRUPTED = 130


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The pipeline file, in TOML.")],
    for_: Annotated[str | None, typer.Option("--for", help='Stop after this time: "60s", "10 min".')] = None,
    once: Annotated[bool, typer.Option("--once", help="Take all input that is there now, then end.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page, and print its address.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE in place of the file's: join.enriched.memory=20MB.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where the page is served.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 0,
    token: Annotated[
        str | None,
        typer.Option(envvar="DOVETAIL_TOKEN", help="What readers of the page must know; others see it in a command."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the token.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the page of the whole run to this HTML file.")] = None,
) -> None:
    """Run a pipeline; Ctrl-C stops it cleanly, and the same command continues from there.

    Exit codes: 0 when it ended or was stopped, 2 when it failed, 130 after a second Ctrl-C.
    """
    from dovetail.errors import PlanError
    from dovetail.pipeline.file.read import read_pipeline
    from dovetail.request import parse_seconds

    if for_ is not None and once:
        raise PlanError("--for and --once exclude each other; give one of them.", argument="for")
    seconds = None if for_ is None else parse_seconds("--for", for_)
    pipeline = read_pipeline(file, set_ or ())
    _run(pipeline, seconds, once, (host, port, token_of(token, token_file)) if ui else None, page)


def token_of(token: str | None, file: Path | None) -> str | None:
    """The token of the live page: the one given, or the first line of the file."""
    if file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip().partition("\n")[0]
    except OSError as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error.strerror}; check place and rights.") from error


def _run(
    pipeline: Pipeline, seconds: float | None, once: bool, serve: tuple[str, int, str | None] | None, page: Path | None
) -> None:
    from dovetail.pipeline.run import Run, record_place, watch_of
    from dovetail.pipeline.start import started_session
    from dovetail.pipeline.terminal import summary, written

    console, watch = Console(stderr=True), watch_of(pipeline)
    with ExitStack() as stack:
        serve_page(stack, watch, serve, console)
        spark = stack.enter_context(started_session(pipeline))
        _check(spark, pipeline)
        one = Run(spark, pipeline, watch, seconds, once, console)
        stack.enter_context(stopping_on_signals(one))
        try:
            with showing(watch, console):
                one.go()
        finally:
            watch.save(record_place(pipeline))
            summary(watch, written())
            freeze_page(watch, page, console)
    if one.given_up:
        raise typer.Exit(INTERRUPTED)


def _check(spark: SparkSession, pipeline: Pipeline) -> None:
    """Raise all problems with their lines, before anything runs."""
    from dovetail.pipeline.check import check_pipeline
    from dovetail.pipeline.file.problems import PipelineError

    problems = check_pipeline(spark, pipeline)
    if problems:
        raise PipelineError(str(pipeline.path), problems)


def serve_page(stack: ExitStack, watch: Watch, where: tuple[str, int, str | None] | None, console: Console) -> None:
    """Serve the live page at this host and port with this token until the stack closes; nothing for None."""
    if where is None:
        return
    from dovetail.page import serve

    host, port, token = where
    shown = serve(watch, host=host, port=port, token=token)
    stack.callback(shown.close)
    console.print(f"live page: {shown.url}", highlight=False, soft_wrap=True)


def freeze_page(watch: Watch, page: Path | None, console: Console) -> None:
    """Write the page of the whole run, if a file is given."""
    if page is None:
        return
    from dovetail.page import freeze

    console.print(f"page of the run: {freeze(watch, page)}", highlight=False, soft_wrap=True)


@contextmanager
def stopping_on_signals(one: Run) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop the run in the block; earlier handlers are restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = {number: signal.signal(number, lambda *_: one.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in asked.items():
            signal.signal(number, before)


@contextmanager
def showing(watch: Watch, console: Console) -> Iterator[None]:
    """Show a live table on a terminal, and a line every ten seconds elsewhere."""
    from dovetail.pipeline.terminal import line_of, live_table

    if console.is_terminal and sys.stderr.isatty():
        from rich.live import Live

        with Live(get_renderable=lambda: live_table(watch), console=console, refresh_per_second=2, transient=True):
            yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_lines, args=(watch, console, done, line_of), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _lines(watch: Watch, console: Console, done: threading.Event, line_of: Any) -> None:
    said = time.monotonic()
    while not done.wait(0.2):
        if time.monotonic() - said >= _LINE_EVERY_S:
            said = time.monotonic()
            console.print(line_of(watch), highlight=False, soft_wrap=True)
