"""Lines that commands print beside their own: nothing in a healthy run, one line where Spark cannot start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.pipeline.record.watch import Watch

DOVETAIL = str(Path(sys.executable).with_name("dovetail"))

KAFKA = """
[pipeline]
name = "clicks"
checkpoint = "checkpoint"

[pipeline.spark]
"spark.jars.ivySettings" = "@place@/ivy.xml"
"spark.jars.packages" = "org.example:no-such-connector_2.13:1.2.3"

[source.clicks]
type = "kafka"
options = { "kafka.bootstrap.servers" = "localhost:1", subscribe = "clicks" }

[sink.kept]
type = "parquet"
from = "clicks"
path = "kept"
"""
NO_REPOSITORY = """
<ivysettings><settings defaultResolver="none"/><caches defaultCacheDir="@place@/cache"/><resolvers>
<filesystem name="none"><artifact pattern="@place@/nothing/[organisation]/[artifact]-[revision].[ext]"/></filesystem>
</resolvers></ivysettings>
"""


def command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "200", "TMPDIR": str(place)}
    return subprocess.run([DOVETAIL, *words], cwd=place, env=env, capture_output=True, text=True, check=False)


@pytest.mark.sampled(4)  # it starts a Spark of its own
@pytest.mark.parametrize(("words", "code"), [(("check",), 1), (("run", "--once"), 2)])
def test_a_connector_that_cannot_be_fetched_is_one_line(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    (tmp_path / "clicks.toml").write_text(KAFKA.replace("@place@", str(tmp_path)))
    (tmp_path / "ivy.xml").write_text(NO_REPOSITORY.replace("@place@", str(tmp_path)))
    done = command(tmp_path, *words, "clicks.toml")
    assert done.returncode == code, done.stderr
    told = (done.stdout + done.stderr).splitlines()
    assert len(told) == 1, told
    assert (
        "clicks.toml:8: spark.jars.packages: org.example:no-such-connector_2.13:1.2.3 could not be fetched" in told[0]
    )
    assert "spark.jars" in told[0].partition("could not be fetched")[2]
    assert not list(tmp_path.glob("dovetail-spark-*")), "the log of a command whose text is wrong is not kept"


OUR_LINES = re.compile(
    r"live page: http://\S+$|page of the run: |retail: |verify |predicted and measured|pipeline: |result: "
    r"|verified: [\d,]+ rows equal$|\s*[┏┃┡│└]"
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_healthy_demonstration_prints_its_own_lines_and_ends_as_finished(tmp_path: Path) -> None:
    sizes = ["--rows", "600", "--products", "2000", "--seconds", "1", "--memory", "1MB"]
    done = command(tmp_path, "demo", *sizes, "--output", "out")
    assert done.returncode == 0, done.stderr
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert [line for line in lines if not OUR_LINES.match(line)] == []
    assert any(line.startswith("live page: ") for line in lines)
    assert "retail: finished after" in done.stdout
    assert Watch.load(tmp_path / "out" / "work" / "checkpoint" / "watch.json").state == "ended"
    assert "&gt;Finished&lt;" in (tmp_path / "out" / "page.html").read_text()
    assert not list(tmp_path.glob("dovetail-spark-*")), "the log of a healthy run is not kept"


FAILS = """
[pipeline]
name = "fails"

[source.n]
type = "workload"
workload = "products"
options = { products = 5 }

[join.bad]
type = "sql"
query = "select assert_true(product_id < 0) from n"

[sink.out]
type = "parquet"
from = "bad"
path = "out"
"""


@pytest.mark.sampled(4)  # it starts a Spark of its own
def test_a_run_that_fails_tells_where_the_log_is(tmp_path: Path) -> None:
    (tmp_path / "fails.toml").write_text(FAILS)
    done = command(tmp_path, "run", "fails.toml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "is not true" in done.stderr
    log = re.search(r"what Spark printed: (\S+)", done.stderr)
    assert log is not None, done.stderr
    assert "is not true" in Path(log[1]).read_text()
