"""The closest fit: the smallest change that would make claims fit.

Relaxations and their costs are in `allocator.explain.relaxations`. One relaxation is tried first,
then two, then as many as it takes. Nothing is assumed: every answer comes from the search itself, on
the changed claims, so they fit whenever the change is applied.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.cluster import equivalence
from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Outcome
from allocator.explain.candidate_nodes import candidate_nodes
from allocator.explain.change import Change, ClosestFit
from allocator.explain.relaxation import Applied, Kind, Relaxation
from allocator.explain.relaxations import find_relaxations
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.resource import ResourceClaim

SEARCHES: Final = 1_200
"""Searches of one node each, for one closest fit; about a second."""

MAX_NODES: Final = 16
"""Nodes of a cluster that are tried, one per class, those with the highest score."""

MAX_WITNESSES: Final = 240
"""Further nodes, one per class, on which changed claims must not end the attempt."""

_STEPS: Final = 20_000
_STEPS_PER_SEARCH: Final = 300
"""A search of more steps counts as so many more searches."""
_MAX_RELAXATIONS: Final = 64

Ask = Callable[[Sequence[ResourceClaim]], PendingClaims]
"""Makes claims ready for the search; may raise AttemptFailed."""


def change_of(relaxation: Relaxation, number: int, claims: Sequence[ResourceClaim]) -> Change:
    """Return an option of a relaxation of some claims as a change."""
    option, metadata = relaxation.options[number], claims[relaxation.claim].metadata
    return Change(
        claim=f"{metadata.namespace}/{metadata.name}",
        request=relaxation.request,
        kind=relaxation.kind,
        detail=option.detail,
        cost=option.cost,
        position=relaxation.claim,
        field=relaxation.field,
        amount=option.amount,
        value=option.value,
        taints=option.taints,
    )


def with_option(
    claims: tuple[ResourceClaim, ...], relaxation: Relaxation, number: int
) -> tuple[ResourceClaim, ...]:
    """Return claims with an option of a relaxation applied."""
    claim = claims[relaxation.claim]
    devices = relaxation.options[number].edit(claim.spec.devices)
    changed_claim = replace(claim, spec=replace(claim.spec, devices=devices))
    return (*claims[: relaxation.claim], changed_claim, *claims[relaxation.claim + 1 :])


def least_option(relaxation: Relaxation, fits: Callable[[int], bool]) -> int | None:
    """Return the least option of a relaxation that fits; None if the greatest does not."""
    low, high = -1, len(relaxation.options) - 1
    if not fits(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def find_closest_fit(
    nodes: Sequence[NodeDevices],
    claims: Sequence[ResourceClaim],
    ask: Ask,
    usage: Usage,
    rules: AllocatorOptions,
    *,
    witnesses: Sequence[NodeDevices] = (),
    searches: int = SEARCHES,
) -> ClosestFit | None:
    """Return the smallest change that makes claims fit one of the nodes.

    The changed claims end the attempt on none of the nodes and witnesses, so they fit a cluster that
    has no others.

    Args:
        nodes: The nodes, in order of preference.
        claims: The unallocated claims, which are allocated together.
        ask: A function that resolves claims with the classes and gates of the cluster.
        usage: Devices that are in use; empty for an idle cluster.
        rules: Gates and policies.
        witnesses: Nodes that must not end the attempt; no fit is searched on them.
        searches: The budget; a long search counts as several.

    Returns:
        None when no change was found within the budget.
    """
    trial = _Trial(nodes, witnesses, claims, _Terms(ask, usage, rules), searches)
    try:
        pending = ask(claims)
    except AttemptFailed:
        return None
    if trial.fits({}):
        return trial.answer({})
    relaxations = list(find_relaxations(nodes, pending, usage, rules))[:_MAX_RELAXATIONS]
    relaxations.sort(key=lambda relaxation: relaxation.options[0].cost)
    return (
        _fit_of_one(trial, relaxations) or _two(trial, relaxations) or _several(trial, relaxations)
    )


def closest_fit_now(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    *,
    nodes: Collection[str] | None = None,
    searches: int = SEARCHES,
) -> ClosestFit | None:
    """Return the smallest change that makes claims fit the cluster as it is in use now.

    Args:
        nodes: Only these; None for all.
    """
    return _closest_fit_in(cluster, claims, cluster.usage, nodes, searches)


def closest_fit_when_idle(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    *,
    nodes: Collection[str] | None = None,
    searches: int = SEARCHES,
) -> ClosestFit | None:
    """Return the smallest change that would make claims fit the idle cluster.

    Args:
        nodes: Only these; None for all.
    """
    return _closest_fit_in(cluster, claims, Usage(), nodes, searches)


def _closest_fit_in(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    usage: Usage,
    nodes: Collection[str] | None,
    searches: int,
) -> ClosestFit | None:
    try:
        pending = cluster.resolve(claims)
    except AttemptFailed:
        return None
    # Nodes of one class now are of one class when the cluster is idle.
    examples = cluster.representatives(equivalence.explanation_projection(pending), nodes)
    candidates = candidate_nodes(examples, pending, usage, cluster.options)
    return find_closest_fit(
        candidates[:MAX_NODES],
        claims,
        cluster.resolve,
        usage,
        cluster.options,
        witnesses=candidates[MAX_NODES : MAX_NODES + MAX_WITNESSES],
        searches=searches,
    )


# --- applying relaxations -------------------------------------------------------------------------


class _Terms(NamedTuple):
    """The conditions for the evaluation of changed claims."""

    ask: Ask
    usage: Usage
    rules: AllocatorOptions


class _Trial:
    """Tries changed claims on nodes.

    Attributes:
        left: Searches that may still be made.
    """

    def __init__(
        self,
        nodes: Sequence[NodeDevices],
        witnesses: Sequence[NodeDevices],
        claims: Sequence[ResourceClaim],
        terms: _Terms,
        searches: int,
    ) -> None:
        self._nodes = nodes
        self._witnesses = witnesses
        self._claims = claims
        self._terms = terms
        self.left = searches

    def fits(self, applied_options: Applied) -> bool:
        """Return True if changed claims fit some node; false when the budget is spent."""
        return self.left > 0 and self._node_for(self._changed_claims(applied_options)) is not None

    def answer(self, applied_options: Applied) -> ClosestFit | None:
        """Return changed claims with a node; None if they fit none, or end the attempt."""
        claims = self._changed_claims(applied_options)
        node = self._node_for(claims)
        if node is None or self._ends(claims):
            return None
        by_claim = sorted(applied_options.items(), key=lambda entry: entry[0].claim)
        changes = (change_of(relaxation, number, self._claims) for relaxation, number in by_claim)
        return ClosestFit(changes=tuple(changes), claims=claims, node=node)

    def least(self, relaxation: Relaxation, others: Applied) -> int | None:
        """Return the least option that fits, beside other relaxations; None for none."""
        return least_option(relaxation, lambda number: self.fits({**others, relaxation: number}))

    def _changed_claims(self, applied_options: Applied) -> tuple[ResourceClaim, ...]:
        claims = tuple(self._claims)
        for relaxation, number in applied_options.items():
            claims = with_option(claims, relaxation, number)
        return claims

    def _node_for(self, claims: Sequence[ResourceClaim]) -> str | None:
        """Return the first node that claims fit; None also if a node before it ends the attempt.

        Raises nothing: claims that cannot be evaluated do not fit.
        """
        try:
            pending = self._terms.ask(claims)
            for node in self._nodes:
                if isinstance(self._outcome(node, pending), Plan):
                    return node.node
        except AttemptFailed:
            return None
        return None

    def _ends(self, claims: Sequence[ResourceClaim]) -> bool:
        """Return True if any node, or witness, ends the attempt."""
        try:
            pending = self._terms.ask(claims)
            for node in (*self._nodes, *self._witnesses):
                self._outcome(node, pending)
        except AttemptFailed:
            return True
        return False

    def _outcome(self, node: NodeDevices, pending: PendingClaims) -> Outcome:
        """Return the outcome of the search on a node.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        terms, budget = self._terms, Budget(steps=_STEPS)
        outcome = allocate(node, pending, terms.usage, terms.rules, budget=budget)
        self.left -= 1 + outcome.steps // _STEPS_PER_SEARCH
        return outcome


def _fit_of_one(trial: _Trial, relaxations: Sequence[Relaxation]) -> ClosestFit | None:
    """Return the cheapest single change with its alternative."""
    candidates: list[tuple[int, int, Applied]] = []
    for order, relaxation in enumerate(relaxations):
        if candidates and relaxation.options[0].cost > min(candidates)[0]:
            break
        number = trial.least(relaxation, {})
        if number is not None:
            candidates.append((relaxation.options[number].cost, order, {relaxation: number}))
    best: ClosestFit | None = None
    best_relaxation: Relaxation | None = None
    for cost, _, applied_options in sorted(candidates, key=lambda candidate: candidate[:2]):
        (relaxation,) = applied_options
        if best is None or best_relaxation is None:
            best, best_relaxation = trial.answer(applied_options), relaxation
        elif cost > best.cost or trial.left <= 0:
            break
        elif _is_elsewhere(relaxation, best_relaxation):
            alternative = trial.answer(applied_options)
            if alternative is not None:
                return replace(best, alternative=alternative)
    if best is None or not (best.only_lowers_amounts or best.only_changes_selectors):
        return best
    return replace(best, alternative=_without_constraint(trial, relaxations))


def _without_constraint(trial: _Trial, relaxations: Sequence[Relaxation]) -> ClosestFit | None:
    """Return the fit without the first constraint that it is enough to drop; None without any."""
    for relaxation in relaxations:
        if relaxation.kind is Kind.CONSTRAINT and not relaxation.may_exclude:
            applied_options = {relaxation: len(relaxation.options) - 1}
            answer = trial.answer(applied_options) if trial.fits(applied_options) else None
            if answer is not None:
                return answer
    return None


def _is_elsewhere(relaxation: Relaxation, other: Relaxation) -> bool:
    """Return True if two relaxations are of different requests."""
    places = {(entry.claim, entry.request) for entry in (relaxation, other)}
    return len(places) > 1 and all(request for _, request in places)


def _two(trial: _Trial, relaxations: Sequence[Relaxation]) -> ClosestFit | None:
    """Return the cheapest pair of changes that the budget finds."""
    if _all_applied(trial, relaxations) is None:
        return None
    pairs = sorted(
        combinations(relaxations, 2),
        key=lambda pair: sum(relaxation.options[0].cost for relaxation in pair),
    )
    reserve = trial.left // 3
    best: ClosestFit | None = None
    for first, second in pairs:
        is_dearer = best is not None and first.options[0].cost + second.options[0].cost >= best.cost
        if trial.left < reserve or is_dearer:
            break
        for applied_options in _least_pairs(trial, first, second):
            cost = sum(
                relaxation.options[number].cost for relaxation, number in applied_options.items()
            )
            if best is None or cost < best.cost:
                best = trial.answer(applied_options) or best
    return best


def _least_pairs(trial: _Trial, first: Relaxation, second: Relaxation) -> Iterator[Applied]:
    """Yield the least options of two relaxations that fit together: the least of one, then the least of the other."""
    for leading, following in ((first, second), (second, first)):
        number = trial.least(leading, {following: len(following.options) - 1})
        if number is None:
            return
        least = trial.least(following, {leading: number})
        if least is not None:
            applied_options = {leading: number, following: least}
            yield {first: applied_options[first], second: applied_options[second]}


def _several(trial: _Trial, relaxations: Sequence[Relaxation]) -> ClosestFit | None:
    """Return a minimal set of changes; the most expensive kinds are left out first."""
    applied_options = _all_applied(trial, relaxations)
    if applied_options is None:
        return None
    for relaxation in reversed(list(applied_options)):
        fewer = {key: number for key, number in applied_options.items() if key is not relaxation}
        if trial.fits(fewer):
            applied_options = fewer
    for relaxation in list(applied_options):
        others = {key: number for key, number in applied_options.items() if key is not relaxation}
        number = trial.least(relaxation, others)
        if number is not None:
            applied_options[relaxation] = number
    # Once the budget is spent nothing more can be left out, so the change would not be small.
    return trial.answer(applied_options) if trial.left > 0 else None


def _all_applied(trial: _Trial, relaxations: Sequence[Relaxation]) -> dict[Relaxation, int] | None:
    """Return all relaxations with their last option, if claims fit then; else None."""
    everything = {relaxation: len(relaxation.options) - 1 for relaxation in relaxations}
    relaxing = {
        relaxation: last for relaxation, last in everything.items() if not relaxation.may_exclude
    }
    return next(
        (
            applied_options
            for applied_options in (relaxing, everything)
            if trial.fits(applied_options)
        ),
        None,
    )
