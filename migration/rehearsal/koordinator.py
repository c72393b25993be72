"""Koordinator's Device objects, and the definition of their kind. Pure.

`switch.sh` deletes the Device of a node, and kubectl fails where the API server does not serve its kind.

Source: koordinator-sh/koordinator v1.6 config/crd/bases/scheduling.koordinator.sh_devices.yaml.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kube.manifests.source import SourceObject
from migration.cluster.node_devices import koordinator_devices
from migration.rehearsal.documents import plain

_GROUP: Final = "scheduling.koordinator.sh"
_DEFINITION: Final[Mapping[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"devices.{_GROUP}"},
    "spec": {
        "group": _GROUP,
        "scope": "Cluster",
        "names": {"kind": "Device", "plural": "devices", "singular": "device"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""The definition; its objects may have any field, since no controller reads them here."""


def device_objects(
    objects: Iterable[SourceObject], nodes: Collection[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the definition and the Devices of some nodes; nothing for a cluster without Koordinator.

    Args:
        objects: The cluster.
        nodes: The names of the nodes that are rehearsed.
    """
    devices = koordinator_devices(objects)
    if devices:
        yield _DEFINITION
    for name, document in sorted(devices.items()):
        if name in nodes:
            yield plain(document)
