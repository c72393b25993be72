"""The labels of nodes that a pod requires, by its nodeSelector or its node affinity.

Source: k8s.io/component-helpers v0.37.1, scheduling/corev1/nodeaffinity: all of the node selector, and one of the terms.
"""

from collections.abc import Iterator
from typing import Final

from kube.api.core import PodSpec
from kube.api.meta import ApiStruct

IN: Final = "In"


class RequiredLabel(ApiStruct, frozen=True, kw_only=True):
    """A requirement on one label.

    Attributes:
        operator: The operator of a NodeSelectorRequirement; `In` for an entry of the node selector.
        term: The index of the term in the required node affinity; None for the node selector.
        position: The index of the requirement in its term.
    """

    key: str
    operator: str
    values: tuple[str, ...]
    term: int | None = None
    position: int = 0

    def allows_only(self, value: str | None) -> bool:
        """Return True if no node with another value of the label meets the requirement."""
        return self.operator == IN and self.values == (value,)


def required_labels(spec: PodSpec) -> Iterator[RequiredLabel]:
    """Yield the requirements of a pod on labels of its node, those of the node selector first."""
    for key, value in sorted((spec.node_selector or {}).items()):
        yield RequiredLabel(key=key, operator=IN, values=(value,))
    for term in affinity_terms(spec):
        yield from term


def affinity_terms(spec: PodSpec) -> tuple[tuple[RequiredLabel, ...], ...]:
    """Return the requirements on labels of each term of the required node affinity; a node has to meet one term."""
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity.required if affinity else None
    return tuple(
        tuple(
            RequiredLabel(
                key=entry.key,
                operator=entry.operator,
                values=entry.values or (),
                term=number,
                position=position,
            )
            for position, entry in enumerate(term.match_expressions or ())
        )
        for number, term in enumerate(required.node_selector_terms if required else ())
    )
