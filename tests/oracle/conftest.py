from collections.abc import Iterator

import pytest

from testing.oracle.go import Oracle

TOLD = pytest.StashKey[list[str]]()
"""Lines about the sample of scenarios, once it was compared."""


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The real Go packages, one process for all tests."""
    with Oracle() as running:
        yield running


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the coverage of the sample."""
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)
