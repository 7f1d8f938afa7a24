"""The examples in the engine's docstrings run and say the truth."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import dovetail.engine

MODULES = [module.name for module in pkgutil.iter_modules(dovetail.engine.__path__, "dovetail.engine.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    attempted = sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES)
    assert attempted >= 8
