"""Devices from a declared inventory, a YAML or JSON file, that is read again when it changes.

The setting names a file, or a folder with one file per node and perhaps one for all others, as a mounted
ConfigMap has them: `<node>.yaml`, else `default.yaml`.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from driver.model.inventory import Inventory
from driver.plan.declared import read_inventory
from kube.errors import ConfigError, FieldError, ObjectFileError
from kube.logs import get_logger
from kube.manifests.reader import read_objects

MAX_BYTES: Final = 4 * 2**20
DEFAULT: Final = "default.yaml"
_SHOWN: Final = 20
"""Faults in one message."""

log = get_logger()


class DeclaredFile:
    """The declared inventory of one node."""

    def __init__(self, path: Path, node: str, *, period_s: float) -> None:
        """Initialize the source.

        Args:
            path: The declared inventory's file or folder.
            node: The node's name.
            period_s: Seconds between reads of the file.
        """
        self._path = path
        self._node = node
        self._period_s = period_s
        self._text = b""
        self._problem = ""

    def discover(self) -> Inventory:
        """Return the devices that the file declares.

        Raises:
            ConfigError: The file cannot be read, or something in it is wrong; all of it is told.
        """
        file = self._file()
        self._text = _text(file)
        return parse_inventory(self._text, str(file))

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Read the file again when it changes. A broken file changes nothing, but is logged."""
        while True:
            await asyncio.sleep(self._period_s)
            # Thousands of devices take seconds, and the kubelet may call meanwhile.
            inventory = await asyncio.to_thread(self._read_again)
            if inventory is not None:
                on_change(inventory)

    def problem(self) -> str:
        """Return the problem of the file as it is now."""
        return self._problem

    def _read_again(self) -> Inventory | None:
        """Return the devices if they may be others than before."""
        try:
            file = self._file()
            text = _text(file)
            if text == self._text:
                return None
            self._text = text
            inventory = parse_inventory(text, str(file))
        except ConfigError as error:
            self._report(str(error))
            return None
        self._problem = ""
        log.info("inventory.read", file=str(file), devices=sum(1 for _ in inventory.devices()))
        return inventory

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.error("inventory.broken", error=problem, used="the last good one")
        self._problem = problem

    def _file(self) -> Path:
        if not self._path.is_dir():
            return self._path
        own = self._path / f"{self._node}.yaml"
        return own if own.exists() else self._path / DEFAULT


def read_file(file: Path) -> Inventory:
    """Return the inventory that a file holds.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    return parse_inventory(_text(file), str(file))


def parse_inventory(text: bytes, source: str) -> Inventory:
    """Return the inventory that a text holds.

    Args:
        source: The file's name in error messages.

    Raises:
        ConfigError: Something in it is wrong.
    """
    try:
        objects = read_objects(text, source)
    except ObjectFileError as error:
        raise ConfigError(str(error)) from error
    if len(objects) != 1:
        raise ConfigError(f"{source}: holds {len(objects)} documents; one inventory is needed")
    inventory = read_inventory(objects[0].document)
    if not isinstance(inventory, Inventory):
        raise ConfigError("\n".join(_describe_faults(inventory, source)))
    return inventory


def _describe_faults(faults: Sequence[FieldError], source: str) -> list[str]:
    lines = [
        ": ".join(part for part in (source, fault.path, fault.message) if part)
        + (f"; {fault.fix}" if fault.fix else "")
        for fault in faults[:_SHOWN]
    ]
    more = len(faults) - len(lines)
    return [*lines, *([f"{source}: and {more} more"] if more else [])]


def _text(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES >> 20} MiB")
    return text
