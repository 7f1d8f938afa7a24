"""`dovetail demo`: the steps on a small shop, and the command from start to end."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli import demo_steps
from dovetail.cli.demo_steps import Demo
from dovetail.cli.main import app
from dovetail.errors import DataError, PlanError

runner = CliRunner()


@pytest.fixture(scope="module")
def shop(spark, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A demonstration after its join."""
    demo = Demo(tmp_path_factory.mktemp("demo"), rows=400, memory="1MB", seed=3)
    for _, step in demo_steps.STEPS[:3]:
        step(demo)
    return demo


def test_the_result_is_there_and_verified(shop: Demo) -> None:
    demo_steps.verify(shop)
    assert shop.verified == shop.tables["orders_in_promotion"].count() > 0
    assert list(shop.path("orders_in_promotion").glob("*.parquet"))


def test_the_summary_tells_what_was_tried_and_what_it_took(shop: Demo) -> None:
    lines = dict(shop.summary)
    assert lines["orders"] == "400"
    assert lines["promotions"] == "500"
    assert lines["pairs tried"] == "200,000"
    assert lines["rows found"] == f"{shop.tables['orders_in_promotion'].count():,}"
    assert lines["memory a task may use"] == "1 MiB"


def test_a_wrong_result_is_not_verified(shop: Demo) -> None:
    right = shop.tables["orders_in_promotion"]
    try:
        shop.tables["orders_in_promotion"] = right.where(right.order_id != right.first().order_id)
        with pytest.raises(DataError, match="only Spark's"):
            demo_steps.verify(shop)
        shop.tables["orders_in_promotion"] = right.unionAll(right.limit(1))
        with pytest.raises(DataError, match="only ours"):
            demo_steps.verify(shop)
    finally:
        shop.tables["orders_in_promotion"] = right


def test_the_command_ends_with_the_place_of_the_result(spark, tmp_path: Path) -> None:
    result = runner.invoke(app, ["demo", "--rows", "200", "--output", str(tmp_path / "out")], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert f"result: {tmp_path / 'out' / 'orders_in_promotion'}" in result.stdout
    assert "rows equal" in result.stdout
    assert spark.range(3).count() == 3, "a session that was running is left running"


def test_a_wrong_size_is_told_before_anything_starts() -> None:
    with pytest.raises(PlanError, match="memory size"):
        Demo(Path("demo-output"), 1, "much", 0)


def test_an_unwritable_place_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = runner.invoke(app, ["demo", "--output", str(blocked / "out")])
    assert result.exit_code == 2
    assert "--output" in result.stderr
