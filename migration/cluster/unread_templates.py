"""The workloads of other projects that nothing here restarts, and the ways on for them. Pure."""

from collections.abc import Collection
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info
from findings.text import join_names
from kube.names import TRANSLATE_LABEL
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.workloads import Workload, request_shape
from translation.reading.workload_kinds import CUSTOM_RESOURCES
from translation.vocabularies.nvidia import mig_profile

CREATED_AGAIN: Final = frozenset(kind for _, kind in CUSTOM_RESOURCES) - {"Job"}
"""Kinds of other projects whose controllers create their pods again; Volcano's Job has the name of Kubernetes'."""
_STOP: Final = (
    "stop it (scale it to nothing, or suspend it) or wait for its end, and plan again from a new snapshot; start it again "
    "after the last wave"
)
_STOP_VOLCANO_JOB: Final = (
    "stop it (vcctl job suspend --name JOB --namespace NAMESPACE; kubectl calls it vcjob) or wait for its end, and plan again "
    "from a new snapshot; start it again after the last wave (vcctl job resume)"
)
_STAY_UP: Final = (
    "where it has to stay up, and a change of its pod template replaces its pods one after another, set the label "
    f'{TRANSLATE_LABEL}: "false" there, and plan again: its nodes stay as they are, with those that its pods may need, and '
    "others move; once switched nodes have devices for it, take the label off, so that its next pods get claims; or "
)
_OF_VOLCANO: Final = (
    "its pods belong to a Job of Volcano, whose pod template is read only while it has no pods"
)
_VOLCANO: Final = "batch.volcano.sh/"
_IN_NAMESPACE: Final = ", and label its namespace first if no wave opts it in"


def unread_template(
    workload: Workload, keys: Collection[str], *, is_native: bool
) -> Finding | None:
    """Explain that a workload's next pods are unknown, since its template is not read; None if they are known.

    The controllers of the kinds that `translate` knows create an evicted pod again from the same template. One of
    whole devices stays as it is then, and nobody has to restart it. One that runs to its end, such as a CI runner, is
    waited for, so nobody has to know its template.

    Args:
        workload: Live pods without their template.
        keys: The device keys of its pods.
        is_native: Kubernetes serves its pods once a class maps their resource names.
    """
    kind = workload.key.kind
    stop = _STOP_VOLCANO_JOB if is_of_volcano(workload) else _STOP
    stop = stop if is_native else f"{stop}{_IN_NAMESPACE}"
    is_waited_for = is_native and workload.runs_to_completion
    if kind not in CREATED_AGAIN and not is_waited_for:
        text = (
            _OF_VOLCANO
            if is_of_volcano(workload)
            else f"its pods belong to a {kind}, whose pod template is not read here"
        )
    elif len({request_shape(source) for source in workload.pods}) > 1:
        text = f"the pods of this {kind} request different devices, CPU, memory or nodes"
    elif not is_native:
        text = f"nothing here restarts a {kind}, so its pods would keep their device keys"
        stop = f"{_classes_first(keys) or _STAY_UP}{stop}"
    else:
        return None
    return info(Code.POD_TEMPLATE_NOT_READ, FieldPath.of(), text, fix=stop)


def is_of_volcano(workload: Workload) -> bool:
    """Return True for a Job of Volcano: it has no replicas and no field `suspend`, and a command of Volcano stops it."""
    owners = (
        owner
        for pod in workload.pods
        for owner in list_at(pod.document, "metadata", "ownerReferences")
    )
    documents = (*owners, workload.custom.document if workload.custom is not None else {})
    return any(
        str(mapping_at(document).get("apiVersion", "")).startswith(_VOLCANO)
        for document in documents
    )


def _classes_first(keys: Collection[str]) -> str:
    """Return the way on without a stop, for pods that request MIG devices alone; empty for others."""
    if not keys or not all(mig_profile(key) for key in keys):
        return ""
    verb = "has" if len(keys) == 1 else "have"
    return (
        f"create a DeviceClass for each size of MIG devices, so that {join_names(sorted(keys))} {verb} one "
        "(docs/assess.md), and plan again: its pods are native then, and their controller starts them again; or without such a class "
    )
