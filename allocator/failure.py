"""What nodes say of something that was not placed, for people and scripts.

Finding out why takes longer than finding out that, so what a failure depends on is kept as values
(`Refused`), and explained when somebody wants to know.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.cluster import ClassVerdict, Verdicts
from allocator.core.model import Asked, NodeDevices, Plan, Usage
from allocator.core.outcome import AttemptFailed, GaveUp, Reason, Shortage
from allocator.core.problem import Rules
from allocator.explain import told_apart
from allocator.near import NearestMiss

MAX_EXPLAINED: Final = 128
"""Classes of nodes whose reasons are looked for, of one failure; an explanation takes some ms."""

Explain = Callable[[NodeDevices, Asked, Usage, Rules], tuple[Shortage, ...]]
"""Says why claims do not fit a node, request by request."""


class NodeReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a node does not do.

    Attributes:
        code: A `Reason`, or one of `allocator.pod_claims`.
        count: Devices that it rules out; 0 where it is about more than devices.
    """

    code: str
    message: str
    count: int = 0


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one node says; `score` is 0 to 100, and 0 where it does not fit."""

    name: str
    fits: bool
    score: int = 0
    reasons: tuple[NodeReason, ...] = ()


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that say the same, sorted by name."""

    nodes: tuple[str, ...]
    reasons: tuple[NodeReason, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A pod or claim that was not placed.

    Attributes:
        title: `Pod namespace/name`.
        groups: What nodes say, those that most say first; None where that was not looked for.
        nearest: The smallest change to its claims with which it would fit now.
        nearest_when_empty: As above, if nothing were allocated.
    """

    title: str
    groups: tuple[Alike, ...] | None = None
    nearest: NearestMiss | None = None
    nearest_when_empty: NearestMiss | None = None


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """All that a failure depends on.

    Attributes:
        refusals: Of nodes that were out before any device was looked at, and of all where the
            attempt ended on all of them.
        judged: What the others were asked, and what they said.
        usage: What was held then.
    """

    title: str
    refusals: Mapping[str, NodeAnswer] = msgspec.field(default_factory=dict)
    judged: tuple[tuple[Verdicts, Asked], ...] = ()
    usage: Usage = Usage()
    nearest: NearestMiss | None = None
    nearest_when_empty: NearestMiss | None = None

    def answers(self, rules: Rules, explain: Explain) -> tuple[NodeAnswer, ...]:
        """Return what every node says, by name."""
        found = dict(self.refusals)
        for verdicts, asked in self.judged:
            found |= {
                each.name: each
                for each in node_answers(verdicts, asked, self.usage, rules, explain)
            }
        return tuple(found[name] for name in sorted(found))

    def failure(self, answers: Iterable[NodeAnswer]) -> Failure:
        """Return it with what nodes say, those together that say the same."""
        nodes: dict[tuple[NodeReason, ...], list[str]] = {}
        for each in answers:
            nodes.setdefault(each.reasons, []).append(each.name)
        groups = [Alike(nodes=tuple(names), reasons=each) for each, names in nodes.items()]
        groups.sort(key=lambda group: -len(group.nodes))
        return Failure(
            title=self.title,
            groups=tuple(groups),
            nearest=self.nearest,
            nearest_when_empty=self.nearest_when_empty,
        )


def node_answers(
    verdicts: Verdicts, asked: Asked, usage: Usage, rules: Rules, explain: Explain
) -> Iterator[NodeAnswer]:
    """Yield what nodes say; each class of them is explained once, the largest first."""
    divided = told_apart(verdicts, asked)
    largest = sorted(divided, key=lambda each: (-len(each.nodes), min(each.nodes)))
    for number, each in enumerate(largest):
        fits = isinstance(each.outcome, Plan)
        reasons: tuple[NodeReason, ...] = ()
        if not fits and number < MAX_EXPLAINED:
            reasons = _reasons(each, asked, usage, rules, explain)
        elif not fits:
            reasons = (NOT_LOOKED_AT,)
        score = each.score if fits else 0
        for node in each.nodes:
            yield NodeAnswer(name=node, fits=fits, score=score, reasons=reasons)


def ended(nodes: Iterable[str], error: AttemptFailed) -> dict[str, NodeAnswer]:
    """Return the answer of all nodes to an attempt that ended on all of them."""
    reasons = (NodeReason(code=Reason.ATTEMPT_FAILED, message=str(error)),)
    return {name: NodeAnswer(name=name, fits=False, reasons=reasons) for name in nodes}


def _reasons(
    verdict: ClassVerdict, asked: Asked, usage: Usage, rules: Rules, explain: Explain
) -> tuple[NodeReason, ...]:
    if isinstance(verdict.outcome, GaveUp):
        return (NodeReason(code=Reason.GAVE_UP, message=verdict.outcome.proved),)
    found = explain(verdict.example, asked, usage, rules)
    return tuple(map(_reason, found)) or (_NO_COMBINATION,)


def _reason(shortage: Shortage) -> NodeReason:
    refusal = shortage.refusal
    where = f"claim {shortage.claim}, request {shortage.request}" if shortage.claim else ""
    message = ": ".join(part for part in (where, refusal.detail) if part)
    return NodeReason(code=refusal.reason, message=message, count=shortage.devices)


_NO_COMBINATION: Final = NodeReason(
    code=Reason.COMBINATION, message="no combination of its devices meets all requests"
)
NOT_LOOKED_AT: Final = NodeReason(
    code=Reason.COMBINATION,
    message=f"does not fit; why was not looked at, after {MAX_EXPLAINED} other kinds of nodes",
)
