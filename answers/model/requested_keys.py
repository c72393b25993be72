"""The keys that a translated pod was written with, as its annotation records them. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from kube.api.core import Pod
from kube.names import REQUEST_ANNOTATION
from kube.quantity import format_count
from translation.record.record import RecordError, TranslationRecord, decode_record
from translation.vocabularies.multus import ATTACHMENTS, describe_attachments


def describe_keys(
    record: TranslationRecord, original_limits: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[str]:
    """Yield the keys of each container, such as `main: nvidia.com/gpu 1`, then the annotations.

    Args:
        record: The record in the pod's annotation.
        original_limits: Container name to limits as a manifest writes them: 3000, where the record
            has 3k.
    """
    for container in record.containers:
        limits = (original_limits or {}).get(container.name, {})
        if not container.limits:
            continue  # It uses the devices that others request.
        amounts = (
            f"{key} {limits.get(key, format_count(amount))}"
            for key, amount in container.limits.items()
        )
        yield f"{container.name}: {', '.join(amounts)}"
    for key, value in record.annotations.items():
        if key == ATTACHMENTS:
            yield from describe_attachments(value)
        else:
            # JSON may be written over several lines.
            yield f"{key}: {' '.join(value.split())}"


def requested_keys(pod: Pod) -> tuple[str, ...]:
    """Return the keys of a translated pod; empty for others, and for an unreadable annotation."""
    text = pod.annotations.get(REQUEST_ANNOTATION)
    if text is None:
        return ()
    try:
        return tuple(describe_keys(decode_record(text)))
    except RecordError:
        return ()


def keys_of_containers(pod: Pod) -> Mapping[str, Mapping[str, str]]:
    """Return the keys of a translated pod and their amounts by container; empty as in `requested_keys`."""
    text = pod.annotations.get(REQUEST_ANNOTATION)
    try:
        containers = () if text is None else decode_record(text).containers
    except RecordError:
        return {}
    return {
        container.name: {key: format_count(amount) for key, amount in container.limits.items()}
        for container in containers
        if container.limits
    }
