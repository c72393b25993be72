"""Reasons of nodes for a pod or claim that was not placed, for people and scripts.

To explain a failure takes longer than to find it, so what it depends on is kept as values
(`FailedAttempt`), and explained on request.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import ClassVerdict, Verdicts
from allocator.explain.change import ClosestFit
from allocator.explain.node import divide_classes
from allocator.explain.other_devices import is_for_others
from allocator.explain.wording import describe_devices
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed, BudgetExhausted, Reason, Shortage
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions

MAX_EXPLAINED: Final = 128
"""Classes of nodes that are explained of one failure; each takes some milliseconds."""

_NO_SUCH_DEVICE: Final = frozenset({Reason.SELECTOR, Reason.NO_DEVICES})

Explain = Callable[[NodeDevices, PendingClaims, Usage, AllocatorOptions], tuple[Shortage, ...]]
"""Returns why claims do not fit a node, request by request."""


class NodeReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason a node is rejected.

    Attributes:
        code: A `Reason`, or one of `allocator.pods.claims`.
        count: Devices that are rejected for it; 0 where it is not about devices.
        claim: The claim that it is about, with which the message begins; empty where it is about none.
        request: The request of that claim.
    """

    code: str
    message: str
    count: int = 0
    claim: str = ""
    request: str = ""

    @property
    def detail(self) -> str:
        """Return the message without the names of claim and request."""
        return self.message.removeprefix(_place(self.claim, self.request))


class NodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one node; `score` is 0 to 100, and 0 if it does not fit."""

    name: str
    fits: bool
    score: int = 0
    reasons: tuple[NodeReason, ...] = ()


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with the same reasons, sorted by name."""

    nodes: tuple[str, ...]
    reasons: tuple[NodeReason, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A pod or claim that was not placed.

    Attributes:
        title: `Pod namespace/name`.
        summary: A sentence on the failure of a group, whose nodes are about one of its pods; empty for
            a pod or a claim.
        event: The message of kube-scheduler's event, without preemption; None where the scheduler does
            not come to evaluate all nodes, as when a claim is missing.
        groups: Nodes by their reasons, those first that have devices of the requested kind, those last
            that have none of a requested class, then the largest group first; None where it was not explained.
        closest_fit: The smallest change to its claims with which it would fit now.
        closest_fit_when_idle: The smallest change with which it would fit if nothing were
            allocated.
        advice: Changes that help beside those to its claims, in sentences.
    """

    title: str
    summary: str = ""
    event: str | None = None
    groups: tuple[NodeGroup, ...] | None = None
    closest_fit: ClosestFit | None = None
    closest_fit_when_idle: ClosestFit | None = None
    advice: tuple[str, ...] = ()

    def of_same_kinds(self) -> "Failure":
        """Return the failure without closest fits of other kinds of devices."""
        fits = (self.closest_fit, self.closest_fit_when_idle)
        now, idle = (fit if fit is not None and fit.keeps_kinds else None for fit in fits)
        return msgspec.structs.replace(self, closest_fit=now, closest_fit_when_idle=idle)

    @property
    def helpful_fits(self) -> tuple[ClosestFit | None, ClosestFit | None]:
        """The closest fit now, and that of the idle cluster if it is closer.

        To wait is better than to ask for another kind of devices.
        """
        now, idle = self.closest_fit, self.closest_fit_when_idle
        if idle is None or (now is not None and idle.cost >= now.cost):
            return now, None
        if now is not None and not idle.changes and not now.keeps_kinds:
            return None, idle
        return now, idle


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """All that the explanation of a failure depends on.

    Attributes:
        excluded: Results of nodes that were rejected before any device was evaluated, and of all
            nodes where the attempt ended on all of them.
        evaluated: The verdicts on the other nodes, with the claims they are about.
        group_reason: The reason of the group for whose sake the pod is not placed; None for a pod or a
            claim on its own. It is that of nodes which would take the pod.
        event: The event of `Failure`.
        usage: Devices that were in use then.
        rules: The rules of the scheduler that tried.
        advice: The advice of `Failure`.
    """

    title: str
    group_reason: NodeReason | None = None
    event: str | None = None
    excluded: Mapping[str, NodeResult] = msgspec.field(default_factory=dict)
    evaluated: tuple[tuple[Verdicts, PendingClaims], ...] = ()
    usage: Usage = Usage()
    rules: AllocatorOptions = AllocatorOptions()
    closest_fit: ClosestFit | None = None
    closest_fit_when_idle: ClosestFit | None = None
    advice: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """As in `Failure`."""
        return "" if self.group_reason is None else self.group_reason.message

    def node_results(self, explain: Explain) -> tuple[NodeResult, ...]:
        """Return the results of all nodes, by name."""
        results = dict(self.excluded)
        for verdicts, pending in self.evaluated:
            results |= {
                result.name: result
                for result in explain_nodes(verdicts, pending, self.usage, self.rules, explain)
            }
        if self.group_reason is not None:
            for name, result in results.items():
                if result.fits:
                    results[name] = NodeResult(name=name, fits=False, reasons=(self.group_reason,))
        return tuple(results[name] for name in sorted(results))

    def failure(self, results: Iterable[NodeResult], cluster: Cluster) -> Failure:
        """Return the failure with nodes grouped by their reasons."""
        nodes: dict[tuple[NodeReason, ...], list[str]] = {}
        for result in results:
            nodes.setdefault(result.reasons, []).append(result.name)
        groups = [
            NodeGroup(nodes=tuple(names), reasons=reasons) for reasons, names in nodes.items()
        ]
        groups.sort(key=lambda group: (self._rank(group, cluster), -len(group.nodes)))
        return Failure(
            title=self.title,
            summary=self.summary,
            event=self.event,
            groups=tuple(groups),
            closest_fit=self.closest_fit,
            closest_fit_when_idle=self.closest_fit_when_idle,
            advice=self.advice,
        )

    def _rank(self, group: NodeGroup, cluster: Cluster) -> int:
        """Return the rank of a group: 2 for nodes without a device of a requested class."""
        if self.evaluated and all(
            is_for_others(cluster.node_devices(name), pending)
            for name in group.nodes
            for _, pending in self.evaluated
        ):
            return 2
        return int(all(reason.code in _NO_SUCH_DEVICE for reason in group.reasons))


def explain_nodes(
    verdicts: Verdicts,
    pending: PendingClaims,
    usage: Usage,
    rules: AllocatorOptions,
    explain: Explain,
) -> Iterator[NodeResult]:
    """Yield the results of nodes; each class is explained once, the largest first."""
    divided_classes = divide_classes(verdicts, pending)
    largest = sorted(divided_classes, key=lambda verdict: (-len(verdict.nodes), min(verdict.nodes)))
    for number, verdict in enumerate(largest):
        fits = isinstance(verdict.outcome, Plan)
        reasons: tuple[NodeReason, ...] = ()
        if not fits and number < MAX_EXPLAINED:
            reasons = _reasons(verdict, pending, usage, rules, explain)
        elif not fits:
            reasons = (NOT_EXPLAINED,)
        score = verdict.score if fits else 0
        for node in verdict.nodes:
            yield NodeResult(name=node, fits=fits, score=score, reasons=reasons)


def abort_nodes(nodes: Iterable[str], error: AttemptFailed) -> dict[str, NodeResult]:
    """Return the results of all nodes for an attempt that ended on all of them."""
    reasons = (NodeReason(code=Reason.ATTEMPT_FAILED, message=str(error)),)
    return {name: NodeResult(name=name, fits=False, reasons=reasons) for name in nodes}


def _reasons(
    verdict: ClassVerdict,
    pending: PendingClaims,
    usage: Usage,
    rules: AllocatorOptions,
    explain: Explain,
) -> tuple[NodeReason, ...]:
    if isinstance(verdict.outcome, BudgetExhausted):
        return (NodeReason(code=Reason.BUDGET_EXHAUSTED, message=verdict.outcome.progress),)
    shortages = explain(verdict.representative, pending, usage, rules)
    devices = len(verdict.representative.devices)
    return tuple(_reason(shortage, devices) for shortage in shortages) or (_NO_COMBINATION,)


def _reason(shortage: Shortage, devices: int) -> NodeReason:
    rejection = shortage.rejection
    message = describe_devices([(shortage.devices, rejection)], devices)
    return NodeReason(
        code=rejection.reason,
        message=f"{_place(shortage.claim, shortage.request)}{message}",
        count=shortage.devices,
        claim=shortage.claim,
        request=shortage.request if shortage.claim else "",
    )


def _place(claim: str, request: str) -> str:
    """Return the beginning of a message about a request; empty without a claim."""
    return f"claim {claim}, request {request}: " if claim else ""


_NO_COMBINATION: Final = NodeReason(
    code=Reason.JOINTLY_INFEASIBLE, message="no combination of its devices satisfies all requests"
)
NOT_EXPLAINED: Final = NodeReason(
    code=Reason.JOINTLY_INFEASIBLE,
    message=f"does not fit; not explained (limit of {MAX_EXPLAINED} node classes)",
)
