"""The ConfigMap of the high-water mark: its format, and the writes to it.

It holds two texts. `seen` is the largest inventory ever seen: the controller raises it. `declared` is
for administrators: what there could be beside that, such as nodes that an autoscaler keeps at zero or
that are on order. While a class has fewer devices than both say, a verdict about the inventory is only
a warning.

    declared: |
      classes:
        gpu.example.com:            # a DeviceClass
          gpu.example.com:          # a driver
            {nodes: 4, devices: 32, onOneNode: 8, capacity: {memory: 192Gi}}

After hardware is removed for good, delete the ConfigMap: it is created again from the present
inventory.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from kube.api.meta import ApiStruct, convert, decode, encode
from kube.manifests.plain_yaml import PlainYamlError, load_yaml
from kube.names import NAME
from rules.feasibility.high_water_mark import HighWaterMark, raise_mark

SEEN: Final = "seen"
DECLARED: Final = "declared"
MAX_CLASSES: Final = 1000
"""The classes that are written, so that the object stays well below the 1 MiB of a ConfigMap."""
MAX_DECLARED_BYTES: Final = 64 * 1024
"""The largest size of the declaration, enough for hundreds of classes; the YAML of a whole
ConfigMap would take half a minute."""
UNREADABLE: Final = "a declaration that cannot be read"
"""The cause for additional nodes that messages name if the declaration cannot be read."""


class HighWaterMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the ConfigMap.

    Attributes:
        seen: The largest inventory ever seen, which the controller writes.
        declared: The inventory that administrators declare.
        problem: The reason their text cannot be read; empty if it can.
    """

    seen: HighWaterMark = HighWaterMark()
    declared: HighWaterMark = HighWaterMark()
    problem: str = ""

    @property
    def combined_mark(self) -> HighWaterMark:
        """The larger of both, class by class."""
        return raise_mark(self.seen, self.declared.classes)


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


def project_high_water_marks(raw: bytes) -> HighWaterMarks:
    """Project the ConfigMap to its marks; a `seen` that cannot be read is raised again from zero."""
    data = decode(raw, _ConfigMap).data or {}
    try:
        seen_marks = decode(data.get(SEEN) or "{}", HighWaterMark)
    except msgspec.DecodeError:
        seen_marks = HighWaterMark()
    try:
        declared_marks = convert(
            load_yaml(data.get(DECLARED, ""), MAX_DECLARED_BYTES) or {}, HighWaterMark
        )
    except (PlainYamlError, msgspec.ValidationError, RecursionError) as fault:
        return HighWaterMarks(seen=seen_marks, problem=str(fault).partition("\n")[0])
    return HighWaterMarks(seen=seen_marks, declared=declared_marks)


def once_published(mark: HighWaterMark) -> Mapping[str, frozenset[str]]:
    """Return DeviceClass to the drivers that ever published devices of it."""
    return {
        name: frozenset(driver for driver, most in stock.items() if most.devices)
        for name, stock in mark.classes.items()
    }


def seen_patch(seen_marks: HighWaterMark) -> Mapping[str, Any]:
    """Return the merge patch that writes `seen_marks`."""
    written_marks = HighWaterMark(classes=dict(islice(seen_marks.classes.items(), MAX_CLASSES)))
    return {"data": {SEEN: encode(written_marks).decode()}}


def config_map_document(
    seen_marks: HighWaterMark, *, namespace: str, name: str
) -> Mapping[str, Any]:
    """Return the ConfigMap to create."""
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        **seen_patch(seen_marks),
    }
