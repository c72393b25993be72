"""For which nodes a slice or a device is published.

Both say so in the same three fields. Besides the judgement for one node there is a shortcut for
all: the anchors of a slice, without which a node need not be asked.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go, NodeMatches and GatherPools.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from allocator.core.outcome import AttemptFailed
from kube.api.core import Node
from kube.api.node_selector import NodeSelector, NodeSelectorTerm, check, matches
from kube.api.resource import Device, ResourceSlice, ResourceSliceSpec

Anchor = tuple[str, str]
"""A label and its value; the empty label, which no node has, stands for the name."""

_NAME: Final = ""


def is_relevant(listed: ResourceSlice, node: Node) -> bool:
    """Return whether a slice has a device for the node.

    Raises:
        AttemptFailed: A node selector cannot be judged.
    """
    spec, name, labels = listed.spec, node.metadata.name, node.labels
    if not (_says_where(spec) or spec.per_device_node_selection):
        return False  # Upstream ignores what says nothing of its nodes.
    places = (spec,) if _says_where(spec) else (spec.devices or ())
    try:
        # Upstream looks no further than the first device that matches, so neither do we: a
        # selector behind it may be broken.
        return any(is_for(one, name, labels) for one in places)
    except AttemptFailed as fault:
        raise AttemptFailed(f"ResourceSlice {listed.metadata.name}: {fault}") from fault


def is_for(place: ResourceSliceSpec | Device, node: str, labels: Mapping[str, str]) -> bool:
    """Return whether what a slice or a device says of its nodes is true of this one.

    Raises:
        AttemptFailed: The node selector cannot be judged.
    """
    if place.node_name:
        return place.node_name == node
    if place.all_nodes:
        return True
    selector = place.node_selector
    return selector is not None and matches(_checked(selector), node, labels)


def anchors(listed: ResourceSlice) -> frozenset[Anchor] | None:
    """Return of what a node must have one, for the slice to be relevant; None if it may lack all.

    A selector that cannot be judged is for all nodes, since it fails the attempt on all.
    """
    if _says_where(listed.spec):
        return _of_place(listed.spec)
    if not listed.spec.per_device_node_selection:
        return frozenset()
    return _union(map(_of_place, listed.spec.devices or ()))


def anchors_of_node(node: Node) -> Iterator[Anchor]:
    """Yield what a node has: its name, then its labels."""
    yield _NAME, node.metadata.name
    yield from node.labels.items()


def _of_place(place: ResourceSliceSpec | Device) -> frozenset[Anchor] | None:
    if place.node_name:
        return frozenset(((_NAME, place.node_name),))
    if place.all_nodes:
        return None
    if place.node_selector is None:
        return frozenset()
    try:
        _checked(place.node_selector)
    except AttemptFailed:
        return None
    return _union(map(_of_term, place.node_selector.node_selector_terms))


def _of_term(term: NodeSelectorTerm) -> frozenset[Anchor] | None:
    if not (term.match_fields or term.match_expressions):
        return frozenset()
    for field in term.match_fields or ():
        if field.key == "metadata.name" and field.operator == "In":
            return frozenset((_NAME, value) for value in field.values or ())
    for label in term.match_expressions or ():
        if label.operator == "In":
            return frozenset((label.key, value) for value in label.values or ())
    return None


def _union(parts: Iterable[frozenset[Anchor] | None]) -> frozenset[Anchor] | None:
    merged: frozenset[Anchor] = frozenset()
    for part in parts:
        if part is None:
            return None
        merged |= part
    return merged


def _says_where(spec: ResourceSliceSpec) -> bool:
    return bool(spec.node_name or spec.all_nodes or spec.node_selector is not None)


@lru_cache(maxsize=4096)
def _checked(selector: NodeSelector) -> NodeSelector:
    try:
        check(selector)
    except ValueError as fault:
        raise AttemptFailed(f"failed to parse node selector: {fault}") from fault
    return selector
