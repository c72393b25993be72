"""The limit of open files: raised to the allowed maximum, and compared with the need."""

from typing import Final

from kube.errors import ConfigError

MAX_OPEN_FILES: Final = 65_536
"""Nothing here needs more, and some libraries close every number up to the limit."""
RESERVE: Final = 128
"""The number of files for everything but connections of clients: files, the API server, the event
loop."""


def raise_open_file_limit() -> int:
    """Raise the soft limit to the hard one; return it.

    Container runtimes start processes with a soft limit of 1,024, which a few clients can use up.
    """
    import resource  # noqa: PLC0415 - the command line imports this module where there is none.

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed_files = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed_files, hard))
        return allowed_files
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def check_open_file_limit(connections: int, setting: str) -> None:
    """Raise the limit, and check that connections fit.

    Args:
        connections: The number of connections that clients may have open.
        setting: The setting that sets the number, for the error.

    Raises:
        ConfigError: The limit is too low for them.
    """
    limit = raise_open_file_limit()
    if connections + RESERVE > limit:
        raise ConfigError(
            f"{setting} is {connections}, which needs {connections + RESERVE} open files, and this"
            f" process may open {limit} (RLIMIT_NOFILE); raise the limit or lower {setting}"
        )
