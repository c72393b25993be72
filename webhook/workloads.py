"""Where the pod, or the template of pods, stands in each kind of workload.

Only the kinds that Kubernetes itself serves. What a custom workload (a Volcano Job, a JobSet) makes
of its templates is its controller's business; its pods are translated when they are made.
"""

from collections.abc import Mapping
from typing import Any, Final

Path = tuple[str, ...]

_POD_PATHS: Final[Mapping[tuple[str, str], Path]] = {
    ("v1", "Pod"): (),
    ("v1", "PodTemplate"): ("template",),
    ("v1", "ReplicationController"): ("spec", "template"),
    ("apps/v1", "DaemonSet"): ("spec", "template"),
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "ReplicaSet"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch/v1", "Job"): ("spec", "template"),
}

JUDGED: Final[Mapping[tuple[str, str], str]] = {
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("batch/v1", "CronJob"): "cronjobs",
    ("batch/v1", "Job"): "jobs",
}
"""The kinds that are judged when somebody applies them, to what URLs call them."""

JUDGED_PATHS: Final[tuple[Path, ...]] = tuple(dict.fromkeys(_POD_PATHS[kind] for kind in JUDGED))
"""Where their pod templates are."""


def pod_path(api_version: str, kind: str) -> Path | None:
    """Return the fields that lead to the pod; None for kinds without one that we know.

    >>> pod_path("apps/v1", "Deployment"), pod_path("v1", "Pod"), pod_path("v1", "Service")
    (('spec', 'template'), (), None)
    """
    return _POD_PATHS.get((api_version, kind))


def reached(document: object, path: Path) -> tuple[Path, Any]:
    """Return how far the path leads, and what stands there.

    That is all of the path and the pod, unless something on the way is absent (None) or no object.

    >>> reached({"spec": {"template": {}}}, ("spec", "template"))
    (('spec', 'template'), {})
    >>> reached({"spec": 1}, ("spec", "template"))
    (('spec',), 1)
    """
    for depth, field in enumerate(path):
        if not isinstance(document, Mapping):
            return path[:depth], document
        document = document.get(field)
    return path, document


def replaced(document: Mapping[str, Any], path: Path, value: Any) -> Any:
    """Return the document with another value at the path; the argument stays as it is."""
    if not path:
        return value
    field, *rest = path
    return {**document, field: replaced(document[field], tuple(rest), value)}
