"""Pods that hold a GPU of a device plugin for the pods that share it, as KAI's binder creates them. Pure.

KAI's binder creates one for each shared GPU, with the label of its group, and deletes it once no pod of the group runs. Where
one is missing it deletes the running pods of its group at once, whatever their budgets allow. So they are no workloads:
the pods of their group have their devices.

Source: kai-scheduler/KAI-Scheduler v0.6.0, v0.14.0 and v0.17.0,
pkg/binder/binding/resourcereservation/resource_reservation.go, pkg/common/constants/constants.go.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.manifests.source import SourceObject
from migration.cluster.evidence import controller_kind, list_at, mapping_at, text_map

_GROUP: Final = "runai-gpu-group"
_GROUPS: Final = f"{_GROUP}/"
"""The prefix of the labels of a pod with shares of several GPUs, one for each group."""
_CONTAINER: Final = "resource-reservation"
_APP: Final = "app"
RESERVATIONS: Final = "kai-resource-reservation"
"""The namespace of these pods, where their binder alone writes, and their label `app`."""


def gpu_groups(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups of the GPUs of KAI that a pod shares, or holds for others; none for other pods."""
    labels = text_map(pod, "metadata", "labels")
    groups = {value for key, value in labels.items() if key == _GROUP or key.startswith(_GROUPS)}
    return tuple(sorted(groups))


def held_gpus(pods: Iterable[SourceObject]) -> dict[int, int]:
    """Return the number of each pod of a workload that shares GPUs of KAI to the GPUs that it alone holds, or the first of it.

    The others of its groups share these. Pods of other workloads may, too, and may stay when these leave.

    Args:
        pods: The pods of a workload, in the order of their numbers.
    """
    counted: set[str] = set()
    numbers: dict[int, int] = {}
    for number, source in enumerate(pods):
        if groups := set(gpu_groups(source.document)):
            numbers[number] = len(groups - counted)
            counted |= groups
    return numbers


def is_reservation(source: SourceObject) -> bool:
    """Return True if KAI's binder has created a pod to hold a GPU for the pods of its group.

    Its namespace tells: labels and names of containers are anybody's.
    """
    return (
        source.namespace == RESERVATIONS
        and _has_their_label(source)
        and bool(gpu_groups(source.document))
        and not controller_kind(source.document)
        and any(
            mapping_at(container).get("name") == _CONTAINER
            for container in list_at(source.document, "spec", "containers")
        )
    )


def without_reservations(objects: Iterable[SourceObject]) -> tuple[SourceObject, ...]:
    """Return objects without the pods that hold a GPU for others."""
    return tuple(source for source in objects if not is_reservation(source))


def drain_selector(objects: Iterable[SourceObject]) -> str:
    """Return the label selector of the pods that drains evict, as kubectl takes it; empty for all pods.

    It leaves out reservations, also those that KAI creates later.
    """
    return f"{_APP}!={RESERVATIONS}" if any(map(is_reservation, objects)) else ""


def is_left_in_drains(source: SourceObject) -> bool:
    """Return True if drains with `drain_selector` would leave a pod that holds no GPU for others."""
    return _has_their_label(source) and not is_reservation(source)


def _has_their_label(source: SourceObject) -> bool:
    is_pod = (source.api_version, source.kind) == ("v1", "Pod")
    return is_pod and text_map(source.document, "metadata", "labels").get(_APP) == RESERVATIONS
