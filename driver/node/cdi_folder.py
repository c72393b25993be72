"""CDI specs of claims, where the container runtime reads them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from driver.node.files import make_folder, remove_file, replace_file
from driver.plan.cdi import BOOT_ANNOTATION, Document, spec_file_name, uid_of_spec
from driver.steps import Step, StepHook


class CdiFolder:
    """The specs of one driver in a folder that others use, too."""

    def __init__(self, folder: Path, driver: str, at_step: StepHook) -> None:
        self._folder = folder
        self._driver = driver
        self._at_step = at_step

    def write(self, uid: str, spec: Document) -> None:
        """Write the spec of a claim, unless the same is there.

        Raises:
            OSError: It could not be written.
        """
        content = msgspec.json.encode(spec)
        path = self._path(uid)
        if _content(path) != content:
            make_folder(self._folder)
            replace_file(path, content, before_rename=lambda: self._at_step(Step.TEMPORARY_WRITTEN))

    def remove(self, uid: str) -> None:
        """Remove the spec of a claim; fine where there is none.

        Raises:
            OSError: It could not be removed.
        """
        remove_file(self._path(uid))

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
