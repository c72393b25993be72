"""Contexts of rules for the fuzzer: clusters with an inventory.

They are told to the very code that serves, so that the rules about an inventory run with their
searches and their nearest miss.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from allocator.model.feature_gates import Features
from clusterstate.kinds import Kind
from clusterstate.rule_cache import ClusterFacts, RuleCache
from kube.api.core import Node
from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from rules.context.context import Context
from testing.documents import Document, claim, device_quota, limit, template
from testing.feasibility_cases import NODE_A, NODE_B, allocated_claim, example_request
from testing.rule_cases import NAMESPACE
from testing.rule_contexts import CLASSES

_KINDS: Final[Mapping[str, tuple[Kind, type[Any]]]] = {
    "Node": (Kind.NODE, Node),
    "ResourceClaim": (Kind.CLAIM, ResourceClaim),
    "ResourceClaimTemplate": (Kind.TEMPLATE, ResourceClaimTemplate),
    "ResourceSlice": (Kind.SLICE, ResourceSlice),
    "DeviceClass": (Kind.CLASS, DeviceClass),
    "DeviceCompatibilityPolicy": (Kind.POLICY, DeviceCompatibilityPolicy),
    "DeviceQuota": (Kind.QUOTA, DeviceQuota),
}


def knowing(documents: Iterable[Document], classes: Iterable[DeviceClass] = ()) -> Context:
    """Return the rules' cache of a cluster that has these objects."""
    changes: dict[Kind, dict[tuple[str, str], Any]] = {}
    for document in documents:
        if document["kind"] in _KINDS:
            kind, struct = _KINDS[document["kind"]]
            view = convert(document, struct)
            key = view.metadata.namespace, view.metadata.name
            changes.setdefault(kind, {})[key] = view
    changes.setdefault(Kind.CLASS, {}).update(
        {("", class_.metadata.name): class_ for class_ in classes}
    )
    rule_cache = RuleCache(Features())
    rule_cache.apply(changes)
    return rule_cache.context(ClusterFacts(namespaces={NAMESPACE: {}}))


def _with_name(name: str, document: Document) -> Document:
    return {**document, "metadata": {"name": name, "namespace": NAMESPACE}}


def small() -> Context:
    """Return two nodes, one nearly taken, claims that pods may name, and a quota that is nearly full."""
    return knowing(
        (
            *({"kind": "Node", "metadata": {"name": name}} for name in ("node-a", "node-b")),
            *(NODE_A, NODE_B),
            _with_name("held", allocated_claim("gpu-0", "gpu-1", "gpu-2")),
            _with_name("three", claim(example_request(count=3))),
            _with_name("five", claim(example_request(count=5))),
            _with_name("two", template(example_request(count=2))),
            _with_name("five", template(example_request(count=5))),
            device_quota(
                limit("2", name="devices", devices={}, perRequest="2"),
                limit("60Gi", perRequest="40Gi", perDevice="40Gi"),
                limit("2", name="claims", claims={}),
            ),
        ),
        CLASSES,
    )
