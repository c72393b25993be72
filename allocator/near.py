"""The nearest miss: the smallest change to claims with which they would fit.

What can be changed, and what it costs, is in `allocator.dials`. One dial is turned at first, then
two, then as many as it takes. Nothing is taken for granted: every answer comes from the search
itself, on the changed claims, so applying it fits, always.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator import nodeclass
from allocator.cluster import Cluster, Outcome
from allocator.core.inventory import Chain
from allocator.core.model import Asked, Budget, NodeDevices, Plan, Usage
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules
from allocator.core.search import allocate
from allocator.core.unmet import shown
from allocator.dials import Dial, Kind, Turned, class_chain, dials
from kube.api.resource import MAX_RESULTS, ResourceClaim

SEARCHES: Final = 1_200
"""Searches, each of one node, that an answer may cost; about a second."""

MAX_NODES: Final = 16
"""Nodes of a cluster that are tried, one per class, the most promising ones."""

MAX_WITNESSES: Final = 240
"""Further nodes, one per class, that an answer must not make end the attempt."""

_STEPS: Final = 20_000
_STEPS_PER_SEARCH: Final = 300
"""A search of more steps counts as so many more searches."""
_MAX_TOLD: Final = 4
_MAX_DIALS: Final = 64

Ask = Callable[[Sequence[ResourceClaim]], Asked]
"""Makes claims ready for the search; may raise AttemptFailed."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a claim.

    Attributes:
        claim: `namespace/name`.
        request: `name`, or `parent/name` of an alternative; empty for a constraint.
        detail: `count 2 instead of 3`.
        cost: See `allocator.dials`.
    """

    claim: str
    request: str
    kind: Kind
    detail: str
    cost: int


class NearestMiss(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that fit, and what was changed to that end.

    Attributes:
        changes: By claim; none where they fit as they are.
        claims: All of the attempt, in order, changed; put in the place of the old ones they fit.
        node: Which they fit.
    """

    changes: tuple[Change, ...]
    claims: tuple[ResourceClaim, ...]
    node: str

    @property
    def cost(self) -> int:
        """The sum of what the changes cost."""
        return sum(change.cost for change in self.changes)

    @property
    def detail(self) -> str:
        """What would fit where: `count 2 instead of 3 would fit node n1`."""
        if not self.changes:
            return f"what is asked for would fit node {shown(self.node)} as it is"
        names_claim = len(self.claims) > 1
        places = {(change.claim, change.request) for change in self.changes}
        names_request = len(places) > 1 or any(
            len(claim.spec.devices.requests or ()) > 1 for claim in self.claims
        )
        words = []
        for change in self.changes[:_MAX_TOLD]:
            is_named = change.request and (names_request or "/" in change.request)
            of = f" for request {change.request}" if is_named else ""
            of += f" of claim {change.claim}" if names_claim else ""
            words.append(shown(change.detail + of, 220))
        more = len(self.changes) - len(words)
        words += [f"{more} more change{'' if more == 1 else 's'}"] if more else []
        return f"{', and '.join(words)} would fit node {shown(self.node)}"


def nearest_miss(
    nodes: Sequence[NodeDevices],
    claims: Sequence[ResourceClaim],
    ask: Ask,
    usage: Usage,
    rules: Rules,
    *,
    witnesses: Sequence[NodeDevices] = (),
    searches: int = SEARCHES,
) -> NearestMiss | None:
    """Return the smallest change to claims with which they fit one of the nodes.

    Neither nodes nor witnesses end the attempt of the changed claims, so they fit wherever these
    are all there is.

    Args:
        nodes: In order of preference.
        claims: Not allocated, solved together.
        ask: With the classes and gates that hold.
        usage: What allocated claims hold; none of it tells what would fit an emptied cluster.
        rules: Gates and policies.
        witnesses: Nodes on which nothing is tried.
        searches: What the answer may cost; a long search counts as several.

    Returns:
        None when no change was found, or none for the price.
    """
    trial = _Trial(nodes, witnesses, claims, _Terms(ask, usage, rules), searches)
    try:
        asked = ask(claims)
    except AttemptFailed:
        return None
    if trial.fits({}):
        return trial.answer({})
    found = list(dials(nodes, asked, usage, rules))[:_MAX_DIALS]
    found.sort(key=lambda dial: dial.settings[0].cost)
    return _one(trial, found) or _two(trial, found) or _several(trial, found)


def nearest_now(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    *,
    nodes: Collection[str] | None = None,
    searches: int = SEARCHES,
) -> NearestMiss | None:
    """Return the smallest change with which claims fit the cluster as it is used now.

    Args:
        nodes: Only these; None for all.
    """
    return _nearest_in(cluster, claims, cluster.usage, nodes, searches)


def nearest_when_empty(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    *,
    nodes: Collection[str] | None = None,
    searches: int = SEARCHES,
) -> NearestMiss | None:
    """Return the smallest change with which claims would fit if nothing were allocated.

    Args:
        nodes: Only these; None for all.
    """
    return _nearest_in(cluster, claims, Usage(), nodes, searches)


def _nearest_in(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    usage: Usage,
    nodes: Collection[str] | None,
    searches: int,
) -> NearestMiss | None:
    try:
        asked = cluster.ask(claims)
    except AttemptFailed:
        return None
    # Nodes that are used alike are told apart no further when nothing is used.
    examples = cluster.examples(nodeclass.close_up(asked), nodes)
    sites = _sites(examples, asked, usage, cluster.rules)
    return nearest_miss(
        sites[:MAX_NODES],
        claims,
        cluster.ask,
        usage,
        cluster.rules,
        witnesses=sites[MAX_NODES : MAX_NODES + MAX_WITNESSES],
        searches=searches,
    )


# --- turning dials --------------------------------------------------------------------------------


class _Terms(NamedTuple):
    """By what changed claims are judged."""

    ask: Ask
    usage: Usage
    rules: Rules


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

    def fits(self, turned: Turned) -> bool:
        """Return whether changed claims fit some node; false when the price is spent."""
        return self.left > 0 and self._node_for(self._changed(turned)) is not None

    def answer(self, turned: Turned) -> NearestMiss | None:
        """Return changed claims with a node; None where they fit none, or end the attempt."""
        claims = self._changed(turned)
        node = self._node_for(claims)
        if node is None or self._ends(claims):
            return None
        changes = []
        for dial, number in sorted(turned.items(), key=lambda each: each[0].claim):
            setting, metadata = dial.settings[number], self._claims[dial.claim].metadata
            changes.append(
                Change(
                    claim=f"{metadata.namespace}/{metadata.name}",
                    request=dial.request,
                    kind=dial.kind,
                    detail=setting.detail,
                    cost=setting.cost,
                )
            )
        return NearestMiss(changes=tuple(changes), claims=claims, node=node)

    def least(self, dial: Dial, beside: Turned) -> int | None:
        """Return the least setting of a dial that fits, beside other dials; None for none."""
        low, high = -1, len(dial.settings) - 1
        if not self.fits({**beside, dial: high}):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits({**beside, dial: middle}):
                high = middle
            else:
                low = middle
        return high

    def _changed(self, turned: Turned) -> tuple[ResourceClaim, ...]:
        claims = list(self._claims)
        for dial, number in turned.items():
            claim = claims[dial.claim]
            devices = dial.settings[number].edit(claim.spec.devices)
            claims[dial.claim] = replace(claim, spec=replace(claim.spec, devices=devices))
        return tuple(claims)

    def _node_for(self, claims: Sequence[ResourceClaim]) -> str | None:
        """Return the first node that claims fit; None also where a node before it ends the attempt.

        Raises nothing: what cannot be judged does not fit.
        """
        try:
            asked = self._terms.ask(claims)
            for node in self._nodes:
                if isinstance(self._outcome(node, asked), Plan):
                    return node.node
        except AttemptFailed:
            return None
        return None

    def _ends(self, claims: Sequence[ResourceClaim]) -> bool:
        """Return whether any node, or witness, ends the attempt."""
        try:
            asked = self._terms.ask(claims)
            for node in (*self._nodes, *self._witnesses):
                self._outcome(node, asked)
        except AttemptFailed:
            return True
        return False

    def _outcome(self, node: NodeDevices, asked: Asked) -> Outcome:
        """Return how the search ends on a node.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        terms, budget = self._terms, Budget(steps=_STEPS)
        outcome = allocate(node, asked, terms.usage, terms.rules, budget=budget)
        self.left -= 1 + outcome.steps // _STEPS_PER_SEARCH
        return outcome


def _one(trial: _Trial, every: Sequence[Dial]) -> NearestMiss | None:
    """Return the cheapest single change."""
    found: list[tuple[int, int, Turned]] = []
    for order, dial in enumerate(every):
        if found and dial.settings[0].cost >= min(found)[0]:
            break
        number = trial.least(dial, {})
        if number is not None:
            found.append((dial.settings[number].cost, order, {dial: number}))
    answers = (trial.answer(turned) for _, _, turned in sorted(found, key=lambda one: one[:2]))
    return next((answer for answer in answers if answer is not None), None)


def _two(trial: _Trial, every: Sequence[Dial]) -> NearestMiss | None:
    """Return a pair of changes, the cheapest kinds first."""
    if _all_turned(trial, every) is None:
        return None
    pairs = sorted(combinations(every, 2), key=lambda pair: sum(d.settings[0].cost for d in pair))
    reserve = trial.left // 3
    for first, second in pairs:
        if trial.left < reserve:
            return None
        number = trial.least(first, {second: len(second.settings) - 1})
        if number is None:
            continue
        other = trial.least(second, {first: number})
        answer = trial.answer({first: number, second: other}) if other is not None else None
        if answer is not None:
            return answer
    return None


def _several(trial: _Trial, every: Sequence[Dial]) -> NearestMiss | None:
    """Return changes of which none can be left out, the most expensive kinds left out first."""
    turned = _all_turned(trial, every)
    if turned is None:
        return None
    for dial in reversed(list(turned)):
        fewer = {each: number for each, number in turned.items() if each is not dial}
        if trial.fits(fewer):
            turned = fewer
    for dial in list(turned):
        beside = {each: number for each, number in turned.items() if each is not dial}
        number = trial.least(dial, beside)
        if number is not None:
            turned[dial] = number
    # When the price is spent nothing more can be left out, and the change is no small one.
    return trial.answer(turned) if trial.left > 0 else None


def _all_turned(trial: _Trial, every: Sequence[Dial]) -> dict[Dial, int] | None:
    """Return all dials turned as far as they go, where claims fit then; None where nothing helps."""
    everything = {dial: len(dial.settings) - 1 for dial in every}
    relaxing = {dial: last for dial, last in everything.items() if not dial.may_exclude}
    return next((turned for turned in (relaxing, everything) if trial.fits(turned)), None)


# --- which nodes ----------------------------------------------------------------------------------


def _sites(
    nodes: Iterable[NodeDevices], asked: Asked, usage: Usage, rules: Rules
) -> list[NodeDevices]:
    """Return one node of each class, those with the most devices that could serve first.

    A change never looks at more of a device than the claims do, so what holds of one node of a
    class holds of all.
    """
    through = nodeclass.close_up(asked)
    requests = [one for claim in asked.requests for every in claim for one in every]
    chains = list(dict.fromkeys(map(class_chain, requests)))
    seen: dict[Hashable, NodeDevices] = {}
    for node in nodes:
        uses = [
            (number, nodeclass.use(pool, held, rules))
            for number, pool in enumerate(node.pools)
            if (held := usage.pools.get(pool.id))
        ]
        look = (nodeclass.fixed(node, rules), tuple(uses), nodeclass.seen(node, through))
        seen.setdefault(look, node)
    return sorted(seen.values(), key=lambda node: (-_promise(node, chains, usage), node.node))


def _promise(node: NodeDevices, chains: Iterable[Chain], usage: Usage) -> int:
    """Return how many devices of the classes nobody holds alone."""
    free = [
        each for each in node.devices if (use := usage.of(each.id)) is None or not use.exclusive
    ]
    return sum(min(sum(of.verdict(one) is True for one in free), MAX_RESULTS) for of in chains)
