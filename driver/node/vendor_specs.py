"""Names of the devices in the CDI specs of others, such as those that a vendor's toolkit writes.

Source: tags.cncf.io/container-device-interface v1.1.1, SPEC.md.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from driver.model.names import is_cdi_device
from kube.logs import get_logger
from kube.manifests.plain_yaml import PlainYamlError, load_yaml

MAX_BYTES: Final = 4 * 2**20

log = get_logger()


def vendor_devices(folders: Iterable[Path], kind: str) -> frozenset[str]:
    """Return the full names of devices of one kind, `vendor/class=name`.

    A spec that cannot be read has none: the container runtime will not find them either.
    """
    return frozenset(
        name
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.suffix in {".json", ".yaml"}
        for name in _names(path, kind)
    )


def _names(path: Path, kind: str) -> Iterator[str]:
    document = _document(path)
    devices = document.get("devices")
    if document.get("kind") != kind or not isinstance(devices, list):
        return
    for device in devices:
        name = f"{kind}={device.get('name')}" if isinstance(device, dict) else ""
        if is_cdi_device(name):
            yield name


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = _parse(file.read(MAX_BYTES + 1))
    except (OSError, PlainYamlError) as error:
        log.debug("spec.not_read", file=str(path), error=str(error))
        return {}
    return document if isinstance(document, dict) else {}


def _parse(text: bytes) -> Any:
    """Return the document of a text: JSON, as claims' own specs are, or YAML, slower to read.

    Raises:
        PlainYamlError: It is neither.
    """
    try:
        return msgspec.json.decode(text) if len(text) <= MAX_BYTES else load_yaml(text, MAX_BYTES)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return load_yaml(text, MAX_BYTES)
