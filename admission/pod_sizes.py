"""Bounds on the size of a pod that requests devices, so that every review is answered quickly."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from kube.api.core import Container, Pod
from kube.names import REQUEST_ANNOTATION
from translation.model.intents import Vocabulary
from translation.reading.legacy_pod import containers, containers_with_devices
from translation.record.record import MAX_CONTAINERS

MAX_AMOUNTS: Final = 4096
MAX_CLAIMS: Final = 1024
MAX_ALL_CONTAINERS: Final = 1024
"""Per pod, more than any node can run. A larger body would take seconds, not milliseconds."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""The most characters; the API server limits bytes, after mutation: TotalAnnotationSizeLimitB."""


def has_usual_size(pod: Pod) -> bool:
    """Return True if a pod is within all bounds of this file.

    Every review asks, and nearly every pod is.
    """
    number = len(pod.spec.init_containers or ()) + len(pod.spec.containers or ())
    return (
        number <= MAX_CONTAINERS
        and not is_too_large(pod)
        and sum(map(len, pod.annotations.values())) <= MAX_ANNOTATIONS
    )


def is_beyond_nodes(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return True if a pod without record and device keys has more containers than any node can run.

    Annotations may request devices without keys, and to read so many containers takes long.
    """
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    return (
        len(every) > MAX_ALL_CONTAINERS
        and REQUEST_ANNOTATION not in pod.annotations
        and not any(containers_with_devices(every, vocabularies))
    )


def is_too_large(pod: Pod) -> bool:
    """Return True if a pod has more parts than any node can run.

    The API server bounds only the bytes of a pod. What is validated beyond its own checks is advice, or is decided
    again where the pod is placed.
    """
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    if len(every) > MAX_ALL_CONTAINERS:
        return True
    uses = amounts = 0
    for container in every:
        resources = container.resources
        if resources is not None:
            uses += len(resources.claims or ())
            amounts += len(resources.limits or ()) + len(resources.requests or ())
    return max(len(pod.spec.resource_claims or ()), uses) > MAX_CLAIMS or amounts > MAX_AMOUNTS


def check_sizes(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield an error for each part of a pod that is too large to process quickly.

    Nothing is validated yet when a mutating webhook is called: a body of 3 MiB has room for tens of
    thousands of containers.
    """
    if has_usual_size(pod):
        return
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    # Where they are too many, it is enough that one has devices.
    counted = 1 if len(every) > MAX_ALL_CONTAINERS else None
    with_devices = tuple(islice(containers_with_devices(every, vocabularies), counted))
    for path, part, size, maximum in _sizes(pod, with_devices) if with_devices else ():
        if size > maximum:
            yield error(
                Code.TOO_LARGE,
                path,
                f"{size} {part}, but a pod that requests devices may have at most {maximum}",
            )


def _sizes(
    pod: Pod, with_devices: Sequence[Container]
) -> Iterator[tuple[FieldPath, str, int, int]]:
    """Yield the path, name, size and maximum of each part of a pod."""
    spec, annotations = FieldPath.of("spec"), FieldPath.of("metadata", "annotations")
    uses = sum(len(container.claims) for _, container in containers(pod))
    number = len(pod.spec.init_containers or ()) + len(pod.spec.containers or ())
    yield spec, "containers", number, MAX_ALL_CONTAINERS
    yield spec, "containers with devices", len(with_devices), MAX_CONTAINERS
    amounts = sum(_amount_count(container) for _, container in containers(pod))
    yield spec, "amounts of resources", amounts, MAX_AMOUNTS
    yield spec, "claims", len(pod.spec.resource_claims or ()), MAX_CLAIMS
    yield spec, "uses of claims", uses, MAX_CLAIMS
    characters = sum(map(len, pod.annotations.values()))
    yield annotations, "characters in annotations", characters, MAX_ANNOTATIONS


def _amount_count(container: Container) -> int:
    return len(container.limits) + len(container.requests)
