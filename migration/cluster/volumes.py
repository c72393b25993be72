"""PersistentVolumes that not every node reaches, and the nodes that the pods with them may use. Pure.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/volumebinding: a pod runs on a node only if that
matches `spec.nodeAffinity.required` of all its PersistentVolumes, whatever their driver calls its topology.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, Final

import msgspec

from answers.model.views import decode_view
from kube.api.core import Affinity, NodeAffinity, Pod
from kube.api.meta import encode
from kube.api.node_selector import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    matches,
    validate,
)
from kube.manifests.source import SourceObject
from migration.cluster.evidence import (
    RUN_TO_COMPLETION,
    Evidence,
    list_at,
    mapping_at,
    read_evidence,
    text_map,
)

HOSTNAME: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME_FIELD: Final = "metadata.name"
_MAX_TERMS: Final = 64
"""Terms of a pod's node affinity. Those of its volumes are multiplied, and a further volume than that is not looked at."""

_Requirements = tuple[NodeSelectorRequirement, ...] | None


class Volumes:
    """The PersistentVolumes of a cluster that are bound to PersistentVolumeClaims."""

    def __init__(self, objects: Iterable[SourceObject], namespace: str) -> None:
        """Take the volumes, the claims and the nodes of a cluster.

        Args:
            objects: The cluster's objects.
            namespace: The namespace for objects that name none.
        """
        labels: dict[str, Mapping[str, str]] = {}
        self._volumes: dict[str, Mapping[str, Any]] = {}
        self._names: dict[tuple[str, str], str] = {}
        for source in objects:
            if source.kind == "PersistentVolume":
                self._volumes[source.name] = source.document
            elif source.kind == "PersistentVolumeClaim":
                place = source.namespace or namespace, source.name
                self._names[place] = str(mapping_at(source.document, "spec").get("volumeName"))
            elif source.kind == "Node":
                own = text_map(source.document, "metadata", "labels")
                labels[source.name] = {HOSTNAME: source.name, **own}
        self._nodes = _Nodes(labels)

    def name(self, namespace: str, claim: str) -> str:
        """Return the name of the volume of a PersistentVolumeClaim; empty if it has none that is known."""
        name = self._names.get((namespace, claim), "")
        return name if name in self._volumes else ""

    def is_of_one_node(self, namespace: str, claim: str) -> bool:
        """Return True if a PersistentVolumeClaim has a volume that one node reaches at most."""
        spec = mapping_at(self._volumes.get(self.name(namespace, claim)), "spec")
        if "local" in spec or "hostPath" in spec:
            return True
        selector = _selector(spec)
        return selector is not None and len(self._nodes.matching(selector)) <= 1

    def is_pinned(self, namespace: str, spec: Mapping[str, Any]) -> bool:
        """Return True if one node alone takes a pod, by its volumes and its node selector and affinity.

        Args:
            namespace: The pod's namespace.
            spec: The pod's spec.
        """
        if any(self.is_of_one_node(namespace, claim) for claim in claim_names(spec)):
            return True
        selectors = (*self.selectors(namespace, spec), *_selectors_of_pod(spec))
        places = [self._nodes.matching(selector) for selector in selectors]
        if not places:
            return False
        # Of most pods that is the only set, as large as the cluster, and an intersection would copy it.
        first, *others = places
        return len(first.intersection(*others) if others else first) == 1

    def selector(self, namespace: str, claim: str) -> NodeSelector | None:
        """Return the nodes of the volume of a PersistentVolumeClaim; None if all reach it, or none that is known does."""
        spec = mapping_at(self._volumes.get(self.name(namespace, claim)), "spec")
        selector = _selector(spec)
        if selector is None or not 0 < len(self._nodes.matching(selector)) < len(self._nodes.names):
            return None
        return selector

    def reached_by(self, selector: NodeSelector) -> frozenset[str]:
        """Return the nodes that reach the volumes with a selector."""
        return self._nodes.matching(selector)

    def selectors(self, namespace: str, spec: Mapping[str, Any]) -> tuple[NodeSelector, ...]:
        """Return the nodes of the volumes of a pod, each selector once; without those that all nodes reach.

        Args:
            namespace: The pod's namespace.
            spec: The pod's spec.
        """
        selectors = (self.selector(namespace, claim) for claim in claim_names(spec))
        return tuple(
            {encode(selector): selector for selector in selectors if selector is not None}.values()
        )


def claim_names(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the PersistentVolumeClaims of a pod's volumes."""
    for entry in list_at(spec, "volumes"):
        claim = mapping_at(entry, "persistentVolumeClaim").get("claimName")
        if isinstance(claim, str):
            yield claim


def bound_pods(
    objects: Sequence[SourceObject], namespace: str, volumes: Volumes
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, with a PersistentVolume of one node.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        volumes: The cluster's volumes.
    """
    return frozenset(
        (place, source.name)
        for source, place, spec in _running_on(objects, namespace)
        if any(volumes.is_of_one_node(place, claim) for claim in claim_names(spec))
    )


def pods_of_some_nodes(
    objects: Sequence[SourceObject], namespace: str, volumes: Volumes
) -> dict[tuple[str, str], tuple[NodeSelector, ...]]:
    """Return namespace and name of the running pods with volumes that some nodes do not reach, with their nodes' selectors.

    One with a volume of one node has the name of its own, since not every such volume names its node.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        volumes: The cluster's volumes.
    """
    bound = bound_pods(objects, namespace, volumes)
    selectors: dict[tuple[str, str], tuple[NodeSelector, ...]] = {}
    for source, place, spec in _running_on(objects, namespace):
        node, name = spec.get("nodeName"), (place, source.name)
        if isinstance(node, str) and node:
            own = (_of_node(node),) if name in bound else volumes.selectors(place, spec)
            if own:
                selectors[name] = own
    return selectors


def _of_node(name: str) -> NodeSelector:
    """Return the selector of one node."""
    requirement = NodeSelectorRequirement(key=_NAME_FIELD, operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))


def pinned_pods(
    objects: Sequence[SourceObject], namespace: str, volumes: Volumes
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, and that one node alone takes.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        volumes: The cluster's volumes.
    """
    return frozenset(
        (place, source.name)
        for source, place, spec in _running_on(objects, namespace)
        if volumes.is_pinned(place, spec)
    )


def read_evidence_with_pinned_pods(objects: Sequence[SourceObject], namespace: str) -> Evidence:
    """Read the evidence of objects with the pods that one node alone takes.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
    """
    volumes = Volumes(objects, namespace)
    return read_evidence(objects, namespace, pinned_pods(objects, namespace, volumes))


def _running_on(
    objects: Iterable[SourceObject], namespace: str
) -> Iterator[tuple[SourceObject, str, Mapping[str, Any]]]:
    """Yield the pods that run until they are ended, each with its namespace and its spec."""
    for source in objects:
        if (source.api_version, source.kind) == ("v1", "Pod"):
            spec = mapping_at(source.document, "spec")
            if spec.get("restartPolicy") not in RUN_TO_COMPLETION:
                yield source, source.namespace or namespace, spec


def on_reachable_nodes(pod: Pod, selectors: Iterable[NodeSelector]) -> Pod:
    """Return a pod that only those nodes take that some selectors match, all of them."""
    affinity = pod.spec.affinity or Affinity()
    node_affinity = affinity.node_affinity or NodeAffinity()
    required = node_affinity.required
    for selector in selectors:
        both = selector if required is None else _both(required, selector)
        if len(both.node_selector_terms) <= _MAX_TERMS:
            required = both
    if required == node_affinity.required:
        return pod
    affinity = msgspec.structs.replace(
        affinity, node_affinity=msgspec.structs.replace(node_affinity, required=required)
    )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))


def _both(first: NodeSelector, second: NodeSelector) -> NodeSelector:
    """Return the selector of the nodes that two selectors match."""
    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=_joined(term.match_expressions, other_term.match_expressions),
                match_fields=_joined(term.match_fields, other_term.match_fields),
            )
            for term, other_term in product(_terms(first), _terms(second))
        )
    )


def _terms(selector: NodeSelector) -> list[NodeSelectorTerm]:
    """Return the terms of a selector that match any node; an empty one does not."""
    return [
        term for term in selector.node_selector_terms if term.match_expressions or term.match_fields
    ]


def _joined(first: _Requirements, second: _Requirements) -> _Requirements:
    return (*(first or ()), *(second or ())) or None


def _selector(spec: Mapping[str, Any]) -> NodeSelector | None:
    """Return the nodes that reach a volume, none for a faulty selector; None if all nodes do."""
    document = mapping_at(spec, "nodeAffinity").get("required")
    return None if document is None else _read_selector(document)


def _selectors_of_pod(spec: Mapping[str, Any]) -> Iterator[NodeSelector]:
    """Yield the nodes that a pod selects by their labels, and those that its affinity requires."""
    requirements = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in text_map(spec, "nodeSelector").items()
    )
    if requirements:
        yield NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=requirements),))
    document = mapping_at(spec, "affinity", "nodeAffinity").get(_REQUIRED)
    if document is not None:
        yield _read_selector(document)


def _read_selector(document: object) -> NodeSelector:
    """Return a node selector; one that matches nothing for a faulty one."""
    selector = decode_view(document, NodeSelector)
    if not isinstance(selector, NodeSelector):
        return NodeSelector()
    try:
        validate(selector)
    except ValueError:
        return NodeSelector()
    return selector


class _Nodes:
    """The nodes by name and by label."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Take the labels of the nodes by name."""
        self._labels = labels
        self._matching: dict[bytes, frozenset[str]] = {}

    @property
    def names(self) -> Collection[str]:
        """All nodes."""
        return self._labels.keys()

    @cached_property
    def _by_label(self) -> Mapping[tuple[str, str], Collection[str]]:
        by_label: dict[tuple[str, str], list[str]] = {}
        for name, own in self._labels.items():
            for label in own.items():
                by_label.setdefault(label, []).append(name)
        return by_label

    def matching(self, selector: NodeSelector) -> frozenset[str]:
        """Return the nodes that a valid selector matches."""
        key = encode(selector)
        if key not in self._matching:
            self._matching[key] = frozenset(
                name
                for term in selector.node_selector_terms
                for name in self._candidates(term)
                if matches(NodeSelector(node_selector_terms=(term,)), name, self._labels[name])
            )
        return self._matching[key]

    def _candidates(self, term: NodeSelectorTerm) -> Iterable[str]:
        """Return the nodes that a term may match, all or fewer.

        Thousands of volumes may each name one of thousands of nodes.
        """
        for entry in term.match_fields or ():
            if entry.key == _NAME_FIELD and entry.operator == "In":
                return [name for name in entry.values or () if name in self._labels]
        for entry in term.match_expressions or ():
            if entry.operator == "In":
                return [
                    name
                    for value in dict.fromkeys(entry.values or ())
                    for name in self._by_label.get((entry.key, value), ())
                ]
        return self._labels
