"""Selection of the nodes that a slice or a device is published for.

A slice and a device say so in the same three fields. Besides the decision for one node there is a
shortcut for all: a slice has index keys, and a node without any of them cannot see the slice.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go, NodeMatches and GatherPools.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from allocator.model.outcome import AttemptFailed
from kube.api.core import Node
from kube.api.node_selector import NodeSelector, NodeSelectorTerm, matches, validate
from kube.api.resource import Device, ResourceSlice, ResourceSliceSpec

IndexKey = tuple[str, str]
"""A label and its value; the empty label, which no node has, stands for the node name."""

_NAME: Final = ""


def is_relevant(slice_: ResourceSlice, node: Node) -> bool:
    """Return True if a slice has a device for the node.

    Raises:
        AttemptFailed: A node selector is invalid.
    """
    spec, name, labels = slice_.spec, node.metadata.name, node.labels
    if not (_names_nodes(spec) or spec.per_device_node_selection):
        return False  # Like upstream, ignore a slice that names no nodes.
    places = (spec,) if _names_nodes(spec) else (spec.devices or ())
    try:
        # Like upstream, stop at the first device that matches: a selector after it may be invalid.
        return any(selects_node(place, name, labels) for place in places)
    except AttemptFailed as error:
        raise AttemptFailed(f"ResourceSlice {slice_.metadata.name}: {error}") from error


def selects_node(place: ResourceSliceSpec | Device, node: str, labels: Mapping[str, str]) -> bool:
    """Return True if the node fields of a slice or a device select this node.

    Raises:
        AttemptFailed: The node selector is invalid.
    """
    if place.node_name:
        return place.node_name == node
    if place.all_nodes:
        return True
    selector = place.node_selector
    return selector is not None and matches(_validate(selector), node, labels)


def index_keys(slice_: ResourceSlice) -> frozenset[IndexKey] | None:
    """Return a slice's index keys, at least one per relevant node; None if a node needs none.

    An invalid selector needs none, since it fails the attempt on all nodes.
    """
    if _names_nodes(slice_.spec):
        return _place_keys(slice_.spec)
    if not slice_.spec.per_device_node_selection:
        return frozenset()
    return _union(map(_place_keys, slice_.spec.devices or ()))


def node_index_keys(node: Node) -> Iterator[IndexKey]:
    """Yield the keys of a node: its name, then its labels."""
    yield _NAME, node.metadata.name
    yield from node.labels.items()


def _place_keys(place: ResourceSliceSpec | Device) -> frozenset[IndexKey] | None:
    if place.node_name:
        return frozenset(((_NAME, place.node_name),))
    if place.all_nodes:
        return None
    if place.node_selector is None:
        return frozenset()
    try:
        _validate(place.node_selector)
    except AttemptFailed:
        return None
    return _union(map(_term_keys, place.node_selector.node_selector_terms))


def _term_keys(term: NodeSelectorTerm) -> frozenset[IndexKey] | None:
    if not (term.match_fields or term.match_expressions):
        return frozenset()
    for field in term.match_fields or ():
        if field.key == "metadata.name" and field.operator == "In":
            return frozenset((_NAME, value) for value in field.values or ())
    for label in term.match_expressions or ():
        if label.operator == "In":
            return frozenset((label.key, value) for value in label.values or ())
    return None


def _union(key_sets: Iterable[frozenset[IndexKey] | None]) -> frozenset[IndexKey] | None:
    merged_keys: frozenset[IndexKey] = frozenset()
    for keys in key_sets:
        if keys is None:
            return None
        merged_keys |= keys
    return merged_keys


def _names_nodes(spec: ResourceSliceSpec) -> bool:
    return bool(spec.node_name or spec.all_nodes or spec.node_selector is not None)


@lru_cache(maxsize=4096)
def _validate(selector: NodeSelector) -> NodeSelector:
    try:
        validate(selector)
    except ValueError as error:
        raise AttemptFailed(f"failed to parse node selector: {error}") from error
    return selector
