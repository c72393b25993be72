"""The expressions of a required node affinity that a node does not match, and the changes that let it."""

from collections.abc import Iterator
from typing import Final

from findings.text import join_names, printable
from kube.api.core import Node
from kube.api.node_selector import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    matches,
)

_MAX_TERMS: Final = 2
_MAX_EXPRESSIONS: Final = 3
_MAX_VALUES: Final = 5


def describe_unmatched(selector: NodeSelector, node: Node) -> str:
    """Return in words the expressions of a valid selector that a node does not match.

    >>> from kube.api.meta import ObjectMeta
    >>> zone = NodeSelectorRequirement(key="zone", operator="In", values=("a", "b"))
    >>> selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(zone,)),))
    >>> describe_unmatched(selector, Node(metadata=ObjectMeta(name="n")))
    'required node affinity needs zone In [a, b]'
    """
    terms = _unmatched_by_term(selector, node)
    texts = [
        join_names([_text(expression) for expression in unmatched], _MAX_EXPRESSIONS)
        for unmatched in terms[:_MAX_TERMS]
    ]
    more = [f"{len(terms) - _MAX_TERMS} more terms"] if len(terms) > _MAX_TERMS else []
    alternatives = ", or ".join(dict.fromkeys((*texts, *more)))
    return f"required node affinity needs {alternatives or 'what no node has'}"


def affinity_changes(selector: NodeSelector, node: Node) -> tuple[str, ...]:
    """Return the changes of a valid selector that let it match a node, of the term with the fewest."""
    terms = _unmatched_by_term(selector, node)
    if not terms:
        return ("remove the required node affinity",)
    fewest = min(terms, key=len)
    return tuple(_change(expression, node) for expression in fewest)


def _unmatched_by_term(
    selector: NodeSelector, node: Node
) -> list[tuple[NodeSelectorRequirement, ...]]:
    """Return for each term, in order, its expressions that a node does not match; an empty term has none."""
    terms = (tuple(_unmatched(term, node)) for term in selector.node_selector_terms)
    return [expressions for expressions in terms if expressions]


def _unmatched(term: NodeSelectorTerm, node: Node) -> Iterator[NodeSelectorRequirement]:
    for expression in term.match_expressions or ():
        if not _matches(NodeSelectorTerm(match_expressions=(expression,)), node):
            yield expression
    for field in term.match_fields or ():
        if not _matches(NodeSelectorTerm(match_fields=(field,)), node):
            yield field


def _matches(term: NodeSelectorTerm, node: Node) -> bool:
    selector = NodeSelector(node_selector_terms=(term,))
    return matches(selector, node.metadata.name, node.labels)


def _text(expression: NodeSelectorRequirement) -> str:
    """Return an expression as people write it: `zone In [a, b]`."""
    values = expression.values or ()
    more = [f"{len(values) - _MAX_VALUES} more"] if len(values) > _MAX_VALUES else []
    text = ", ".join((*values[:_MAX_VALUES], *more))
    suffix = f" [{text}]" if values else ""
    return printable(f"{expression.key} {expression.operator}{suffix}")


def _change(expression: NodeSelectorRequirement, node: Node) -> str:
    label = node.labels.get(expression.key)
    if expression.operator == "In" and label is not None:
        return printable(f"allow {expression.key} {label} in the required node affinity")
    return f"remove {_text(expression)} from the required node affinity"
