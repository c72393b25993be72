"""Every test of the allocator starts with nothing remembered.

Caches hold what pure functions said, so they change no answer; but `make mutants` would be told
what the sound function said before a fault was put into it.
"""

import sys

import pytest


@pytest.fixture(autouse=True)
def _clear_caches() -> None:
    for name, module in tuple(sys.modules.items()):
        if name.startswith("allocator."):
            for var in vars(module).values():
                if getattr(var, "__module__", None) == name and hasattr(var, "cache_clear"):
                    var.cache_clear()
