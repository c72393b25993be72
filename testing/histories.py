"""Histories of made-up clusters, as watches of an API server would tell them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.checker.history import Event

Object = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
GPU_DRIVER: Final = "gpu.nvidia.com"


class History:
    """Events as they are added, each with the next resourceVersion.

    Attributes:
        at: The second of the next event.
        events: So far.
    """

    def __init__(self) -> None:
        self.at = 0.0
        self.events: list[Event] = []
        self._versions = itertools.count(1)
        self._known: set[tuple[str, str]] = set()

    def put(self, kind: str, entry: Object) -> Object:
        """Add an object, or its next version; return it with its uid and version."""
        name = f"{entry['metadata'].get('namespace', '')}/{entry['metadata']['name']}"
        is_known = (kind, name) in self._known
        self._known.add((kind, name))
        version = {"uid": f"{kind}/{name}", "resourceVersion": str(next(self._versions))}
        versioned = {**entry, "metadata": {**entry["metadata"], **version}}
        self.events.append(Event(self.at, kind, "MODIFIED" if is_known else "ADDED", versioned))
        return versioned

    def delete(self, kind: str, entry: Object) -> None:
        """Add the end of an object."""
        version = {"resourceVersion": str(next(self._versions))}
        gone = {**entry, "metadata": {**entry["metadata"], **version}}
        self._known.discard(
            (kind, f"{gone['metadata'].get('namespace', '')}/{gone['metadata']['name']}")
        )
        self.events.append(Event(self.at, kind, "DELETED", gone))

    def workload(self, kind: str, name: str, limits: Mapping[str, object], **spec: Any) -> Object:
        """Add a workload of team `a` with pods that ask for these amounts."""
        template = {"spec": {"containers": [container(limits)]}}
        entry = {
            "metadata": {"name": name, "namespace": "a"},
            "spec": {"template": template, **spec},
        }
        return self.put(f"{kind.lower()}s", {**entry, "kind": kind})

    def pod(
        self, name: str, owner: Object, node: str = "", phase: str = "Running", **more: Any
    ) -> Object:
        """Add a pod of a workload, or its next version.

        Args:
            more: `claims` names its ResourceClaims, `limits` are its own, `metadata` and others are
                fields of its metadata and of its spec.
        """
        claims: Sequence[str] = more.pop("claims", ())
        limits: Mapping[str, object] = more.pop("limits", {})
        metadata: Object = more.pop("metadata", {})
        reference = {"kind": owner["kind"], "uid": owner["metadata"]["uid"], "controller": True}
        entry = {
            "metadata": {
                "name": name,
                "namespace": "a",
                "ownerReferences": [{**reference, "name": owner["metadata"]["name"]}],
                **metadata,
            },
            "spec": {
                "containers": [container(limits)],
                **({"nodeName": node} if node else {}),
                **(
                    {"resourceClaims": [{"resourceClaimName": claim} for claim in claims]}
                    if claims
                    else {}
                ),
                **more,
            },
            "status": {"phase": phase},
        }
        return self.put("pods", entry)

    def node(self, name: str, offers: Mapping[str, str] | None = None, **spec: Any) -> Object:
        """Add a node that is ready, or its next version."""
        status = {
            "allocatable": dict(offers or {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return self.put("nodes", {"metadata": {"name": name}, "spec": spec, "status": status})

    def slice(self, node: str, devices: Sequence[Object]) -> Object:
        """Add the slice that NVIDIA's driver publishes for a node."""
        spec = {"driver": GPU_DRIVER, "nodeName": node, "pool": {"name": node}, "devices": devices}
        return self.put("resourceslices", {"metadata": {"name": node}, "spec": spec})

    def claim(self, name: str, node: str, *devices: str, pod: str = "") -> Object:
        """Add a claim that has devices of a node."""
        results = [
            {"request": "gpu", "driver": GPU_DRIVER, "pool": node, "device": device}
            for device in devices
        ]
        owner = {"kind": "Pod", "name": pod, "uid": f"pods/a/{pod}", "controller": True}
        entry = {
            "metadata": {
                "name": name,
                "namespace": "a",
                **({"ownerReferences": [owner]} if pod else {}),
            },
            "status": {"allocation": {"devices": {"results": results}}},
        }
        return self.put("resourceclaims", entry)

    def quota(self, name: str, hard: Mapping[str, str]) -> Object:
        """Add a quota of team `a`, or its next version."""
        return self.put(
            "resourcequotas",
            {"metadata": {"name": name, "namespace": "a"}, "spec": {"hard": dict(hard)}},
        )

    def device_quota(self, most: str, *keys: str, **limit: Any) -> Object:
        """Add a DeviceQuota of team `a` that counts keys and claims together, or its next version."""
        self.put("namespaces", {"metadata": {"name": "a", "labels": {"team": "a"}}})
        of_limit = {
            "name": "limit",
            "driver": GPU_DRIVER,
            "max": most,
            "legacyKeys": [{"name": key} for key in keys],
            **(limit or {"devices": {}}),
        }
        spec = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "limits": [of_limit]}
        return self.put("devicequotas", {"metadata": {"name": "budget"}, "spec": spec})


def container(limits: Mapping[str, object]) -> Object:
    """A container with limits."""
    return {"name": "main", "resources": {"limits": dict(limits)}}


def gpu(name: str) -> Object:
    """A whole GPU as NVIDIA's driver publishes it."""
    return {
        "name": name,
        "attributes": {"type": {"string": "gpu"}},
        "capacity": {"memory": {"value": "80Gi"}},
    }


def mig(name: str, profile: str, memory: str) -> Object:
    """A MIG device as NVIDIA's driver publishes it."""
    return {
        "name": name,
        "attributes": {"type": {"string": "mig"}, "profile": {"string": profile}},
        "capacity": {"memory": {"value": memory}},
    }
