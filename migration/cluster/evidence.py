"""The nodes of a cluster today: the pods that run there, and those that may be evicted. Pure."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from findings.text import count_text, join_names, printable
from kube.api.core import FINISHED_PHASES
from kube.api.node_selector import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    matches,
    validate,
)
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject

_PERCENT: Final = re.compile("([0-9]{1,3})%")
_ALL_PERCENT: Final = 100
_SEE_READY: Final = "see that all its pods are ready"
_LET_ONE_SELECT: Final = "let only one of them select the pods"
_UNCOUNTED: Final = ", and the disruption controller cannot count them (SyncFailed)"
_LET_COUNT: Final = (
    "change it to minAvailable with a number, or let it select no pods of owners without a scale, such as a RayCluster, a Job "
    "or a DaemonSet"
)
_SEE_READY_OR_ADD: Final = f"{_SEE_READY}, or add a replica"
"""The fixes for budgets that allow no eviction now: one more pod is one more that `maxUnavailable` expects."""
RUN_TO_COMPLETION: Final = frozenset({"Never", "OnFailure"})
"""The restart policies of pods that run to their end."""
_SHOWN_VALUES: Final = 8
"""Requirements of a selector, and values of one, that a text names."""
KUEUE_IMAGE: Final = re.compile(r"(?:^|/)kueue:v?0\.(\d{1,3})(?!\d)")
KAI_IMAGE: Final = re.compile(r"(?:^|/)kai-scheduler/scheduler:v?0\.(\d{1,3})(?!\d)")
VOLCANO_IMAGE: Final = re.compile(r"(?:^|/)vc-scheduler:v?1\.(\d{1,3})(?!\d)")
_MIRROR: Final = "kubernetes.io/config.mirror"


class RunningPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has not ended.

    Attributes:
        node: Its node; empty while it waits for one.
        controller: Kind of its controller; empty for a pod that nothing creates again.
        is_mirror: It is of a file on its node, and stays there.
        ends: It runs to its end.
        is_ready: It is ready, or a short snapshot does not tell.
        is_unguarded: It is pending, or is deleted already, so that no budget counts.
    """

    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    controller: str
    is_mirror: bool
    ends: bool = False
    is_ready: bool = True
    is_unguarded: bool = False

    @property
    def stays(self) -> bool:
        """Return True if `kubectl drain --ignore-daemonsets` leaves it on its node."""
        return self.is_mirror or self.controller == DAEMON_SET


class Disruptions(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget with its pods.

    Attributes:
        pods: The number of pods that it selects.
        unplaced: The number of those that wait for a node.
        has_maximum: Its limit is `maxUnavailable`.
        allowed: The number of pods that its spec allows to be evicted when all of them are ready.
        now: The number of pods that may be evicted at this moment according to the API server; None
            if it does not report one.
        limit: The limit of its spec, with the number of its pods.
        selects: Its label selector as text.
        never_fix: The changes with which it lets a pod go if it never does.
        now_fix: The changes with which it lets a pod go if it only does not at this moment.
        others: Namespace and name of other budgets with a pod in common, which lets no such pod go.
        pinned_to: The node of more pods than it lets go at once that wait for that node once they are evicted; empty
            for none.
        pinned: The number of these pods.
        frees_unready: It lets pods that are not ready go at any time.
    """

    namespace: str
    name: str
    selector: NodeSelector | None
    pods: int = 0
    unplaced: int = 0
    has_maximum: bool = False
    allowed: int
    now: int | None
    limit: str = ""
    selects: str = ""
    never_fix: str = ""
    now_fix: str = ""
    others: tuple[str, ...] = ()
    pinned_to: str = ""
    pinned: int = 0
    frees_unready: bool = False

    @property
    def never_text(self) -> str:
        """The text about pods that it never lets go, with a place for them."""
        if self.others:
            names = join_names([f"{self.namespace}/{self.name}", *self.others])
            return f"PodDisruptionBudgets {names} allow no eviction {{}}: the API server evicts no pod that two of them select"
        if self.pinned_to:
            return f"{self._title} lets {self.allowed} {self._of_pinned_pods}: {self.limit}"
        return f"{self._title} never allows the eviction {{}}: {self.limit}"

    @property
    def now_text(self) -> str:
        """The text about pods that it does not let go at this moment, with a place for them."""
        if self.pinned_to:
            return f"{self._title} lets {self.now} {self._of_pinned_pods}: disruptionsAllowed {self.now} now, {self.limit}"
        return f"{self._title} allows no eviction {{}} now: disruptionsAllowed 0, {self.limit}"

    @property
    def _of_pinned_pods(self) -> str:
        return (
            f"of {self.pinned} pods go that only {self.pinned_to} takes (by a volume or node selector), and evicted ones wait "
            "until that is back"
        )

    @property
    def _title(self) -> str:
        return f"PodDisruptionBudget {self.namespace}/{self.name}"

    def covers(self, pod: RunningPod) -> bool:
        """Return True if the budget counts a pod; with an empty selector it counts all."""
        if pod.namespace != self.namespace:
            return False
        return self.selector is None or matches(self.selector, "", pod.labels)

    def holds(self, pod: RunningPod) -> bool:
        """Return True if the eviction of a pod counts against the budget."""
        return self.covers(pod) and (pod.is_ready or not self.frees_unready)

    def with_pinned(self, node: str, number: int) -> "Disruptions":
        """Return the budget with more pods than it lets go at once that wait for their node once they are evicted.

        Args:
            node: The node.
            number: The number of these pods.
        """
        until = f"until {node} is switched"
        fix = (
            f"raise maxUnavailable to {number} {until}, or scale down before"
            if self.has_maximum
            else f"lower minAvailable to {self.pods - self.unplaced - number} {until}"
        )
        return msgspec.structs.replace(self, pinned_to=node, pinned=number, never_fix=fix)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and budgets of a cluster.

    Source: k8s.io/kubernetes v1.37.1, pkg/registry/core/pod/storage/eviction.go.

    Attributes:
        pods: The pods by node.
        pinned: Namespace and name of the pods that no node but theirs takes, so that they wait for it.
    """

    pods: Mapping[str, tuple[RunningPod, ...]]
    budgets: tuple[Disruptions, ...]
    pinned: Collection[tuple[str, str]] = frozenset()

    def leaving(self, node: str) -> list[RunningPod]:
        """Return the pods that a drain evicts."""
        return [pod for pod in self.pods.get(node, ()) if not pod.stays]

    def blocking_budgets(self, node: str) -> Iterator[tuple[Disruptions, tuple[RunningPod, ...]]]:
        """Yield the budgets that never allow the eviction of pods of a node, with these pods.

        Pods that are pinned to the node count together: none of them runs before the drain is done.
        """
        shared: dict[Disruptions, list[RunningPod]] = {}
        alone: dict[Disruptions, list[RunningPod]] = {}
        for pod, budgets in self._guarded(node):
            first, *others = budgets
            if others:
                names = tuple(f"{budget.namespace}/{budget.name}" for budget in others)
                selectors = "; ".join(budget.selects for budget in budgets)
                both = msgspec.structs.replace(
                    first, others=names, selects=selectors, never_fix=_LET_ONE_SELECT
                )
                shared.setdefault(both, []).append(pod)
            elif first.allowed < 1 and first.holds(pod):
                alone.setdefault(first, []).append(pod)
        yield from ((budget, tuple(pods)) for budget, pods in (*alone.items(), *shared.items()))
        for budget, pinned in self._pinned_pods(node):
            if 0 < budget.allowed < len(pinned):
                yield budget.with_pinned(node, len(pinned)), pinned

    def exhausted_budgets(self, node: str) -> Iterator[tuple[Disruptions, tuple[RunningPod, ...]]]:
        """Yield the other budgets that allow no eviction of pods of a node at this moment, with these pods.

        Of pods that are pinned to the node, they have to allow as many evictions as pods are ready.
        """
        exhausted: dict[Disruptions, list[RunningPod]] = {}
        for pod, (budget, *others) in self._guarded(node):
            if not others and budget.now == 0 and budget.allowed > 0 and budget.holds(pod):
                exhausted.setdefault(budget, []).append(pod)
        yield from ((budget, tuple(pods)) for budget, pods in exhausted.items())
        for budget, pinned in self._pinned_pods(node):
            ready = sum(pod.is_ready and not pod.is_unguarded for pod in pinned)
            if budget.now and budget.now < ready and len(pinned) <= budget.allowed:
                yield budget.with_pinned(node, len(pinned)), pinned

    def _pinned_pods(self, node: str) -> Iterator[tuple[Disruptions, tuple[RunningPod, ...]]]:
        """Yield the budgets that make pods of a node wait that are pinned to it, with these pods.

        One that is not ready is as little available as one that waits for its node.
        """
        pods = [pod for pod in self.leaving(node) if (pod.namespace, pod.name) in self.pinned]
        for budget in self.budgets if pods else ():
            own = tuple(filter(budget.covers, pods))
            if any(budget.holds(pod) and not pod.is_unguarded for pod in own):
                yield budget, own

    def _guarded(self, node: str) -> Iterator[tuple[RunningPod, list[Disruptions]]]:
        """Yield the pods that a drain evicts and that budgets count, with these budgets."""
        leaving = self.leaving(node)
        namespaces = {pod.namespace for pod in leaving}
        # A large cluster has thousands of budgets, and a node pods of a few namespaces.
        near = [budget for budget in self.budgets if budget.namespace in namespaces]
        for pod in leaving:
            budgets = [budget for budget in near if budget.covers(pod)]
            if budgets and not pod.is_unguarded:
                yield pod, budgets

    def bare_pods(self, node: str) -> list[RunningPod]:
        """Return the pods without a controller; they stop `kubectl drain`.

        Those that run to their end are waited for, and no drain stops at one that has ended.
        """
        return [pod for pod in self.leaving(node) if not pod.controller and not pod.ends]


def read_evidence(
    objects: Sequence[SourceObject],
    namespace: str,
    pinned: Collection[tuple[str, str]] = frozenset(),
) -> Evidence:
    """Read the evidence of objects.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        pinned: Namespace and name of the pods that no node but theirs takes.
    """
    pods: dict[str, list[RunningPod]] = {}
    for source in objects:
        if (source.api_version, source.kind) == ("v1", "Pod"):
            pod = _running_pod(source, namespace)
            if pod is not None:
                pods.setdefault(pod.node, []).append(pod)
    budgets = tuple(_budgets(objects, [*chain.from_iterable(pods.values())], namespace))
    by_node = {
        node: tuple(sorted(members, key=lambda pod: (pod.namespace, pod.name)))
        for node, members in sorted(pods.items())
        if node
    }
    return Evidence(pods=by_node, budgets=budgets, pinned=pinned)


def cluster_uid(objects: Iterable[SourceObject]) -> str:
    """Return the uid of the namespace kube-system, unique to a cluster; empty without it."""
    for source in objects:
        if (source.kind, source.name) == ("Namespace", "kube-system"):
            uid = mapping_at(source.document, "metadata").get("uid")
            return uid if isinstance(uid, str) else ""
    return ""


def deployed_release(objects: Iterable[SourceObject], image: re.Pattern[str]) -> int | None:
    """Return the minor release of a component, by the image of its Deployment; None if none shows it.

    Args:
        objects: The cluster's objects.
        image: The images of the component, with the minor release as the first group.
    """
    for source in objects:
        if source.kind != "Deployment":
            continue
        for container in list_at(source.document, "spec", "template", "spec", "containers"):
            match = image.search(str(mapping_at(container).get("image")))
            if match is not None:
                return int(match[1])
    return None


def mapping_at(document: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of a document; empty if there is none."""
    for field in path:
        document = document.get(field) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def text_map(document: object, *path: str) -> dict[str, str]:
    """Return the texts by key at a path of a document."""
    return {
        key: value for key, value in mapping_at(document, *path).items() if isinstance(value, str)
    }


def list_at(document: object, *path: str) -> Sequence[Any]:
    """Return the list at a path of a document; empty if there is none."""
    *parents, last = path
    value = mapping_at(document, *parents).get(last)
    return value if isinstance(value, list) else ()


def is_ready(document: Mapping[str, Any]) -> bool:
    """Return True if a node, or a pod, is ready; one without conditions, as in a short snapshot, is."""
    conditions = [
        entry for entry in list_at(document, "status", "conditions") if isinstance(entry, dict)
    ]
    ready = [entry.get("status") for entry in conditions if entry.get("type") == "Ready"]
    return not ready or ready[0] == "True"


def controller_kind(document: object) -> str:
    """Return the kind of an object's controller; empty if it has none."""
    for entry in list_at(document, "metadata", "ownerReferences"):
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            return str(entry.get("kind") or "unknown")
    return ""


def _running_pod(source: SourceObject, namespace: str) -> RunningPod | None:
    phase = text_map(source.document, "status").get("phase")
    if phase in FINISHED_PHASES:
        return None
    return RunningPod(
        namespace=source.namespace or namespace,
        name=source.name,
        node=text_map(source.document, "spec").get("nodeName", ""),
        labels=text_map(source.document, "metadata", "labels"),
        controller=controller_kind(source.document),
        is_mirror=_MIRROR in mapping_at(source.document, "metadata", "annotations"),
        ends=str(mapping_at(source.document, "spec").get("restartPolicy")) in RUN_TO_COMPLETION,
        is_ready=is_ready(source.document),
        is_unguarded=phase == "Pending"
        or bool(mapping_at(source.document, "metadata").get("deletionTimestamp")),
    )


def _budgets(
    objects: Iterable[SourceObject],
    pods: Collection[RunningPod],
    namespace: str,
) -> Iterator[Disruptions]:
    """Yield the PodDisruptionBudgets.

    Source: k8s.io/kubernetes v1.37.1, pkg/controller/disruption: percentages are rounded up, and pods that wait for a
    node are expected to come, as those that an eviction has just had created.
    """
    by_namespace: dict[str, list[RunningPod]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.namespace, []).append(pod)
    for source in objects:
        if (source.api_version, source.kind) != ("policy/v1", "PodDisruptionBudget"):
            continue
        spec = mapping_at(source.document, "spec")
        budget = Disruptions(
            namespace=source.namespace or namespace,
            name=source.name,
            selector=_selector(mapping_at(spec, "selector"))
            if spec.get("selector") is not None
            else NodeSelector(),
            allowed=0,
            now=None,
        )
        own = [pod for pod in by_namespace.get(budget.namespace, ()) if budget.covers(pod)]
        number = len(own)
        status = mapping_at(source.document, "status")
        now = status.get("disruptionsAllowed")
        is_counted = not (_needs_scale(spec) and _has_failed(status))
        yield msgspec.structs.replace(
            budget,
            pods=number,
            unplaced=sum(not pod.node for pod in own),
            has_maximum="maxUnavailable" in spec,
            allowed=_allowed(spec, number) if is_counted else 0,
            limit=f"{_limit_text(spec, number)}{'' if is_counted else _UNCOUNTED}",
            selects=_selector_text(mapping_at(spec, "selector")),
            never_fix=_never_fix(spec) if is_counted else _LET_COUNT,
            now_fix=_SEE_READY if "maxUnavailable" in spec else _SEE_READY_OR_ADD,
            now=now if isinstance(now, int) and not isinstance(now, bool) else None,
            frees_unready=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            or _meets_its_limit(status),
        )


def _meets_its_limit(status: Mapping[str, Any]) -> bool:
    """Return True if a budget has as many healthy pods as its limit requires, so that others may go."""
    current, desired = status.get("currentHealthy"), status.get("desiredHealthy")
    return isinstance(current, int) and isinstance(desired, int) and current >= desired > 0


def _needs_scale(spec: Mapping[str, Any]) -> bool:
    """Return True if the disruption controller asks the owners of a budget's pods for their number."""
    return "maxUnavailable" in spec or isinstance(spec.get("minAvailable"), str)


def _has_failed(status: Mapping[str, Any]) -> bool:
    """Return True if the disruption controller could not count the pods of a budget, and lets none go until it can."""
    return any(
        (entry.get("type"), entry.get("reason")) == ("DisruptionAllowed", "SyncFailed")
        for entry in map(mapping_at, list_at(status, "conditions"))
    )


def _allowed(spec: Mapping[str, Any], number: int) -> int:
    """Return the number of pods that may be evicted if all pods are ready."""
    if "maxUnavailable" in spec:
        return _amount(spec["maxUnavailable"], number)
    return number - _amount(spec.get("minAvailable", 1), number)


def _never_fix(spec: Mapping[str, Any]) -> str:
    """Return the fixes for a budget that never allows an eviction.

    Replicas count towards `minAvailable` only, and not where that is all of them.
    """
    if "maxUnavailable" in spec:
        return "raise maxUnavailable"
    value = spec.get("minAvailable", 1)
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and (match is None or int(match[1]) >= _ALL_PERCENT):
        return "lower minAvailable"
    return "lower minAvailable, or add replicas"


def _limit_text(spec: Mapping[str, Any], number: int) -> str:
    """Return the limit of a budget as text, such as `minAvailable 3 of its 3 pods`."""
    field = "maxUnavailable" if "maxUnavailable" in spec else "minAvailable"
    value = spec.get(field, 1)
    amount = value if isinstance(value, int | str) else "?"
    return printable(f"{field} {amount} of its {count_text(number, 'pod')}")


def _selector_text(selector: Mapping[str, Any]) -> str:
    """Return a label selector as text, such as `app=web, tier in (a, b)`."""
    parts = [f"{key}={value}" for key, value in text_map(selector, "matchLabels").items()]
    for entry in map(mapping_at, list_at(selector, "matchExpressions")):
        values = ", ".join(str(value) for value in list_at(entry, "values")[:_SHOWN_VALUES])
        operator = str(entry.get("operator")).lower()
        parts.append(f"{entry.get('key')} {operator}{f' ({values})' if values else ''}")
    return printable(", ".join(parts[:_SHOWN_VALUES])) or "all pods of its namespace"


def _amount(value: object, number: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return math.ceil(number * int(match[1]) / 100) if match is not None else 0


def _selector(selector: Mapping[str, Any]) -> NodeSelector | None:
    """Return a label selector in the form of a node selector, with the same operators."""
    requirements = [
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in text_map(selector, "matchLabels").items()
    ]
    for entry in list_at(selector, "matchExpressions"):
        if isinstance(entry, Mapping):
            values = tuple(value for value in list_at(entry, "values") if isinstance(value, str))
            operator = str(entry.get("operator"))
            key = str(entry.get("key"))
            requirements.append(
                NodeSelectorRequirement(key=key, operator=operator, values=values or None)
            )
    if not requirements:
        return None
    converted = NodeSelector(
        node_selector_terms=(NodeSelectorTerm(match_expressions=tuple(requirements)),)
    )
    try:
        validate(converted)
    except ValueError:
        return NodeSelector()  # It selects nothing, as the API server would not have stored it.
    return converted
