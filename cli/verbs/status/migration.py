"""The progress of a migration that `drawbridge wave` goes through. Pure."""

from collections.abc import Iterator

from cli.reading.installation import Installation
from cli.verbs.status.model import State, StatusCheck
from clusterstate.wave_record import describe_progress, describe_state, parse_record
from kube.errors import ConfigError


def check_migration(installation: Installation) -> Iterator[StatusCheck]:
    """Yield the progress of a migration; nothing if none was begun."""
    if installation.migration is None:
        return
    try:
        record = parse_record(installation.migration)
    except ConfigError as error:
        yield StatusCheck(name="migration", state=State.UNKNOWN, message=str(error))
        return
    message = f"{describe_progress(record)}: {describe_state(record)}"
    yield StatusCheck(name="migration", state=State.OK, message=message)
