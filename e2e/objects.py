"""Objects that stories apply, as plain dicts with the important parts on one line."""

from collections.abc import Mapping
from typing import Any, Final

from testing import documents
from testing.documents import api_object

Object = dict[str, Any]

IMAGE: Final = "registry.internal/app:1"
"""Nobody pulls it: kwok plays the containers."""


def pod(
    name: str,
    *,
    claims: Mapping[str, str] | None = None,
    limits: Mapping[str, str | int] | None = None,
    requests: Mapping[str, str | int] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container.

    Args:
        name: The pod's name.
        claims: Name in the pod to name of the ResourceClaimTemplate; the container uses all.
        limits: The limits of the container; requests follow by themselves.
        requests: The requests of the container, if they do not follow.
        annotations: The annotations of the pod.
        labels: The labels of the pod.
        spec: More fields of the pod's spec; `containers` replaces the one container.
    """
    resources = {
        "limits": dict(limits or {}),
        "requests": dict(requests or {}),
        "claims": [{"name": claim} for claim in claims or ()],
    }
    sources = [
        {"name": entry_name, "resourceClaimTemplateName": template}
        for entry_name, template in (claims or {}).items()
    ]
    metadata = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
    return api_object(
        "Pod",
        name,
        **_present(metadata),
        spec={
            "containers": [container("main", **_present(resources))],
            **_present({"resourceClaims": sources}),
            **spec,
        },
    )


def container(name: str, **resources: Any) -> Object:
    """A container; `resources` are the fields of its resources, such as limits."""
    return {"name": name, "image": IMAGE, **_present({"resources": resources})}


def deployment(name: str, template: Object, *, replicas: int = 1) -> Object:
    """A Deployment of pods like `template`, without its name."""
    return _selecting("Deployment", name, template, replicas=replicas)


def stateful_set(name: str, template: Object, *, replicas: int = 1) -> Object:
    """A StatefulSet of pods like `template`, without its name."""
    return _selecting("StatefulSet", name, template, replicas=replicas, serviceName=name)


def job(name: str, template: Object, *, completions: int = 1) -> Object:
    """A Job of pods like `template`, all at once; their name is forgotten."""
    inside = _nameless(template)
    inside["spec"] = {**inside["spec"], "restartPolicy": "Never"}
    return api_object(
        "Job",
        name,
        spec={"completions": completions, "parallelism": completions, "template": inside},
    )


def daemon_set(name: str, template: Object) -> Object:
    """A DaemonSet of pods like `template`, without its name."""
    return _selecting("DaemonSet", name, template)


def replica_set(name: str, template: Object, *, replicas: int = 1) -> Object:
    """A ReplicaSet of pods like `template`, without its name."""
    return _selecting("ReplicaSet", name, template, replicas=replicas)


def cron_job(name: str, template: Object) -> Object:
    """A CronJob that starts no Job, of pods like `template`, without its name."""
    inside = job(name, template)["spec"]
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": inside}}
    return api_object("CronJob", name, spec=spec)


def _selecting(kind: str, name: str, template: Object, **spec: Any) -> Object:
    labels = {"app": name}
    inside = _nameless(template)
    inside["metadata"]["labels"] = labels
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": inside, **spec},
    }


def _nameless(template: Object) -> Object:
    metadata = {key: value for key, value in template["metadata"].items() if key != "name"}
    return {"metadata": metadata, "spec": template["spec"]}


def named_claim(name: str, device_class: str, *, count: int = 1, namespace: str = "") -> Object:
    """A ResourceClaim that asks for whole devices of a class."""
    request = documents.exactly(deviceClassName=device_class, count=count)
    return documents.claim(request, name=name, namespace=namespace)


def claim_template(name: str, device_class: str, *, count: int = 1) -> Object:
    """A ResourceClaimTemplate that asks for whole devices of a class."""
    request = documents.exactly(deviceClassName=device_class, count=count)
    return documents.template(request, name=name)


def _present(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value}


def priority_class(name: str, value: int = 1000) -> Object:
    """A PriorityClass, above that of pods without one."""
    return api_object("PriorityClass", name, value=value)


def disruption_budget(name: str, labels: Mapping[str, str], most: int) -> Object:
    """A PodDisruptionBudget that lets none of so many pods be evicted."""
    return api_object(
        "PodDisruptionBudget",
        name,
        spec={"minAvailable": most, "selector": {"matchLabels": dict(labels)}},
    )


def has_healthy_pods(budget: Object) -> bool:
    """Return True if as many pods of a PodDisruptionBudget are healthy as it needs."""
    return bool(budget["spec"]["minAvailable"] == budget.get("status", {}).get("currentHealthy"))
