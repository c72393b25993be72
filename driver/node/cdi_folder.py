"""CDI specs of claims, where the container runtime reads them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from driver.node.files import make_folder, sync_folder, write_file
from driver.plan.cdi import BOOT_ANNOTATION, Document, spec_file_name, uid_of_spec
from driver.steps import Step, StepHook


class CdiFolder:
    """The specs of one driver in a folder that others use, too.

    Changes outlast a loss of power once `sync` has returned, so that many of them need it once.
    """

    def __init__(self, folder: Path, driver: str, at_step: StepHook) -> None:
        self._folder = folder
        self._driver = driver
        self._at_step = at_step

    def write(self, uid: str, spec: Document) -> bool:
        """Write the spec of a claim and return whether it was another one.

        Raises:
            OSError: It could not be written.
        """
        content = msgspec.json.encode(spec)
        path = self._path(uid)
        if _content(path) == content:
            return False
        if not self._folder.is_dir():
            make_folder(self._folder)
        write_file(path, content, before_rename=lambda: self._at_step(Step.TEMPORARY_WRITTEN))
        return True

    def remove(self, uid: str) -> bool:
        """Remove the spec of a claim and return whether there was one.

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
        """Return the uids of claims with a spec to the boot in which it was written."""
        if not self._folder.is_dir():
            return {}
        specs = ((uid_of_spec(self._driver, path.name), path) for path in self._folder.iterdir())
        return {uid: _boot(_content(path)) for uid, path in specs if uid is not None}

    def _path(self, uid: str) -> Path:
        return self._folder / spec_file_name(self._driver, uid)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _boot(content: bytes) -> str:
    try:
        spec = msgspec.json.decode(content, type=dict[str, object])
    except msgspec.DecodeError:
        return ""
    annotations = spec.get("annotations")
    return str(annotations.get(BOOT_ANNOTATION, "")) if isinstance(annotations, dict) else ""
