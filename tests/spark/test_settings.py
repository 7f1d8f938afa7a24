"""Sources of settings, without a JVM."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dovetail
from dovetail.errors import PlanError
from dovetail.spark import launch
from dovetail.spark.session import _given
from dovetail.spark.settings import SETTINGS, configured_elsewhere, local_cores


def test_importing_dovetail_loads_neither_spark_nor_kernels() -> None:
    code = "import sys, dovetail; print(sorted({'pyspark', 'numba', 'numpy', 'pyarrow', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_public_face_gives_every_name_it_lists() -> None:
    text = Path(dovetail.__file__).read_text(encoding="utf-8")
    typed = re.findall(r"^    from (\S+) import (\w+) as \2$", text, re.MULTILINE)  # for editors and type checkers
    assert {name: module for module, name in typed} == dovetail._PUBLIC
    for name, module in dovetail._PUBLIC.items():
        found = getattr(dovetail, name)
        assert getattr(found, "__module__", None) == module or found.__name__ == f"{module}.{name}"  # or a module there
    assert set(dovetail.__all__) <= set(dir(dovetail))
    with pytest.raises(AttributeError, match=r"no attribute 'sesion'; it has .*'session'"):
        _ = dovetail.sesion


def test_no_module_has_the_name_of_a_public_function() -> None:
    assert not [name for name in dovetail.__all__ if importlib.util.find_spec(f"dovetail.{name}") is not None]


def test_a_setting_can_be_spelled_three_ways() -> None:
    given = _given("2g", {"spark.a.b": 1}, {"spark.c.d": True, "spark_e_f": 0.5})
    assert given == {"spark.a.b": "1", "spark.c.d": "true", "spark.e.f": "0.5", "spark.driver.memory": "2048m"}


@pytest.mark.parametrize("name", ["shuffle_partitions", "memroy", "park.x"])
def test_a_setting_that_is_not_sparks_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="are not Spark's") as raised:
        dovetail.session(conf=None, **{name: 1})  # type: ignore[arg-type]  # mypy takes the name for any parameter
    assert raised.value.argument == name


@pytest.mark.parametrize(("memory", "complaint"), [("64MB", "Spark needs 512 MiB"), ("lots", "not a size")])
def test_memory_that_cannot_work_is_refused(memory: str, complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        dovetail.session(memory=memory)


def test_what_the_user_configured_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.master   spark://host:7077\nspark.a=1\nspark.b: two words\nspark.c\tx=y\n"
    )
    env = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.a=2 --driver-memory 3g -c 'spark.d=p q' pyspark-shell",
    }
    assert configured_elsewhere(env, tmp_path / "no-spark-home") == {
        "spark.master": "spark://host:7077",
        "spark.a": "2",
        "spark.b": "two words",
        "spark.c": "x=y",
        "spark.driver.memory": "3g",
        "spark.d": "p q",
    }
    assert configured_elsewhere({}, tmp_path / "no-spark-home") == {}
    (tmp_path / "mine.conf").write_text("spark.b three\nspark.e 5\n")
    given = f"--conf=spark.a=2 --properties-file={tmp_path / 'mine.conf'} pyspark-shell"
    mine = {"spark.a": "2", "spark.b": "three", "spark.e": "5"}
    env["PYSPARK_SUBMIT_ARGS"] = given
    assert configured_elsewhere(env, tmp_path) == mine
    env["PYSPARK_SUBMIT_ARGS"] = f"--load-spark-defaults {given}"
    assert configured_elsewhere(env, tmp_path) == {"spark.master": "spark://host:7077", "spark.c": "x=y", **mine}


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """What we read is given to Spark again, so that a misread value would take the place of the user's."""
    text = r"""
! another comment, which ends in a backslash \
spark.driver.extraJavaOptions -Da=b \
    -Dc=d
spark.redaction.regex (?i)secret\\d|a\=b
spark.local.dir=C\:\\tmp
spark.sql.x \u00e9\tz
   spark.y : = 1
spark.z
"""
    (tmp_path / "spark-defaults.conf").write_text(text)
    assert configured_elsewhere({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path) == {
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
        "spark.redaction.regex": r"(?i)secret\d|a=b",
        "spark.local.dir": r"C:\tmp",
        "spark.sql.x": "é\tz",
        "spark.y": "= 1",
        "spark.z": "",
    }


def test_our_defaults_give_way_to_the_users_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 11\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = launch._all_settings({"spark.master": "local[3]", "spark.python.daemon.module": "mine"})
    assert settings["spark.sql.shuffle.partitions"] == "11"
    assert settings["spark.python.daemon.module"] == "mine"
    assert "spark.sql.session.timeZone" not in settings


def test_a_cluster_gets_no_setting_that_is_for_one_machine() -> None:
    settings = launch._all_settings({"spark.master": "spark://host:7077"})
    assert set(settings) == {"spark.master", "spark.app.name", *(setting.key for setting in SETTINGS)}


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {4040, 4041}
    monkeypatch.setattr(launch, "_is_free", lambda port: port not in taken)
    assert launch._ui_port({}) == {"spark.ui.port": "4042"}
    assert launch._ui_port({"spark.ui.enabled": "false"}) == {}
    assert launch._ui_port({"spark.ui.port": "9000"}) == {}


def test_a_bound_port_is_not_free() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        assert not launch._is_free(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[4]", 4), ("local[2,3]", 2), ("local[2, 3]", 2), ("spark://h:7077", None), ("yarn", None)],
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_all_cores_of_this_machine() -> None:
    assert local_cores("local[*]") == os.cpu_count()


def test_the_environment_of_a_launch_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_ONE", "before")
    monkeypatch.delenv("DOVETAIL_TWO", raising=False)
    with pytest.raises(RuntimeError), launch._environment({"DOVETAIL_ONE": "x", "DOVETAIL_TWO": "y"}):  # noqa: PT012  (the block raises on purpose)
        assert (os.environ["DOVETAIL_ONE"], os.environ["DOVETAIL_TWO"]) == ("x", "y")
        raise RuntimeError
    assert os.environ["DOVETAIL_ONE"] == "before"
    assert "DOVETAIL_TWO" not in os.environ
