"""A line for each file of stories that begins, so that a run that waits is not taken for one that hangs."""

from typing import Final

import pytest

STORIES: Final = "e2e/test_"
FIRST: Final = (
    "stories run on a real Kubernetes, which is built first where the cache has none: "
    "about five minutes without a further line"
)


class StoryLines:
    """Prints the name of a file when the first of its stories begins.

    With xdist it works in the process that has the terminal, which is notified of all tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._terminal = config.get_terminal_writer()
        self._files: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if not file.startswith(STORIES) or file in self._files:
            return
        # With -q nothing ends the line of dots.
        if self._terminal.width_of_current_line:
            self._terminal.line()
        if not self._files:
            self._terminal.line(FIRST)
        self._files.add(file)
        self._terminal.line(f"story: {file}")
        self._terminal.flush()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start to print, if there is a terminal."""
    plugins = session.config.pluginmanager
    if plugins.has_plugin("terminalreporter"):
        plugins.register(StoryLines(session.config))
