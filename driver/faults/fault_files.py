"""Faults that other programs on the node report: a file per device, in a folder that only root can enter.

The file is called as the device. Its first line is the kind of the fault, the rest is for people. To
report that the device is healthy again, remove it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from driver.model.health import Fault
from driver.model.names import is_dns_label, is_label_value
from driver.node.files import read_file
from kube.logs import get_logger

MAX_BYTES: Final = 4096
MAX_FILES: Final = 16384
OTHER: Final = "other"
"""The kind for a file whose first line is not a label value."""

log = get_logger()


class FaultFiles:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._problem = ""

    def read(self) -> Mapping[str, Fault]:
        """Return the faults that are reported now."""
        try:
            files = sorted(path for path in self._folder.iterdir() if is_dns_label(path.name))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._report(f"{self._folder}: {error.strerror}")
            return {}
        faults = {path.name: _fault(path) for path in files[:MAX_FILES]}
        return {name: fault for name, fault in faults.items() if fault is not None}

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.error("faults.unreadable", error=problem)
        self._problem = problem


def _fault(path: Path) -> Fault | None:
    """Return the fault that a file reports; None if it has gone meanwhile."""
    try:
        text = read_file(path, MAX_BYTES)[:MAX_BYTES].decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return Fault(kind=OTHER, message=f"the report cannot be read: {error.strerror}")
    kind, _, message = text.partition("\n")
    kind = kind.strip()
    if not kind or not is_label_value(kind):
        return Fault(kind=OTHER, message=text.strip())
    return Fault(kind=kind, message=message.strip())
