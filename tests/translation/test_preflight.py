"""The chains of preconditions and preflight checks."""

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import pytest

from translation.preflight import checks, preconditions
from translation.preflight.chain.checks import PREFLIGHT
from translation.preflight.chain.preconditions import PRECONDITIONS


@pytest.mark.parametrize(("folder", "chain"), [(preconditions, PRECONDITIONS), (checks, PREFLIGHT)])
def test_every_file_is_in_the_chain_once(folder: ModuleType, chain: Sequence[Any]) -> None:
    files = [
        import_module(f"{folder.__name__}.{module.name}")
        for module in iter_modules(folder.__path__)
    ]

    assert sorted(file.__name__ for file in files) == sorted(link.__module__ for link in chain)
