"""The part of an object that a snapshot of a cluster keeps. Pure.

Commands read devices, not applications: command lines, environment variables, probes and the history
of `kubectl apply`, in all of which people keep passwords, are left out. Of annotations, in which tools keep whole
manifests, only those stay that something reads. Of an object of another project only those fields of its spec and
status stay that its next pods, their number and its end are read from.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, cast

import msgspec

from answers.model.views import decode_view
from kube.api.core import NodeAffinity, PodSpec
from kube.api.meta import ApiStruct, LabelSelector, decode, encode
from kube.api.network_attachments import RESOURCE_NAME
from kube.api.workloads import pod_path, replace_at, resolve_path
from kube.names import EXPORTER_CLAIMS, FIELD_MANAGERS, GROUP
from quotas.gates.groups import ANNOTATIONS as GROUP_ANNOTATIONS
from translation.model.device_families import FAMILIES
from translation.model.keys import ANY, Place, names
from translation.reading.arbiter import VOCABULARIES
from translation.reading.custom_workloads import embedded_pods, value_at, workload_kind
from translation.reading.legacy_pod import READ_ANNOTATIONS, READ_VARIABLES
from translation.reading.workload_kinds import Shape, WorkloadKind

_FAMILY_ANNOTATIONS: Final = tuple(name for family in FAMILIES for name in family.annotations)
_ANNOTATIONS: Final = frozenset(
    {
        *READ_ANNOTATIONS,
        *(
            name
            for vocabulary in VOCABULARIES.values()
            for name in names(vocabulary.table, Place.ANNOTATION)
        ),
        *GROUP_ANNOTATIONS,
        RESOURCE_NAME,
        # By these a plan knows what takes a change back, what may not be evicted, and the newest revision.
        "argocd.argoproj.io/tracking-id",
        "meta.helm.sh/release-name",
        "meta.helm.sh/release-namespace",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "karpenter.sh/do-not-disrupt",
        "rollout.argoproj.io/revision",
        *(name for name in _FAMILY_ANNOTATIONS if not name.endswith(ANY)),
    }
)
"""The annotations that are read."""
_ANNOTATION_PREFIXES: Final = (
    *(f"{GROUP}/", "resource.kubernetes.io/", "quota.scheduling.koordinator.sh/"),
    *(name.removesuffix(ANY) for name in _FAMILY_ANNOTATIONS if name.endswith(ANY)),
)
"""The beginnings of others: any name of a device system may request devices."""
_VARIABLES: Final = READ_VARIABLES | {EXPORTER_CLAIMS}
_CONTAINERS: Final = ("initContainers", "containers")
_LEFT_OUT_OF_PODS: Final = frozenset({"ephemeralContainers", "imagePullSecrets"})
_STORAGE: Final = ("name", "emptyDir", "persistentVolumeClaim")
"""The fields of a volume that tell what a pod leaves on its node."""
KUBELET_DIRECTORIES: Final = ("/plugins_registry", "/kubelet")
"""Ends of the directories of the kubelet that DRA drivers mount to register, wherever a distribution has them."""
PLUGIN_DIRECTORIES: Final = ("/device-plugins", "/kubelet")
"""Ends of the directories of the kubelet that device plugins mount to register."""
_PERSISTENT: Final = frozenset(
    {"claimRef", "local", "hostPath", "nodeAffinity", "volumeName", "storageClassName"}
)
_STATUS: Final = frozenset({"status"})
_SCALING: Final = frozenset({"metrics", "behavior"})
"""The fields of an autoscaler that tell when it scales, in which people name parts of an application."""
_INNER_METADATA: Final = {
    "CronJob": ("spec", "jobTemplate", "metadata"),
    "ResourceClaimTemplate": ("spec", "metadata"),
}
"""Kind to the metadata of what its controller makes, beside that of pods."""
_TEXTS: Final = ("name", "image", "restartPolicy")
_STEP_FIELDS: Final = ("nodeSelector", "schedulerName")
_SWITCHES: Final = (
    ("spec", "suspend"),
    ("spec", "runPolicy", "suspend"),
    ("spec", "shutdownAfterJobFinishes"),
)
"""The fields that tell whether there are pods, and of a RayJob whether they end with it."""
_SCHEDULED: Final = "CronWorkflow"
_SCHEDULE_TEXTS: Final = ("schedule", "timezone", "concurrencyPolicy")
"""The fields of Argo's CronWorkflow that tell when its runs begin, beside `schedules`."""
_DEADLINE: Final = ("spec", "workflowSpec", "activeDeadlineSeconds")
_STATUS_FIELDS: Final = ("phase", "state", "jobDeploymentStatus")
_CONDITION_FIELDS: Final = ("type", "status")
_EMPTY_DIR: Final = ("medium", "sizeLimit")


class _PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PodAffinityTerm."""

    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class _WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 WeightedPodAffinityTerm."""

    weight: int = 0
    pod_affinity_term: _PodAffinityTerm | None = None


class _PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PodAffinity, and PodAntiAffinity."""

    required: tuple[_PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[_WeightedPodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 TopologySpreadConstraint."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class _SchedulingGroup(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 PodSchedulingGroup."""

    pod_group_name: str = ""


class _OtherFields(ApiStruct, frozen=True, kw_only=True):
    """The fields of a pod that `PodSpec` lacks, or has with any content."""

    affinity: _Affinity | None = None
    scheduling_group: _SchedulingGroup | None = None
    topology_spread_constraints: tuple[_TopologySpreadConstraint, ...] | None = None
    restart_policy: str = ""


_FIELD_VIEWS: Final[Mapping[str, type[PodSpec | _OtherFields]]] = {
    field.encode_name: view
    for view in (PodSpec, _OtherFields)
    for field in msgspec.structs.fields(view)
    if field.encode_name not in {*_CONTAINERS, "resources"}
}
"""Field of a pod to the view with its type; the definitions of other projects may let anything else pass."""


def redact(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object without the fields that a snapshot leaves out.

    Args:
        document: The document as an API server returned it, with apiVersion and kind.
    """
    kept_fields = _with_inner_metadata(
        {**document, "metadata": _metadata(document.get("metadata") or {})}
    )
    if document["kind"] in {"PersistentVolume", "PersistentVolumeClaim"}:
        spec = document.get("spec") or {}
        return {**kept_fields, "spec": {key: spec[key] for key in sorted(_PERSISTENT & set(spec))}}
    if document["kind"] == "HorizontalPodAutoscaler":
        return {
            **_without(kept_fields, _STATUS),
            "spec": _without(document.get("spec") or {}, _SCALING),
        }
    if document["kind"] == "PriorityClass":
        return _without(kept_fields, frozenset({"description"}))
    row = workload_kind(document["apiVersion"], document["kind"])
    if row is not None:
        return _custom_workload(row, kept_fields)
    path = pod_path(document["apiVersion"], document["kind"])
    if path is None:
        return kept_fields
    _, pod = resolve_path(kept_fields, path)
    return replace_at(kept_fields, path, _pod(pod)) if isinstance(pod, Mapping) else kept_fields


def _with_inner_metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object with the metadata of the Jobs or claims that are made of it as metadata are kept."""
    spec = document.get("spec")
    if document["kind"] == "StatefulSet" and isinstance(spec, Mapping):
        claims = [
            {**claim, "metadata": _metadata(claim.get("metadata") or {})}
            for claim in _mappings(spec.get("volumeClaimTemplates"))
        ]
        return (
            {**document, "spec": {**spec, "volumeClaimTemplates": claims}} if claims else document
        )
    path = _INNER_METADATA.get(document["kind"], ())
    _, metadata = resolve_path(document, path)
    if path and isinstance(metadata, Mapping):
        return cast(Mapping[str, Any], replace_at(document, path, _metadata(metadata)))
    return document


def _metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    kept_fields = {field: value for field, value in metadata.items() if field != "managedFields"}
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    if names := sorted(managers & FIELD_MANAGERS.keys()):
        kept_fields["managedFields"] = [{"manager": name} for name in names]
    if isinstance(annotations := metadata.get("annotations"), Mapping):
        kept_fields["annotations"] = _read_annotations(annotations)
    return kept_fields


def _read_annotations(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations that something reads."""
    return {
        name: text
        for name, text in annotations.items()
        if isinstance(text, str) and (name in _ANNOTATIONS or name.startswith(_ANNOTATION_PREFIXES))
    }


def _pod(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = _without(pod.get("spec") or {}, _LEFT_OUT_OF_PODS)
    if spec.get("volumes"):
        spec["volumes"] = [*map(_volume, spec["volumes"])]
    for field in _CONTAINERS:
        if spec.get(field):
            spec[field] = _containers(spec[field])
    metadata = {"metadata": _metadata(pod["metadata"])} if pod.get("metadata") else {}
    status = {"status": _status(pod["status"])} if pod.get("status") else {}
    return {**pod, **metadata, "spec": spec, **status}


def _status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status without those of containers, since their messages are the application's."""
    return {field: value for field, value in status.items() if not field.endswith("Statuses")} | {
        field: status[field] for field in ("resourceClaimStatuses",) if field in status
    }


def _without(mapping: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}


# --- workloads of other projects ------------------------------------------------------------------


def _custom_workload(row: WorkloadKind, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object of another project with the fields of its next pods, their number and its end at their places."""
    kept_fields: dict[str, Any] = {
        field: document[field] for field in ("apiVersion", "kind", "metadata")
    }
    kept_fields["spec"] = {}
    for embedded in embedded_pods(row, document):
        is_container = embedded.path[:-1] in row.container_paths
        shape = Shape.RESOURCES if is_container else row.shape
        _put(kept_fields, embedded.path, _embedded(shape, value_at(document, embedded.path)))
        for path in embedded.number_paths:
            more = [(*path[:-1], "completions")] if path[-1] == "parallelism" else []
            for number_path in (path, *more):
                number = value_at(document, number_path)
                if isinstance(number, int):
                    _put(kept_fields, number_path, number)
    for path in _SWITCHES:
        if isinstance(switch := value_at(document, path), bool):
            _put(kept_fields, path, switch)
    if row.kind == _SCHEDULED:
        kept_fields["spec"].update(_schedule(document))
        if isinstance(seconds := value_at(document, _DEADLINE), int):
            _put(kept_fields, _DEADLINE, seconds)
    name = value_at(document, row.scheduler_path)
    if row.scheduler_path and isinstance(name, str):
        _put(kept_fields, row.scheduler_path, name)
    status = document.get("status")
    return {**kept_fields, **({"status": _ended(status)} if isinstance(status, Mapping) else {})}


def _schedule(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a CronWorkflow that tell when its runs begin."""
    for field in _SCHEDULE_TEXTS:
        if isinstance(text := value_at(document, ("spec", field)), str):
            yield field, text
    schedules = value_at(document, ("spec", "schedules"))
    if isinstance(schedules, list):
        yield "schedules", [entry for entry in schedules if isinstance(entry, str)]


def _put(document: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    """Put a value at a path; of an object, its fields beside those that are there. Elements before it may be empty."""
    place: Any = document
    for step, following in pairwise(path):
        place = _child(place, step, [] if isinstance(following, int) else {})
    *_, last = path
    if isinstance(value, dict):
        _child(place, last, {}).update(value)
    else:
        place[last] = value


def _child(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(place, dict):
        return place.setdefault(step, empty)
    place.extend({} for _ in range(len(place), int(step) + 1))
    return place[step]


def _embedded(shape: Shape, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod, or the part of one, that an object of another project has."""
    match shape:
        case Shape.TEMPLATE:
            return {
                "metadata": _names(value.get("metadata")),
                "spec": _custom_pod(value["spec"]),
            }
        case Shape.POD_SPEC:
            return {**_names(value), **_custom_pod(value)}
        case Shape.STEP:
            return _step(value)
        case Shape.RESOURCES:
            return _resources(value)


def _names(metadata: Any) -> dict[str, Any]:
    """Return the labels and annotations of a template."""
    fields = metadata if isinstance(metadata, Mapping) else {}
    kept_fields: dict[str, Any] = {}
    if isinstance(labels := fields.get("labels"), Mapping):
        kept_fields["labels"] = _texts(labels, (*labels,))
    if isinstance(annotations := fields.get("annotations"), Mapping):
        kept_fields["annotations"] = _read_annotations(annotations)
    return kept_fields


def _custom_pod(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept_fields = _typed(spec, _FIELD_VIEWS)
    if "resources" in spec:
        kept_fields["resources"] = _resources(spec["resources"])
    if "volumes" in spec:
        kept_fields["volumes"] = [*map(_volume, _mappings(spec["volumes"]))]
    for field in _CONTAINERS:
        if field in spec:
            kept_fields[field] = _containers(spec[field])
    return kept_fields


def _typed(spec: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a pod, each with the content that its type has; without those of other types."""
    kept_fields: dict[str, Any] = {}
    for field in fields:
        if field in spec:
            view = decode_view({field: spec[field]}, _FIELD_VIEWS[field])
            if not isinstance(view, list):
                kept_fields |= decode(encode(view), dict[str, Any])
    return kept_fields


def _volume(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    own = {field: part for field, part in volume.items() if _is_volume(field, part)}
    kept_fields: dict[str, Any] = {field: own[field] for field in _STORAGE if field in own}
    for field, texts in (("emptyDir", _EMPTY_DIR), ("persistentVolumeClaim", ("claimName",))):
        if field in own:
            kept_fields[field] = _texts(own[field], texts)
    path = str(own.get("hostPath", {}).get("path", ""))
    if path.rstrip("/").endswith((*KUBELET_DIRECTORIES, *PLUGIN_DIRECTORIES)):
        # By it a plan knows a DRA driver, and a device plugin.
        kept_fields["hostPath"] = {"path": path}
    return kept_fields


def _is_volume(field: str, part: Any) -> bool:
    return isinstance(part, str if field == "name" else Mapping)


def _step(value: Mapping[str, Any]) -> dict[str, Any]:
    kept_fields = _typed(value, _STEP_FIELDS)
    for field in ("container", "script"):
        if isinstance(value.get(field), Mapping):
            kept_fields[field] = _container(value[field])
    for field in ("initContainers", "sidecars"):
        if field in value:
            kept_fields[field] = _containers(value[field])
    names = _names(value.get("metadata"))
    return {**kept_fields, **({"metadata": names} if names else {})}


def _containers(containers: Any) -> list[dict[str, Any]]:
    return [_container(container) for container in _mappings(containers)]


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    kept_fields = _texts(container, _TEXTS)
    if "resources" in container:
        kept_fields["resources"] = _resources(container["resources"])
    context = container.get("securityContext")
    if isinstance(context, Mapping) and isinstance(context.get("privileged"), bool):
        kept_fields["securityContext"] = {"privileged": context["privileged"]}
    variables = [
        {"name": variable["name"], "value": value}
        for variable in _mappings(container.get("env"))
        for value in [variable.get("value", "")]
        if isinstance(variable.get("name"), str) and isinstance(value, str)
        if variable["name"] in _VARIABLES
    ]
    return {**kept_fields, **({"env": variables} if variables else {})}


def _resources(resources: Any) -> dict[str, Any]:
    """Return the requests and limits of a container, and the names of its claims."""
    fields = resources if isinstance(resources, Mapping) else {}
    kept_fields: dict[str, Any] = {
        field: {
            key: amount
            for key, amount in fields[field].items()
            if isinstance(amount, str | int | float)
        }
        for field in ("limits", "requests")
        if isinstance(fields.get(field), Mapping)
    }
    claims = [_texts(claim, ("name", "request")) for claim in _mappings(fields.get("claims"))]
    return {**kept_fields, **({"claims": claims} if claims else {})}


def _ended(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the phase and the conditions of a status; Volcano's phase is in its state."""
    kept_fields: dict[str, Any] = _texts(status, _STATUS_FIELDS)
    if isinstance(state := status.get("state"), Mapping):
        kept_fields["state"] = _texts(state, ("phase",))
    conditions = [
        _texts(condition, _CONDITION_FIELDS) for condition in _mappings(status.get("conditions"))
    ]
    return {**kept_fields, **({"conditions": conditions} if conditions else {})}


def _texts(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if isinstance(fields.get(name), str)}


def _mappings(elements: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none of a value of another type."""
    return [
        element
        for element in (elements if isinstance(elements, list) else ())
        if isinstance(element, Mapping)
    ]
