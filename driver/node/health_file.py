"""The recent faults of devices on the disk, so that a restart of the driver forgets no relapse.

Its clock is the kernel's monotonic one, which goes on when a process ends and begins anew with a boot.
So what was written in another boot is of no use, and neither is a file that cannot be read: devices are
then taken for healthy until they have a fault again.
"""

from pathlib import Path
from typing import Final

import msgspec

from driver.model.health import DeviceHealth, Healths
from driver.node.files import read_file, replace_file
from kube.logs import get_logger

NAME: Final = "health"
MAX_BYTES: Final = 16 * 2**20

log = get_logger()


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    devices: dict[str, DeviceHealth]


class HealthFile:
    """Reads and writes it. Instances of the driver that run at once see the same faults."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        """Initialize the file.

        Args:
            folder: The folder of the checkpoint.
            boot_id: The ID of the present boot.
        """
        self._path = folder / NAME
        self._boot_id = boot_id

    def load(self) -> Healths:
        """Return the state that was stored in this boot; nothing if that cannot be read."""
        try:
            content = msgspec.json.decode(read_file(self._path, MAX_BYTES), type=_Content)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("health.unreadable", file=str(self._path), error=str(error))
            return {}
        return content.devices if content.boot_id == self._boot_id else {}

    def store(self, healths: Healths) -> None:
        """Write it; a disk that does not take it costs no more than the next restart's memory."""
        content = _Content(boot_id=self._boot_id, devices=dict(healths))
        try:
            replace_file(self._path, msgspec.json.encode(content), before_rename=lambda: None)
        except OSError as error:
            log.warning("health.not_stored", file=str(self._path), error=str(error))
