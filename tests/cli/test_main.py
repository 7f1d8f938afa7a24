"""The command line itself: version, help, late imports, and errors in one line."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import dovetail
from dovetail.cli import main
from dovetail.errors import ConfigError

runner = CliRunner()


def test_version() -> None:
    result = runner.invoke(main.app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"dovetail {dovetail.__version__}\n"


def test_the_installed_script_starts_without_heavy_imports() -> None:
    code = (
        "import sys; sys.argv = ['dovetail', '--version']\n"
        "from dovetail.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'numba', 'pandas', 'duckdb', 'polars'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"dovetail {dovetail.__version__}\n"


def test_help_lists_every_command_and_stays_light() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from dovetail.cli.main import app, COMMANDS\n"
        "output = CliRunner().invoke(app, ['--help']).output\n"
        "missing = [name for name in COMMANDS if name not in output]\n"
        "assert not missing, missing\n"
        "heavy = {'pyspark', 'numba', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_arguments_it_shows_help() -> None:
    assert "Usage" in runner.invoke(main.app, []).output


def test_a_mistyped_command_is_corrected() -> None:
    result = runner.invoke(main.app, ["docter"])
    assert result.exit_code == 2
    assert "Did you mean 'doctor'" in " ".join(result.output.split())


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subcommand `fail` whose only deed is an error of ours."""
    module = type(sys)("dovetail_failing_command")
    module.app = typer.Typer()

    @module.app.command()
    def fail() -> None:
        raise ConfigError("the [disk] is full; free some.")

    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(main.COMMANDS, "fail", module.__name__)


@pytest.mark.usefixtures("failing")
def test_an_error_of_ours_is_one_line_and_exit_code_2() -> None:
    result = runner.invoke(main.app, ["fail"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "ConfigError: the [disk] is full; free some.\n"


@pytest.mark.usefixtures("failing")
def test_debug_adds_the_traceback() -> None:
    result = runner.invoke(main.app, ["--debug", "fail"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("ConfigError: the [disk] is full; free some.\n")
