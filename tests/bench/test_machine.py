"""Tests the description of the machine that measured figures."""

import json
import subprocess
from pathlib import Path

import dovetail
from bench import machine


def test_machine_facts_are_json_and_name_the_processor() -> None:
    facts = json.loads(json.dumps(machine.machine()))
    assert facts["cpu"]
    assert facts["usable_cores"] >= 1
    assert facts["memory_bytes"] > 2**28


def test_versions_tell_what_is_missing() -> None:
    found = machine.versions(["no-such-package-of-ours"])
    assert found["dovetail"] == dovetail.__version__
    assert found["no-such-package-of-ours"] is None
    assert found["numpy"] is not None


def test_commit_is_the_head_of_a_checkout() -> None:
    root = Path(__file__).parents[2]
    head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert (machine.commit() or "").removesuffix("+dirty") == head.stdout.strip()


def test_commit_is_none_where_the_sources_are_not_tracked(tmp_path: Path, monkeypatch) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(dovetail, "__file__", str(tmp_path / "site-packages" / "__init__.py"))
    assert machine.commit() is None
