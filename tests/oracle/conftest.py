from collections.abc import Iterator

import pytest

from tests.oracle.go import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The real Go packages, one process for all tests."""
    with Oracle() as running:
        yield running
