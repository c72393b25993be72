"""The object that keeps the high-water mark: what it says, and what is written to it.

It is one ConfigMap with two texts. `seen` is the largest inventory ever seen: the controller raises it
and everybody reads it. `declared` is for people: what there could be beside that, as nodes that an
autoscaler keeps at zero or that are on order; nobody writes it but them. While there is less of a class
than both say, a verdict about the inventory is only a warning.

    declared: |
      classes:
        gpu.example.com:            # a DeviceClass
          gpu.example.com:          # a driver
            {nodes: 4, devices: 32, onOneNode: 8, capacity: {memory: 192Gi}}

Whoever takes hardware away for good deletes the object, and it is made anew of what there is.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import msgspec
import yaml

from kube.api.meta import ApiStruct, decode, encode, view
from kube.product import NAME
from webhook.rules.mark import Mark, raised

SEEN: Final = "seen"
DECLARED: Final = "declared"
MAX_CLASSES: Final = 1000
"""That are kept, so that the object stays well below the 1 MiB of a ConfigMap."""
UNREADABLE: Final = "a declaration that cannot be read"
"""What may add nodes, in words, where nobody knows what was declared."""


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """What the object says.

    Attributes:
        seen: What the controller wrote.
        declared: What people wrote.
        problem: Why their text says nothing; empty where it does.
    """

    seen: Mark = Mark()
    declared: Mark = Mark()
    problem: str = ""

    @property
    def mark(self) -> Mark:
        """Both together."""
        return raised(self.seen, self.declared.classes)


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


def marked(raw: bytes) -> Marked:
    """Return what the object says; a text of ours that cannot be read says nothing."""
    data = decode(raw, _ConfigMap).data or {}
    try:
        seen = decode(data.get(SEEN) or "{}", Mark)
    except msgspec.DecodeError:
        seen = Mark()  # It is raised again from what there is.
    try:
        declared = view(yaml.safe_load(data.get(DECLARED, "")) or {}, Mark)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as fault:
        return Marked(seen=seen, problem=str(fault).partition("\n")[0])
    return Marked(seen=seen, declared=declared)


def patch_of(seen: Mark) -> Mapping[str, Any]:
    """Return the merge patch that writes what was seen."""
    kept = Mark(classes=dict(islice(seen.classes.items(), MAX_CLASSES)))
    return {"data": {SEEN: encode(kept).decode()}}


def object_of(seen: Mark, *, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the object as it is made."""
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        **patch_of(seen),
    }
