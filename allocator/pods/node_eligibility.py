"""Eligibility of a node for a pod, devices aside, as far as the pod and node objects tell.

Covers node selector, required node affinity, taints, `unschedulable` and `nodeName`; the resources of nodes
are `allocator.nodes`'.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,
nodeaffinity,tainttoleration}; k8s.io/component-helpers v0.37.1, scheduling/corev1.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.model.outcome import Reason, RejectionReason
from allocator.pods.node_affinity import affinity_changes, describe_unmatched
from findings.text import join_names, printable, quote_text
from kube.api.core import Node, Pod, PodSpec, Taint, Toleration
from kube.api.meta import encode
from kube.api.node_selector import NodeSelector, matches, validate

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_MAX_LABELS: Final = 5


def node_rejection(pod: Pod, node: Node) -> RejectionReason | None:
    """Return the reason a node rejects a pod; None when nothing that is modelled does.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import NodeSpec
    >>> cordoned = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(unschedulable=True))
    >>> node_rejection(Pod(), cordoned).detail
    'node is unschedulable'
    """
    for check in _CHECKS:
        if check.rejects(pod, node):
            return RejectionReason(
                reason=Reason.NODE_NOT_ELIGIBLE, subject=check.describe(pod, node)
            )
    return None


def is_eligible(pod: Pod, node: Node) -> bool:
    """Return True if nothing that is modelled rejects a pod; `node_rejection` tells the reason."""
    return not any(check.rejects(pod, node) for check in _CHECKS)


def counted_rejection(pod: Pod, node: Node) -> str | None:
    """Return kube-scheduler's words for a node that rejects a pod; None if it does not.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import NodeSpec
    >>> cordoned = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(unschedulable=True))
    >>> counted_rejection(Pod(), cordoned)
    'node(s) were unschedulable'
    """
    names = _names_by_affinity(pod)
    if names is not None and node.metadata.name not in names:
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    return next((check.counted for check in _CHECKS if check.rejects(pod, node)), None)


def named_nodes(pod: Pod) -> frozenset[str] | None:
    """Return the nodes that a pod names, by nodeName or in its required affinity; None if it names none.

    No other node takes it.

    >>> from kube.api.core import PodSpec
    >>> named_nodes(Pod(spec=PodSpec(node_name="a"))), named_nodes(Pod())
    (frozenset({'a'}), None)
    """
    return frozenset({pod.spec.node_name}) if pod.spec.node_name else _names_by_affinity(pod)


def demands_on_nodes(spec: PodSpec) -> bytes:
    """Return all of a pod that its eligible nodes depend on; pods with the same have the same nodes.

    Affinity between pods is no part of it, and differs from workload to workload.

    >>> from kube.api.core import Affinity
    >>> spread = PodSpec(affinity=Affinity(pod_anti_affinity={"a": "b"}))
    >>> demands_on_nodes(spread) == demands_on_nodes(PodSpec())
    True
    """
    required = _required_affinity(spec)
    return encode((spec.node_name, spec.node_selector, required, spec.tolerations))


class Barrier(StrEnum):
    """The state of a node that keeps pods away: it is cordoned, or has a taint."""

    UNSCHEDULABLE = "unschedulable"
    UNTOLERATED_TAINT = "untoleratedTaint"


def barrier(pod: Pod, node: Node) -> Barrier | None:
    """Return the state of a node that alone keeps a pod away; None if nothing does, or the pod asks for other nodes.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import NodeSpec, PodSpec
    >>> cordoned = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(unschedulable=True))
    >>> barrier(Pod(), cordoned)
    <Barrier.UNSCHEDULABLE: 'unschedulable'>
    >>> barrier(Pod(spec=PodSpec(node_selector={"disk": "ssd"})), cordoned)
    """
    if _other_node(pod, node) or _misses_choice(pod, node):
        return None
    if _unschedulable(pod, node):
        return Barrier.UNSCHEDULABLE
    return Barrier.UNTOLERATED_TAINT if _untolerated_taint(pod, node) else None


class PodChange(NamedTuple):
    """A change of a pod for a node.

    Attributes:
        words: The change in the imperative.
        label: The key of the label that it writes into nodeSelector; empty for other changes.
    """

    words: str
    label: str = ""


def pod_changes(pod: Pod, node: Node) -> tuple[PodChange, ...]:
    """Return the changes of a pod that let a node take it; empty without any.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import PodSpec
    >>> node = Node(metadata=ObjectMeta(name="a", labels={"gpu": "a100"}))
    >>> pod = Pod(spec=PodSpec(node_selector={"gpu": "A100", "zone": "b"}))
    >>> [change.words for change in pod_changes(pod, node)]
    ['write gpu: a100 in nodeSelector', 'remove zone from nodeSelector']
    """
    if _other_node(pod, node) or _unschedulable(pod, node):
        return ()
    selected = (pod.spec.node_selector or {}).items()
    wrong_labels = [key for key, value in selected if node.labels.get(key) != value][:_MAX_LABELS]
    return (
        *(PodChange(_tolerate(taint, pod, node)) for taint in _blocking_taints(pod, node)),
        *(
            PodChange(f"write {key}: {node.labels[key]} in nodeSelector", label=key)
            if key in node.labels
            else PodChange(f"remove {key} from nodeSelector")
            for key in wrong_labels
        ),
        *map(PodChange, _affinity_changes(pod, node)),
    )


def _tolerate(taint: Taint, pod: Pod, node: Node) -> str:
    """Return the change of a pod to tolerate a taint, in the imperative: of one of its tolerations, or a new one."""
    tolerations = pod.spec.tolerations or ()
    for number, toleration in enumerate(tolerations):
        corrected = _corrected(toleration, taint)
        others = (*tolerations[:number], corrected, *tolerations[number + 1 :])
        # The toleration may be for another taint of the node, which it has to tolerate still.
        if toleration.key != taint.key or any(
            _is_tolerated(other, tolerations) and not _is_tolerated(other, others)
            for other in node.spec.taints or ()
        ):
            continue
        if toleration.effect == corrected.effect:
            words = f"write value {quote_text(taint.value)} for {quote_text(toleration.value)}"
            return f"{words}, or operator Exists without a value, in the toleration of {taint.key}"
        if toleration.value == corrected.value:
            words = f"write effect {taint.effect} for {toleration.effect}"
            return f"{words} in the toleration of {taint.key}"
    return f"tolerate taint {_taint_text(taint)}"


def _corrected(toleration: Toleration, taint: Taint) -> Toleration:
    """Return a toleration of the key of a taint with the value and the effect that tolerate it."""
    value = toleration.value if toleration.operator == "Exists" else taint.value
    effect = toleration.effect and taint.effect
    return replace(toleration, value=value, effect=effect)


def _affinity_changes(pod: Pod, node: Node) -> tuple[str, ...]:
    required = _required_affinity(pod.spec)
    if required is None:
        return ()
    if _fault(required):
        return ("change the required node affinity",)
    is_matched = matches(required, node.metadata.name, node.labels)
    return () if is_matched else affinity_changes(required, node)


def removable_taints(pod: Pod, node: Node) -> tuple[str, ...]:
    """Return the taints that only an administrator sets, as `KEY:EFFECT`, of those that reject a pod.

    Kubernetes itself sets those of its own domain, and again once they are removed.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import NodeSpec
    >>> taint = Taint(key="maintenance", value="disk", effect="NoSchedule")
    >>> removable_taints(Pod(), Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(taints=(taint,))))
    ('maintenance:NoSchedule',)
    """
    return tuple(
        printable(f"{taint.key}:{taint.effect}")
        for taint in _blocking_taints(pod, node)
        if not f".{taint.key.partition('/')[0]}".endswith(".kubernetes.io")
    )


def is_for(selector: NodeSelector, node: Node) -> bool:
    """Return True if a selector selects a node; an invalid one selects none."""
    return not _fault(selector) and matches(selector, node.metadata.name, node.labels)


def _other_node(pod: Pod, node: Node) -> str:
    name = pod.spec.node_name
    return f"pod requires node {name}" if name not in {"", node.metadata.name} else ""


def _unschedulable(pod: Pod, node: Node) -> str:
    if not node.spec.unschedulable or _is_tolerated(_UNSCHEDULABLE, pod.spec.tolerations or ()):
        return ""
    return "node is unschedulable"


def _misses_choice(pod: Pod, node: Node) -> bool:
    required_labels = (pod.spec.node_selector or {}).items()
    required = _required_affinity(pod.spec)
    return any(node.labels.get(key) != value for key, value in required_labels) or (
        required is not None and not is_for(required, node)
    )


def _unmatched_choice(pod: Pod, node: Node) -> str:
    return "; ".join(filter(None, (_unmatched_labels(pod, node), _unmatched_affinity(pod, node))))


def _unmatched_labels(pod: Pod, node: Node) -> str:
    required_labels = (pod.spec.node_selector or {}).items()
    missing = [f"{key}={value}" for key, value in required_labels if node.labels.get(key) != value]
    if not missing:
        return ""
    return f"nodeSelector requires {join_names(missing, _MAX_LABELS)}"


def _unmatched_affinity(pod: Pod, node: Node) -> str:
    required = _required_affinity(pod.spec)
    if required is None:
        return ""
    if fault := _fault(required):
        return f"node affinity is invalid: {fault}"
    is_matched = matches(required, node.metadata.name, node.labels)
    return "" if is_matched else describe_unmatched(required, node)


def _fault(selector: NodeSelector) -> str:
    """Return the fault of a node selector; empty if it is valid."""
    try:
        validate(selector)
    except ValueError as error:
        return str(error)
    return ""


def _required_affinity(spec: PodSpec) -> NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required if affinity is not None else None


def _untolerated_taint(pod: Pod, node: Node) -> str:
    taint = next(_blocking_taints(pod, node), None)
    return f"untolerated taint {_taint_text(taint)}" if taint is not None else ""


def _blocking_taints(pod: Pod, node: Node) -> Iterator[Taint]:
    for taint in node.spec.taints or ():
        if taint.effect in _BLOCKING and not _is_tolerated(taint, pod.spec.tolerations or ()):
            yield taint


def _taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _names_by_affinity(pod: Pod) -> frozenset[str] | None:
    """Return the nodes that required affinity names for a pod; None without such a restriction.

    Source: NodeAffinity.PreFilter.
    """
    required = _required_affinity(pod.spec)
    names: frozenset[str] = frozenset()
    for term in required.node_selector_terms if required is not None else ():
        sets = [
            frozenset(field.values or ())
            for field in term.match_fields or ()
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not sets:
            return None
        names |= frozenset.intersection(*sets)
    return names or None


class _Check(NamedTuple):
    """A check of a pod on a node.

    Attributes:
        rejects: Its result is true, or not empty, for a node that fails. Decisions ask it for many nodes.
        describe: Its result is the cause in words, for a node that fails.
        counted: The words with which upstream counts nodes that fail.
    """

    rejects: Callable[[Pod, Node], bool | str]
    describe: Callable[[Pod, Node], str]
    counted: str


_CHECKS: Final = (
    _Check(_other_node, _other_node, "node(s) didn't match the requested node name"),
    _Check(_unschedulable, _unschedulable, "node(s) were unschedulable"),
    _Check(_untolerated_taint, _untolerated_taint, "node(s) had untolerated taint(s)"),
    _Check(_misses_choice, _unmatched_choice, "node(s) didn't match Pod's node affinity/selector"),
)
"""The checks in upstream's order."""
