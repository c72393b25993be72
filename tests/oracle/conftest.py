from collections.abc import Iterator

import pytest

from testing.oracle.go import Oracle

COVERAGE = "coverage of the sample"
"""The property of a test whose value, lines of text, is shown at the end of the run."""


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The real Go packages, one process for all tests."""
    with Oracle() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the coverage of the sample, in any process that ran the test."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == COVERAGE:
                terminalreporter.write_line(value)
