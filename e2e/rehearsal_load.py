"""The objects of a rehearsal as they are created, and the parts of them that this control plane does not take."""

import http.client
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from e2e.access import Access
from findings.text import count_text
from kube.api.workloads import DAEMON_SET

_OWNERS: Final = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "Job": "jobs"}
_COMBINED: Final = "(combined from similar events): "
"""The beginning of an event's message that client-go writes when there are many of a kind."""
_AMOUNTS: Final = ("replicas", "parallelism")


def create(cluster: Access, objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Create objects, and yield a sentence about each that the API server rejects, as one of another release does."""
    for document in objects:
        _, status, body = cluster.try_apply(document)
        if status in {http.client.OK, http.client.CREATED}:
            continue
        yield f"{_reference(document)}: the API server of the rehearsal rejects it: {_message(body)}"


def missing_pods(cluster: Access) -> Iterator[str]:
    """Yield a sentence about each workload with pods that could not be created, and the reason of the last attempt."""
    reasons = {
        event["involvedObject"].get("uid"): event.get("message", "").removeprefix(_COMBINED)
        for event in cluster.objects("events")
        if event.get("reason") == "FailedCreate"
    }
    owned = Counter(
        reference["uid"]
        for pod in cluster.objects("pods")
        for reference in pod["metadata"].get("ownerReferences") or ()
    )
    for kind, plural in _OWNERS.items() if reasons else ():
        for owner in cluster.objects(plural):
            uid = owner["metadata"]["uid"]
            amounts = (owner["spec"][field] for field in _AMOUNTS if field in owner["spec"])
            missing = next(amounts, 1) - owned[uid]
            if missing > 0 and uid in reasons:
                # Items of a list have no kind.
                name = _reference({**owner, "kind": kind})
                yield f"{count_text(missing, 'pod')} of {name}, not created: {reasons[uid]}"


def without_vendors(
    pods: Iterable[Mapping[str, Any]], objects: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return pods without those of device plugins and DRA drivers: of DaemonSets among the objects of a rehearsal."""
    vendors = {
        (entry["metadata"]["namespace"], entry["metadata"]["name"])
        for entry in objects
        if entry["kind"] == DAEMON_SET
    }
    return [
        pod
        for pod in pods
        if not any(
            reference["kind"] == DAEMON_SET
            and (pod["metadata"]["namespace"], reference["name"]) in vendors
            for reference in pod["metadata"].get("ownerReferences") or ()
        )
    ]


def pod_versions(cluster: Access) -> list[str]:
    """Return a value that changes with every pod of a cluster."""
    return sorted(pod["metadata"]["resourceVersion"] for pod in cluster.objects("pods"))


def _reference(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return "/".join(filter(None, (document["kind"], metadata.get("namespace"), metadata["name"])))


def _message(body: bytes) -> str:
    """Return the words of a Status; the whole body if it is none."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("message"):
        return str(status["message"])
    return body.decode(errors="replace")
