"""Whether a node would take a pod, devices aside, as far as pod and node objects tell.

Node selector, required node affinity, taints, `unschedulable` and `nodeName`. Everything else that
schedulers look at is listed in `NOT_MODELLED`.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,
nodeaffinity,tainttoleration}; k8s.io/component-helpers v0.37.1, scheduling/corev1.
"""

from collections.abc import Iterable
from typing import Final

from allocator.core.outcome import Reason, Refusal
from kube.api.core import Node, Pod, Taint, Toleration
from kube.api.node_selector import NodeSelector, check, matches

NOT_MODELLED: Final = (
    "CPU and memory",
    "resources of device plugins",
    "host ports",
    "volumes",
    "affinity between pods",
    "preferred node affinity",
    "topology spread",
    "scheduling gates",
)
"""What a scheduler looks at and nothing here does."""

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_SHOWN: Final = 5


def obstacle(pod: Pod, node: Node) -> Refusal | None:
    """Return what keeps a pod off a node; None when nothing does that is modelled.

    >>> from kube.api.meta import ObjectMeta
    >>> from kube.api.core import NodeSpec
    >>> cordoned = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(unschedulable=True))
    >>> obstacle(Pod(), cordoned).detail
    'the node is unschedulable'
    """
    why = (
        _other_name(pod, node)
        or _cordoned(pod, node)
        or _labels(pod, node)
        or _affinity(pod, node)
        or _taint(pod, node)
    )
    return Refusal(reason=Reason.NODE, detail=why) if why else None


def is_for(selector: NodeSelector, node: Node) -> bool:
    """Return whether a selector selects a node; one that makes no sense selects none."""
    try:
        check(selector)
    except ValueError:
        return False
    return matches(selector, node.metadata.name, node.labels)


def _other_name(pod: Pod, node: Node) -> str:
    wanted = pod.spec.node_name
    return f"the pod names node {wanted}" if wanted not in {"", node.metadata.name} else ""


def _cordoned(pod: Pod, node: Node) -> str:
    if not node.spec.unschedulable or _is_tolerated(_UNSCHEDULABLE, pod.spec.tolerations or ()):
        return ""
    return "the node is unschedulable"


def _labels(pod: Pod, node: Node) -> str:
    wanted = (pod.spec.node_selector or {}).items()
    lacking = [f"{key}={value}" for key, value in wanted if node.labels.get(key) != value]
    if not lacking:
        return ""
    more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    return f"nodeSelector wants {', '.join(lacking[:_SHOWN])}{more}"


def _affinity(pod: Pod, node: Node) -> str:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return ""
    try:
        check(affinity.required)
    except ValueError as fault:
        return f"the pod's node affinity makes no sense: {fault}"
    if matches(affinity.required, node.metadata.name, node.labels):
        return ""
    return "required node affinity selects other nodes"


def _taint(pod: Pod, node: Node) -> str:
    for taint in node.spec.taints or ():
        if taint.effect in _BLOCKING and not _is_tolerated(taint, pod.spec.tolerations or ()):
            value = f"={taint.value}" if taint.value else ""
            return f"taint {taint.key}{value}:{taint.effect} is not tolerated"
    return ""


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"
