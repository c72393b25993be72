"""Every test of the allocator starts with nothing remembered.

Caches hold what pure functions said, so they change no answer; but `make mutants` would be told
what the sound function said before a fault was put into it.
"""

import pytest

from testing.allocation.caches import clear_caches


@pytest.fixture(autouse=True)
def _clear_caches() -> None:
    clear_caches()
