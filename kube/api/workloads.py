"""The path of the pod template in each built-in kind of workload.

Custom workloads (a Volcano Job, a JobSet) are not listed: their controllers decide what becomes of
their templates, and their pods are translated on creation.
"""

from collections.abc import Mapping
from typing import Any, Final

Path = tuple[str, ...]

DAEMON_SET: Final = "DaemonSet"
"""The kind whose pods belong to their node: none can go to another one."""

_POD_PATHS: Final[Mapping[tuple[str, str], Path]] = {
    ("v1", "Pod"): (),
    ("v1", "PodTemplate"): ("template",),
    ("v1", "ReplicationController"): ("spec", "template"),
    ("apps/v1", DAEMON_SET): ("spec", "template"),
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "ReplicaSet"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch/v1", "Job"): ("spec", "template"),
}

VALIDATED_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("apps/v1", DAEMON_SET): "daemonsets",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "CronJob"): "cronjobs",
    ("batch/v1", "Job"): "jobs",
}
"""The workload kinds that are validated on apply, and their names in URLs."""

VALIDATED_POD_PATHS: Final[tuple[Path, ...]] = tuple(
    dict.fromkeys(_POD_PATHS[kind] for kind in VALIDATED_KINDS)
)
"""The distinct paths of their pod templates."""

_REPLICAS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kind of a workload to the field of its spec with the number of pods at a time."""


def pod_path(api_version: str, kind: str) -> Path | None:
    """Return the path of the pod or pod template in a kind; None for other kinds.

    >>> pod_path("apps/v1", "Deployment"), pod_path("v1", "Pod"), pod_path("v1", "Service")
    (('spec', 'template'), (), None)
    """
    return _POD_PATHS.get((api_version, kind))


def resolve_path(document: object, path: Path) -> tuple[Path, Any]:
    """Follow a path; return the part that could be followed and the value at its end.

    That is the whole path and its value, unless a value on the way is absent (None) or no object.

    >>> resolve_path({"spec": {"template": {}}}, ("spec", "template"))
    (('spec', 'template'), {})
    >>> resolve_path({"spec": 1}, ("spec", "template"))
    (('spec',), 1)
    """
    for depth, field in enumerate(path):
        if not isinstance(document, Mapping):
            return path[:depth], document
        document = document.get(field)
    return path, document


def replace_at(document: Mapping[str, Any], path: Path, value: Any) -> Any:
    """Return a copy of the document with another value at the path."""
    if not path:
        return value
    field, *rest = path
    return {**document, field: replace_at(document[field], tuple(rest), value)}


def number_path(kind: str) -> Path | None:
    """Return the path of the number of pods at a time in a kind; None for other kinds."""
    return ("spec", _REPLICAS[kind]) if kind in _REPLICAS else None


def pods_at_a_time(kind: str, document: Mapping[str, Any]) -> int:
    """Return the number of pods that an object has at a time; 1 if that is unknown."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return 1
    return pods_of_job(spec) if kind == "Job" else _number(spec.get(_REPLICAS.get(kind, "")), 1)


def pods_of_job(spec: Mapping[str, Any]) -> int:
    """Return the number of pods that a Job has at a time, from its spec.

    Source: k8s.io/kubernetes v1.37.1, pkg/controller/job/job_controller.go, manageJob.

    >>> pods_of_job({"parallelism": 4, "completions": 1}), pods_of_job({"parallelism": 4})
    (1, 4)
    """
    parallelism = _number(spec.get("parallelism"), 1)
    return min(parallelism, _number(spec.get("completions"), parallelism))


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default
