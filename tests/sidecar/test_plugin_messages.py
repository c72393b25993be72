"""The plugin's requests, as the Go package writes them, are read by the sidecar with all of their fields."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kube.api.core import Pod
from kube.api.meta import decode, encode
from sidecar.model.protocol import (
    FilterRequest,
    GroupRequest,
    PostFilterRequest,
    PreBindRequest,
    PreFilterRequest,
    Request,
    UnreserveRequest,
    WakeRequest,
)

FILE: Final = Path(__file__).parents[2] / "bridge" / "sidecar" / "testdata" / "requests.json"
REQUESTS: Final[dict[str, Any]] = json.loads(FILE.read_text())
TYPES: Final[dict[str, type[Request]]] = {
    "filter": FilterRequest,
    "group": GroupRequest,
    "group, in a what-if": GroupRequest,
    "postfilter": PostFilterRequest,
    "postfilter, a group's": PostFilterRequest,
    "prebind": PreBindRequest,
    "prefilter": PreFilterRequest,
    "unreserve": UnreserveRequest,
    "wake": WakeRequest,
}
NOT_READ: Final = frozenset({"pod", "pods"})
"""Objects of Kubernetes, of which the sidecar reads what it needs."""
UNUSED: Final = frozenset({("unreserve", ".podNamespace"), ("unreserve", ".podName")})
"""Fields that the plugin has for several points, and the sidecar does not need at these."""

NOT_SENT: Final = (
    ".metadata.generateName",
    ".metadata.resourceVersion",
    ".metadata.generation",
    ".metadata.labels",
    ".metadata.finalizers",
    ".metadata.annotations.kubectl",
    ".metadata.annotations.drawbridge.internal/signature",
    ".metadata.ownerReferences[1]",
    ".spec.hostNetwork",
    ".spec.runtimeClassName",
    ".spec.terminationGracePeriodSeconds",
    ".spec.activeDeadlineSeconds",
    ".spec.affinity.podAntiAffinity",
    ".spec.containers[0].env",
    ".spec.containers[0].securityContext",
    ".status.conditions",
)
"""Fields of `kube.api.core.Pod` that the plugin leaves out. The second owner is the first that is sent."""


def paths(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return the leaves of a JSON document with their paths."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if name not in NOT_READ:
                yield from paths(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from paths(entry, f"{path}[{index}]")
    else:
        yield path, value


def test_every_point_has_a_request() -> None:
    assert TYPES.keys() == REQUESTS.keys()


@pytest.mark.parametrize("point", sorted(TYPES))
def test_what_the_plugin_writes_is_read(point: str) -> None:
    read = msgspec.convert(REQUESTS[point], TYPES[point])

    leaves = dict(paths(json.loads(msgspec.json.encode(read))))
    assert [] == [
        path
        for path, value in paths(REQUESTS[point])
        if leaves.get(path, "not read") != value and (point, path) not in UNUSED
    ]


def test_of_a_pod_the_plugin_sends_what_is_read() -> None:
    """The webhook and the commands read more; no decision of the sidecar depends on it."""
    whole, sent = (
        json.loads(encode(decode((FILE.parent / f"{name}_pod.json").read_bytes(), Pod)))
        for name in ("whole", "sent")
    )

    left_out = dict(paths(whole)).keys() - dict(paths(sent)).keys()
    assert {path for path in left_out if not path.startswith(NOT_SENT)} == set()
    assert all(any(path.startswith(prefix) for path in left_out) for prefix in NOT_SENT)
