"""The pods that the observer follows, and their conditions as the scheduler reports them."""

from collections.abc import Iterator
from typing import Final

import msgspec

from kube.api.core import Container, Pod
from kube.api.meta import ObjectMeta, decode
from kube.names import REQUEST_ANNOTATION
from translation.record.record import MAX_BYTES

WAITING_FIELDS: Final = "spec.nodeName=,status.phase=Pending"
"""Selects the pods that have no node; the API server sends no others."""


def project_pod(raw: bytes) -> Pod | None:
    """Project a pod that may wait for devices; None for all others."""
    pod = decode(raw, Pod)
    metadata = pod.metadata
    if pod.spec.node_name or metadata.deletion_timestamp is not None:
        return None
    if not pod.spec.resource_claims and not any(map(_requests_extended_resource, _containers(pod))):
        return None
    record = pod.annotations.get(REQUEST_ANNOTATION)
    if record is not None and len(record) > MAX_BYTES:
        record = None  # The webhook has not written it.
    head = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        annotations=None if record is None else {REQUEST_ANNOTATION: record},
    )
    return msgspec.structs.replace(pod, metadata=head)


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers or ()
    yield from pod.spec.containers or ()


def _requests_extended_resource(container: Container) -> bool:
    """Return True if a container requests a resource of a class or a device plugin."""
    return any("/" in name for name in (*container.requests, *container.limits))
