"""The workloads of other projects without pods, each by the object with the template of its next pods.

That is an object of a kind whose templates are read, or else a Deployment, StatefulSet, ReplicaSet or Job that a controller
of another project has scaled to nothing, or suspended. Of revisions it is the newest one; an owner with a live one has none.

Sources: knative/serving, pkg/apis/serving/register.go (labels that a Deployment and its pods have from their Revision);
kserve/kserve, pkg/constants (its label); argoproj/argo-rollouts, utils/annotations (the revision of a ReplicaSet).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kube.api.workloads import pods_at_a_time, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.cluster.owners import (
    OwnerKey,
    chain_of_owners,
    controller,
    has_custom_template,
    has_template,
)
from translation.reading.custom_workloads import embedded_pods, workload_kind
from translation.reading.workload_kinds import BLUEPRINTS, Shape

_CONFIGURATION: Final = "serving.knative.dev/configuration"
_OWNER_LABELS: Final = {
    _CONFIGURATION: "Configuration",
    "serving.knative.dev/service": "Service",
    "serving.kserve.io/inferenceservice": "InferenceService",
}
"""Labels with the name of an owner of this kind, whose Revision a snapshot may lack."""
_REVISION: Final = "rollout.argoproj.io/revision"
_REVISION_DIGITS: Final = 10
"""The longest number of a revision; a longer text is none."""
_REPLICATED: Final = frozenset({"ReplicaSet", "ReplicationController"})
_SCALED: Final = _REPLICATED | {"Deployment", "StatefulSet"}
_BUILT_IN: Final = _SCALED | {"CronJob", "DaemonSet", "Job"}
_OWN_TEMPLATES: Final = frozenset({Shape.TEMPLATE, Shape.STEP})
"""Forms that have all that the nodes of a pod depend on."""
_WITH_END: Final = frozenset(
    {
        *("PyTorchJob", "TFJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob", "TrainJob"),
        *("RayJob", "JobSet", "Job", "Workflow"),
    }
)
"""Kinds of other projects, and of Kubernetes, whose objects say in their status that they have ended."""
_ENDED_CONDITIONS: Final = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
_PHASES: Final = (("phase",), ("state", "phase"), ("jobDeploymentStatus",))
"""The paths below `status` of the phase of such an object: Argo's, Volcano's and KubeRay's."""
_ENDED_PHASES: Final = frozenset(
    {"Succeeded", "Failed", "Error", "Complete", "Completed", "Terminated"}
)
_WITH_PARTS: Final = frozenset({"InferenceService", "LLMInferenceService"})
"""Kinds with a workload for each of their parts, such as predictor and transformer."""


def find_stopped(
    by_key: Mapping[OwnerKey, SourceObject], pods: Iterable[OwnerKey]
) -> frozenset[OwnerKey]:
    """Return the objects of the workloads of other projects that have no pods.

    Args:
        by_key: The objects with a template or a controller.
        pods: The live pods.
    """
    candidates = [key for key, source in by_key.items() if _may_start(source)]
    if not candidates:
        return frozenset()
    live = frozenset(owner for pod in pods for owner in _owners(pod, by_key))
    idle = {
        key: owners - {key}
        for key in candidates
        for owners in [_owners(key, by_key)]
        if live.isdisjoint(_revised(owners, by_key[key]))
        and not any(has_ended(by_key.get(owner)) for owner in owners)
    }
    whole = {key for key in idle if _has_own_templates(by_key[key])}
    rest = {key: owners for key, owners in idle.items() if whole.isdisjoint({key, *owners})}
    newest: dict[tuple[object, ...], OwnerKey] = {}
    for key in rest:
        if has_template(by_key[key]):
            family = _family(key, by_key)
            newest[family] = max(
                newest.get(family, key), key, key=lambda entry: _age(by_key[entry])
            )
    chosen = {key for key in whole if whole.isdisjoint(idle[key])} | {*newest.values()}
    with_parts = frozenset(owner for key in chosen for owner in idle[key])
    return frozenset(
        chosen
        | {
            key
            for key in rest.keys() - with_parts
            if has_custom_template(by_key[key]) and any(next_pods(by_key[key], key.namespace))
        }
    )


class NextPods(NamedTuple):
    """The next pods of one template.

    Attributes:
        number: The number of such pods at a time.
    """

    pod: SourceObject
    number: int


def next_pods(owner: SourceObject, namespace: str) -> Iterator[NextPods]:
    """Yield the next pods of each template of a workload of another project.

    Args:
        owner: The object.
        namespace: Its namespace.
    """
    row = workload_kind(owner.api_version, owner.kind)
    for embedded in embedded_pods(row, owner.document) if row is not None else ():
        metadata = mapping_at(embedded.template, "metadata")
        own = {field: metadata[field] for field in ("labels", "annotations") if field in metadata}
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**own, "name": owner.name, "namespace": namespace},
            "spec": embedded.template.get("spec") or {},
        }
        pod = SourceObject(document=document, source=owner.source, line=owner.line)
        yield NextPods(pod, embedded.number)


def _owners(key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> frozenset[OwnerKey]:
    """Return an object and its owners: those of its chain, and those that labels name."""
    chain = chain_of_owners(key, by_key)
    return frozenset(
        {
            *chain,
            *(
                OwnerKey(kind=kind, namespace=entry.namespace, name=labels[label])
                for entry in chain
                if (source := by_key.get(entry)) is not None
                for labels in [text_map(source.document, "metadata", "labels")]
                for label, kind in _OWNER_LABELS.items()
                if label in labels
            ),
        }
    )


def _revised(owners: Iterable[OwnerKey], source: SourceObject) -> Iterator[OwnerKey]:
    """Yield the owners of an object with live pods of its other revisions, and not of other parts alone."""
    for owner in owners:
        if owner.kind not in _WITH_PARTS or has_custom_template(source):
            yield owner


def _may_start(source: SourceObject) -> bool:
    """Return True if a controller of another project may make pods of the template of an object.

    Those of Kubernetes make none for it, as it has no replicas, or is suspended.
    """
    if has_custom_template(source):
        return source.kind not in BLUEPRINTS
    owner = controller(source)
    if not has_template(source) or owner is None or owner[0] in _BUILT_IN:
        return False
    if source.kind == "Job":
        return mapping_at(source.document, "spec").get("suspend") is True
    return source.kind in _SCALED and not pods_at_a_time(source.kind, source.document)


def _has_own_templates(source: SourceObject) -> bool:
    """Return True if an object of another project has whole templates, and not parts that its controller completes."""
    row = workload_kind(source.api_version, source.kind)
    return (
        row is not None and row.shape in _OWN_TEMPLATES and any(embedded_pods(row, source.document))
    )


def has_ended(source: SourceObject | None) -> bool:
    """Return True if an object of another project, or a Job, makes no more pods."""
    if source is None or source.kind not in _WITH_END:
        return False
    status = mapping_at(source.document, "status")
    return any(
        text_map(entry).get("type") in _ENDED_CONDITIONS and text_map(entry).get("status") == "True"
        for entry in list_at(status, "conditions")
    ) or any(text_map(status, *parents).get(last) in _ENDED_PHASES for *parents, last in _PHASES)


def _family(key: OwnerKey, by_key: Mapping[OwnerKey, SourceObject]) -> tuple[object, ...]:
    """Return a value in common for the revisions of a workload, and for equal Jobs of one owner."""
    source = by_key[key]
    labels = text_map(source.document, "metadata", "labels")
    if _CONFIGURATION in labels:
        return key.namespace, labels[_CONFIGURATION]
    _, *owners = chain_of_owners(key, by_key)
    # A pod is left out of the chain, so that the only owner of an object may be missing.
    if not owners:
        return (key,)
    owner = owners[0]
    if key.kind in _REPLICATED:
        return (owner,)
    if key.kind == "Job":
        _, template = resolve_path(source.document, ("spec", "template"))
        return owner, msgspec.json.encode(mapping_at(template, "spec"), order="sorted")
    return (key,)


def _age(source: SourceObject) -> tuple[int, str, str]:
    """Return a value that is the greater the newer an object is among revisions."""
    revision = text_map(source.document, "metadata", "annotations").get(_REVISION, "")
    created = mapping_at(source.document, "metadata").get("creationTimestamp")
    is_number = revision.isdecimal() and len(revision) <= _REVISION_DIGITS
    return int(revision) if is_number else 0, str(created or ""), source.name
