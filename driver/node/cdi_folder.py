"""CDI specs of claims, in the folder that the container runtime reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from driver.model.steps import Step, StepHook
from driver.node.files import make_folder, read_file, sync_folder, write_file
from driver.plan.cdi import BOOT_ANNOTATION, Document, spec_file_name, uid_of_spec

MAX_BYTES: Final = 16 * 2**20
"""Specs of claims have a fraction of it."""


class CdiFolder:
    """The specs of one driver in a folder that others use, too.

    Changes outlast a loss of power once `sync` has returned, so that many of them need it once.
    """

    def __init__(self, folder: Path, driver: str, at_step: StepHook) -> None:
        self._folder = folder
        self._driver = driver
        self._at_step = at_step

    def write(self, uid: str, spec: Document) -> None:
        """Write the spec of a claim.

        Raises:
            OSError: It could not be written.
        """
        self._write(uid, msgspec.json.encode(spec))

    def restore(self, uid: str, spec: Document) -> bool:
        """Write the spec of a claim unless it is there, and return True if it was written.

        Raises:
            OSError: It could not be written.
        """
        content = msgspec.json.encode(spec)
        if _content(self._path(uid)) == content:
            return False
        self._write(uid, content)
        return True

    def remove(self, uid: str) -> bool:
        """Remove the spec of a claim and return True if there was one.

        Raises:
            OSError: It could not be removed.
        """
        try:
            self._path(uid).unlink()
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Return once the disk has the specs that were written, and no others.

        Raises:
            OSError: The disk is broken.
        """
        sync_folder(self._folder)

    def boots(self) -> Mapping[str, str]:
        """Return claim UID to the boot of its spec, for all claims with a spec."""
        if not self._folder.is_dir():
            return {}
        specs = ((uid_of_spec(self._driver, path.name), path) for path in self._folder.iterdir())
        return {uid: _boot(_content(path)) for uid, path in specs if uid is not None}

    def _write(self, uid: str, content: bytes) -> None:
        path = self._path(uid)
        try:
            write_file(path, content, before_rename=self._before_rename)
        except FileNotFoundError:
            make_folder(self._folder)
            write_file(path, content, before_rename=self._before_rename)

    def _before_rename(self) -> None:
        self._at_step(Step.TEMPORARY_WRITTEN)

    def _path(self, uid: str) -> Path:
        return self._folder / spec_file_name(self._driver, uid)


def _content(path: Path) -> bytes:
    """Return the content of a spec; nothing if there is none, or something else has its name."""
    try:
        return read_file(path, MAX_BYTES)
    except OSError:
        return b""


def _boot(content: bytes) -> str:
    try:
        spec = msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    annotations = spec.get("annotations")
    return str(annotations.get(BOOT_ANNOTATION, "")) if isinstance(annotations, dict) else ""
