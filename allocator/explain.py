"""Why claims do not fit a node: device by device, request by request.

The search only says that nothing fits. What is told here is found by asking the same search again
about less: each request alone, then ever fewer requests and constraints that together still do not
fit. What is left is a smallest contradiction, and its words are true by construction. Of devices,
the first check that each does not pass is told, in the order in which the search makes them.

Names of another namespace's objects never appear, and texts of claims and drivers are shown in one
line of bounded length.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator import nodeclass
from allocator.cluster import ClassVerdict, Outcome, Verdicts
from allocator.core import binding, counters, node_operations, taints
from allocator.core.inventory import Failure, chain
from allocator.core.model import Asked, Budget, NodeDevices, Plan, Request, Usage
from allocator.core.outcome import AttemptFailed, GaveUp, Reason, Refusal, Shortage, Unfit
from allocator.core.pools import targets
from allocator.core.problem import Problem, Rules, Table, problem
from allocator.core.search import allocate
from allocator.core.unmet import shown, unmet
from kube.api.resource import MAX_RESULTS

STEPS: Final = 400_000
"""What all questions about one node may cost, beside one search for all claims."""

MAX_DETAIL: Final = 512
"""Characters of one detail."""

_MAX_LINES: Final = 5
"""Details of one reason that are told of one request; of more, what they have in common."""
_MIN_COMMON: Final = 3
"""Words that details have in common, to make sense without the rest: `memory ... below 40Gi`."""
_MAX_NAMED: Final = 4
_MAX_REQUESTS: Final = 16
"""Requests that are explained of those that cannot be met alone."""

_STEPS: Final = 20_000
"""What one question about a part of the claims may cost."""


def explained(
    node: NodeDevices, asked: Asked, usage: Usage, rules: Rules, *, steps: int = STEPS
) -> tuple[Shortage, ...]:
    """Return why claims do not fit a node; nothing when they do.

    Args:
        node: What the node can be given.
        asked: The claims, solved together.
        usage: What allocated claims hold.
        rules: Gates and policies.
        steps: What the questions may cost together. With fewer, a combination that is told may be
            larger than it need be.

    Returns:
        Of each request that cannot be met even alone, what rules devices out, most devices first,
        and what is lacking then (with no devices). Where each can be met alone, the same of the
        last request of a smallest combination that cannot. Pools that cannot be used come last.
    """
    return _Explanation(node, asked, usage, rules, steps).shortages()


def told_apart(verdicts: Verdicts, asked: Asked) -> tuple[ClassVerdict, ...]:
    """Return verdicts with classes divided such that all nodes of one are told the same.

    Only values that constraints compare may be another node's: they differ from node to node.
    """
    through = nodeclass.close_up(asked)
    divided: list[ClassVerdict] = []
    for each in verdicts.classes:
        if isinstance(each.outcome, Plan) or len(each.nodes) == 1:
            divided.append(each)
            continue
        looks, alike = verdicts.looks(through), dict[Hashable, list[str]]()
        for name in each.nodes:
            alike.setdefault(looks[name], []).append(name)
        for names in alike.values():
            example = verdicts.devices[names[0]]
            divided.append(msgspec.structs.replace(each, example=example, nodes=tuple(names)))
    return tuple(divided)


class _Item(NamedTuple):
    """A request or a constraint of an attempt, by its place."""

    is_request: bool
    claim: int
    number: int


_Items = tuple[_Item, ...]


class _Explanation:
    """Questions about parts of one attempt on one node, and what they may cost together."""

    def __init__(
        self, node: NodeDevices, asked: Asked, usage: Usage, rules: Rules, steps: int
    ) -> None:
        self._node = node
        self._asked = asked
        self._usage = usage
        self._rules = rules
        self._steps = steps
        requests = sum(map(len, asked.requests))
        # Before the search can look at anything, each device is looked at for each request.
        self._layout = 1 + len(node.devices) * requests // 4

    def shortages(self) -> tuple[Shortage, ...]:
        try:
            found = self._alone() or self._together()
        except AttemptFailed as error:
            found = [general(Reason.ATTEMPT_FAILED, str(error))]
        return (*found, *self._pools()) if found else ()

    # --- which requests --------------------------------------------------------------------------

    def _alone(self) -> list[Shortage]:
        """Explain each request that cannot be met even if it were the only one."""
        found: list[Shortage] = []
        failed = 0
        for item in self._requests():
            if failed < _MAX_REQUESTS and self._is_unfit((item,)):
                failed += 1
                found += self._of((item,))
        return found

    def _together(self) -> list[Shortage]:
        """Explain a smallest part of the claims that does not fit; nothing when all of it does.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        outcome = allocate(self._node, self._asked, self._usage, self._rules)
        if isinstance(outcome, Plan):
            return []
        if isinstance(outcome, GaveUp):
            return [general(Reason.GAVE_UP, outcome.proved)]
        constraints = [
            _Item(is_request=False, claim=claim, number=index)
            for claim, each in enumerate(self._asked.claims)
            for index in range(len(each.spec.devices.constraints or ()))
        ]
        return self._of(self._smallest((*constraints, *self._requests())))

    def _requests(self) -> list[_Item]:
        return [
            _Item(is_request=True, claim=claim, number=index)
            for claim, requests in enumerate(self._asked.requests)
            for index in range(len(requests))
        ]

    def _smallest(self, items: _Items) -> _Items:
        """Return a part that does not fit, of which nothing can be left out, or not for the price."""
        size = max(len(items) // 2, 1)
        while size:
            start = 0
            while start < len(items):
                fewer = items[:start] + items[start + size :]
                if self._is_unfit(fewer):
                    items = fewer
                else:
                    start += size
            size //= 2
        return items

    def _is_unfit(self, items: _Items) -> bool:
        """Return whether it is proved that a part of the claims does not fit."""
        return isinstance(self._outcome(_part(self._asked, items)), Unfit)

    def _outcome(self, asked: Asked) -> Outcome | None:
        """Return how the search ends; None where it is broken off, or would cost too much."""
        if self._steps <= 0:
            return None
        budget = Budget(steps=min(_STEPS, self._steps))
        try:
            outcome = allocate(self._node, asked, self._usage, self._rules, budget=budget)
        except AttemptFailed:
            return None
        finally:
            self._steps -= self._layout
        self._steps -= outcome.steps
        return outcome

    # --- which devices ---------------------------------------------------------------------------

    def _of(self, items: _Items) -> list[Shortage]:
        """Explain the last request of a part of the claims that does not fit."""
        last = max(item for item in items if item.is_request)
        found: list[Shortage] = []
        for alternative in range(len(self._asked.requests[last.claim][last.number])):
            case = _Case(items, last, alternative)
            try:
                found += self._of_alternative(case)
            except AttemptFailed as error:
                part = case.part(self._asked)
                request = part.requests[last.claim][-1][0]
                reason, detail = Reason.ATTEMPT_FAILED, str(error)
                if _wanted(part.requests[last.claim]) > MAX_RESULTS:
                    reason = Reason.LIMIT
                    detail = f"a claim can hold {MAX_RESULTS} devices at most"
                found.append(self._shortage(request, reason, detail))
        return found

    def _of_alternative(self, case: "_Case") -> list[Shortage]:
        """Explain one way to meet the last request.

        Raises:
            AttemptFailed: Even this much cannot be judged.
        """
        attempt = problem(self._node, case.part(self._asked), self._usage, self._rules)
        table = _last_table(attempt, case)
        looked_at = table.listed or range(len(self._node.devices))
        refusals = {
            position: refusal
            for position in looked_at
            if (refusal := self._first(attempt, table, position)) is not None
        }
        # A device with admin access to it, or a share, may serve although it is in use.
        suitable = len(table.listed or self._node.devices) - len(refusals)
        request = table.request
        lines = self._counted(request, refusals.values())
        if not self._node.devices:
            return [self._shortage(request, Reason.NO_DEVICES, "the node has no devices")]
        if table.listed is not None:
            detail = f"all {len(table.listed)} that match are wanted"
            if not table.listed:
                return [*lines, self._shortage(request, Reason.NO_DEVICES, "none matches")]
            if refusals:
                return [*lines, self._shortage(request, Reason.TOO_FEW, detail)]
        elif suitable < table.need:
            detail = f"{suitable} would do, {table.need} are needed"
            closing = [self._shortage(request, Reason.TOO_FEW, detail)] if suitable else []
            return [*lines, *closing]
        free = {position for position in looked_at if position not in refusals}
        return [*lines, *self._of_combination(case, attempt, table, free)]

    def _first(self, attempt: Problem, table: Table, position: int) -> Refusal | None:
        """Return the first check that a device does not pass while nothing is chosen yet."""
        request, published = table.request, self._node.devices[position]
        features = self._rules.features
        try:
            refusal = binding.refusal(published.device, features)
            if refusal is not None:
                return refusal
            verdict = chain(request.expressions).verdict(published)
            if isinstance(verdict, Failure):
                return Refusal(reason=Reason.SELECTOR, detail=verdict.message)
            if not verdict:
                detail = unmet(request.expressions, published)
                return Refusal(reason=Reason.SELECTOR, detail=detail)
            if not targets(published, self._node):
                return Refusal(reason=Reason.NODE_SELECTION, detail="for other nodes")
            use = self._usage.of(published.id)
            if use is not None and use.exclusive and not request.admin:
                return Refusal(reason=Reason.TAKEN, detail="taken")
            return (
                node_operations.refusal(published.slice, self._node.declared_features, features)
                or counters.refusal(published.device, features)
                or taints.refusal(published.device, request.tolerations, features)
                or _enough(attempt, request, position)
                or _refused(attempt, request, position, further_share=False)
            )
        except AttemptFailed as error:
            return Refusal(reason=Reason.ATTEMPT_FAILED, detail=str(error))

    # --- why not together ------------------------------------------------------------------------

    def _of_combination(
        self, case: "_Case", attempt: Problem, table: Table, free: set[int]
    ) -> list[Shortage]:
        """Explain why suitable devices are not enough.

        Args:
            free: Positions of devices that suit the last request by themselves.
        """
        most, plan = self._most(case, table)
        lines = []
        if plan is not None:
            refusals = _refusals_beside(attempt, table, plan, free)
            lines = self._counted(table.request, refusals)
        closing = self._closing(case, attempt, table, most, len(free))
        return [*lines, self._shortage(table.request, closing.reason, closing.detail)]

    def _closing(
        self, case: "_Case", attempt: Problem, table: Table, most: int, suitable: int
    ) -> Refusal:
        """Return what is wrong with the combination as a whole.

        Args:
            most: Devices that the last request can have beside the others.
            suitable: Devices that would do for it if nothing else were chosen.
        """
        bound = attempt.hopeless()
        if bound is not None and bound.reason is Reason.CONSTRAINT:
            return bound
        if case.has_constraints:
            return self._constrained(case, table, most)
        if len(case.requests) > 1:
            return self._competing(case, attempt)
        detail = f"{most} of {suitable} that would do go together, {table.need} are needed"
        if table.listed is not None:
            detail = f"all {table.need} that match are wanted, and they do not go together"
        return Refusal(reason=Reason.COMBINATION, detail=detail)

    def _most(self, case: "_Case", table: Table) -> tuple[int, Plan | None]:
        """Return how many devices the last request can have beside the others, and how."""
        least, most = 0, table.need if table.listed is None else 1
        best: Outcome | None = self._outcome(case.part(self._asked, count=0))
        while most - least > 1:
            middle = (least + most) // 2
            outcome = self._outcome(case.part(self._asked, count=middle))
            if isinstance(outcome, Plan):
                least, best = middle, outcome
            else:
                most = middle
        return least, best if isinstance(best, Plan) else None

    def _constrained(self, case: "_Case", table: Table, most: int) -> Refusal:
        """Return which constraints stand in the way, where counting does not show it."""
        named = []
        for item in case.items:
            if not item.is_request:
                claim = self._asked.claims[item.claim].spec.devices
                one = (claim.constraints or ())[item.number]
                kind = "the same" if one.match_attribute else "different values of"
                named.append(f"{kind} {one.match_attribute or one.distinct_attribute}")
        detail = f"no suitable devices have {listing(named)}"
        if len(case.requests) > 1:
            detail += f" for {self._named(case)} together"
        elif table.need > 1:
            detail = f"{detail}: the most is {most}, {table.need} are needed"
        return Refusal(reason=Reason.CONSTRAINT, detail=detail)

    def _competing(self, case: "_Case", attempt: Problem) -> Refusal:
        """Return what several requests want together and cannot have."""
        tables = [one[0] for claim in attempt.tables for one in claim if len(one) == 1]
        needed = sum(table.need for table in tables)
        suiting, common = 0, -1
        for table in tables:
            suiting |= table.candidates
            common &= table.candidates
        have = suiting.bit_count()
        if len(tables) == len(case.requests) and needed > have and not suiting & attempt.shareable:
            words = ("both", "either") if len(tables) == 2 else ("all of them", "any of them")
            whom = words[0] if suiting == common else words[1]
            suit = "suits" if have == 1 else "suit"
            detail = f"{self._named(case)} need {needed} devices of the {have} that {suit} {whom}"
        else:
            detail = f"{self._named(case)} can be met, but not together"
        return Refusal(reason=Reason.COMBINATION, detail=detail)

    def _named(self, case: "_Case") -> str:
        """Return the requests of a combination: `requests a and b`."""
        own = self._asked.claims[case.last.claim].metadata.namespace
        several = len({item.claim for item in case.requests}) > 1
        names: list[str] = []
        foreign = 0
        for item in case.requests:
            metadata = self._asked.claims[item.claim].metadata
            request = self._asked.requests[item.claim][item.number][0]
            name = request.parent or request.name
            if metadata.namespace != own:
                foreign += 1
            else:
                names.append(f"{name} of claim {metadata.name}" if several else name)
        if foreign:
            names.append(f"{foreign} of claims in other namespaces")
        return f"requests {listing(names)}"

    # --- words -----------------------------------------------------------------------------------

    def _counted(self, request: Request, refusals: Iterable[Refusal]) -> list[Shortage]:
        """Return refusals of devices with how often each occurs, the most frequent first."""
        counts: dict[Reason, dict[str, int]] = {}
        for refusal in refusals:
            details = counts.setdefault(refusal.reason, {})
            detail = shown(refusal.detail, MAX_DETAIL)
            details[detail] = details.get(detail, 0) + 1
        lines, others = [], []
        for reason, details in counts.items():
            kept = _most_frequent(_merged(details) if reason is Reason.POLICY else details)
            lines += [self._shortage(request, reason, *each) for each in kept.items()]
            left = sum(details.values()) - sum(kept.values())
            if left:
                detail = f"{reason}, {len(details) - len(kept)} other ways"
                others.append(self._shortage(request, reason, detail, left))
        return [*sorted(lines, key=lambda line: -line.devices), *others]

    def _shortage(
        self, request: Request, reason: Reason, detail: str, devices: int = 0
    ) -> Shortage:
        metadata = self._asked.claims[request.claim].metadata
        return Shortage(
            claim=f"{metadata.namespace}/{metadata.name}",
            request=request.full_name,
            refusal=Refusal(reason=reason, detail=shown(detail, MAX_DETAIL)),
            devices=devices,
        )

    def _pools(self) -> Iterator[Shortage]:
        """Yield the pools whose devices nobody is given."""
        for pool in self._node.pools:
            if pool.state is not pool.state.COMPLETE:
                is_invalid = pool.state is pool.state.INVALID
                reason = Reason.POOL_INVALID if is_invalid else Reason.POOL_INCOMPLETE
                why = f": {pool.why}" if pool.why else ""
                yield general(reason, f"pool {pool.id} is {pool.state}{why}")


class _Case(NamedTuple):
    """A part of the claims that does not fit, seen from one alternative of its last request."""

    items: _Items
    last: _Item
    alternative: int

    @property
    def requests(self) -> list[_Item]:
        return sorted(item for item in self.items if item.is_request)

    @property
    def has_constraints(self) -> bool:
        return not all(item.is_request for item in self.items)

    def part(self, asked: Asked, count: int | None = None) -> Asked:
        """Return the part as an attempt of its own, with the last request for fewer devices."""
        if count == 0:
            return _part(asked, tuple(item for item in self.items if item != self.last))
        only = asked.requests[self.last.claim][self.last.number][self.alternative]
        if count is not None:
            only = msgspec.structs.replace(only, count=count)
        return _part(asked, self.items, {self.last: only})


def _part(asked: Asked, items: _Items, instead: Mapping[_Item, Request] | None = None) -> Asked:
    """Return claims with only some of their requests and constraints.

    Args:
        instead: What replaces all alternatives of a request.
    """
    kept = frozenset(items)
    claims, requests = [], []
    for number, (claim, every) in enumerate(zip(asked.claims, asked.requests, strict=True)):
        constraints = tuple(
            constraint
            for index, constraint in enumerate(claim.spec.devices.constraints or ())
            if _Item(is_request=False, claim=number, number=index) in kept
        )
        devices = msgspec.structs.replace(claim.spec.devices, constraints=constraints or None)
        spec = msgspec.structs.replace(claim.spec, devices=devices)
        claims.append(msgspec.structs.replace(claim, spec=spec))
        chosen: list[tuple[Request, ...]] = []
        for index, alternatives in enumerate(every):
            item = _Item(is_request=True, claim=number, number=index)
            if item in kept:
                only = (instead or {}).get(item)
                these = alternatives if only is None else (only,)
                at = len(chosen)
                chosen.append(tuple(msgspec.structs.replace(one, index=at) for one in these))
        requests.append(tuple(chosen))
    return Asked(claims=tuple(claims), requests=tuple(requests))


def _last_table(attempt: Problem, case: _Case) -> Table:
    return attempt.tables[case.last.claim][-1][0]


def _wanted(requests: Iterable[Sequence[Request]]) -> int:
    """Return how many devices requests of a claim want at least, those of mode All aside."""
    return sum(min(one.count for one in alternatives) for alternatives in requests)


def _enough(attempt: Problem, request: Request, position: int) -> Refusal | None:
    """Return why a device's whole capacity is not enough.

    Raises:
        AttemptFailed: The amounts cannot be judged.
    """
    if attempt.capacity is None:
        return None
    static = attempt.capacity.static(request, position)
    return static if isinstance(static, Refusal) else None


def _refused(
    attempt: Problem, request: Request, position: int, *, further_share: bool
) -> Refusal | None:
    """Return the first rule about combinations that a device would break now.

    Raises:
        AttemptFailed: A rule cannot be judged.
    """
    further = further_share or bool(attempt.shared >> position & 1)
    for tracker in attempt.trackers:
        refusal = tracker.refusal(request, position, further_share=further)
        if refusal is not None:
            return refusal
    return None


def _refusals_beside(
    attempt: Problem, table: Table, plan: Plan, free: Iterable[int]
) -> list[Refusal]:
    """Return why no further device can be had beside those of a plan.

    Args:
        table: Of the last request.
        plan: For the same requests, the last perhaps with fewer devices, or none in mode All.
        free: Positions of devices that would do if nothing else were chosen.
    """
    chosen = _replayed(attempt, plan)
    owners = {position: one for one, position, _ in chosen}
    found = []
    for position in sorted(free):
        refusal = _beside(attempt, table.request, position, owners)
        if refusal is not None:
            found.append(refusal)
        elif table.listed is not None:
            # All are wanted, so each is chosen as long as it goes with those before it.
            further = bool(attempt.shared >> position & 1) or position in owners
            if _is_chosen(attempt, table.request, position, further_share=further):
                chosen.append((table.request, position, further))
    for one, position, further in reversed(chosen):
        for tracker in reversed(attempt.trackers):
            tracker.undo(one, position, further_share=further)
    return found


def _replayed(attempt: Problem, plan: Plan) -> list[tuple[Request, int, bool]]:
    """Choose the devices of a plan; return request, position and `further_share` of each."""
    named = {
        (table.request.claim, table.request.full_name): table.request
        for claim in attempt.tables
        for alternatives in claim
        for table in alternatives
    }
    chosen: list[tuple[Request, int, bool]] = []
    used = attempt.shared
    for choice in (choice for choices in plan.choices for choice in choices):
        one = named.get((choice.request.claim, choice.request.full_name))
        position = attempt.node.positions[choice.device.id]
        further = bool(used & attempt.shareable & 1 << position)
        if one is not None and _is_chosen(attempt, one, position, further_share=further):
            chosen.append((one, position, further))
            used |= 1 << position
    return chosen


def _beside(
    attempt: Problem, request: Request, position: int, owners: Mapping[int, Request]
) -> Refusal | None:
    """Return why a device cannot be had, too; None when it can, or when it is had already."""
    owner, can_share = owners.get(position), attempt.shareable >> position & 1
    if owner is not None and not can_share and not request.admin:
        if owner is request:
            return None
        return Refusal(reason=Reason.TAKEN, detail=f"wanted for {_whom(attempt, owner, request)}")
    try:
        return _refused(attempt, request, position, further_share=owner is not None)
    except AttemptFailed as error:
        return Refusal(reason=Reason.ATTEMPT_FAILED, detail=str(error))


def _whom(attempt: Problem, owner: Request, asking: Request) -> str:
    """Return who else wants a device, without names of another namespace."""
    if owner.claim == asking.claim:
        return f"request {owner.full_name}"
    theirs = attempt.asked.claims[owner.claim].metadata
    if theirs.namespace != attempt.asked.claims[asking.claim].metadata.namespace:
        return "a claim in another namespace"
    return f"claim {theirs.name}"


def _is_chosen(attempt: Problem, request: Request, position: int, *, further_share: bool) -> bool:
    """Choose a device; false, and nothing changes, when some rule does not allow it."""
    for number, tracker in enumerate(attempt.trackers):
        if not tracker.add(request, position, further_share=further_share):
            for done in reversed(attempt.trackers[:number]):
                done.undo(request, position, further_share=further_share)
            return False
    return True


def _most_frequent(details: Mapping[str, int]) -> Mapping[str, int]:
    """Return some details of one reason, or what all have in common where there are many.

    Args:
        details: Each with its number of devices.
    """
    if len(details) <= _MAX_LINES:
        return details
    common = _in_common([detail.split(" ") for detail in details])
    if common:
        return {common: sum(details.values())}
    return dict(sorted(details.items(), key=lambda entry: -entry[1])[:_MAX_LINES])


def _merged(details: Mapping[str, int]) -> Mapping[str, int]:
    """Return details with those as one that differ in one word, such as the name of the device.

    >>> _merged({"device a refuses x": 1, "device b refuses x": 2, "device c refuses y": 1})
    {'device c refuses y': 1, 'device ... refuses x': 3}
    """
    without: dict[str, list[str]] = {}
    for detail in details:
        words = detail.split(" ")
        for place in range(len(words)):
            text = " ".join([*words[:place], "...", *words[place + 1 :]])
            without.setdefault(text, []).append(detail)
    merged = dict(details)
    for text, every in without.items():
        alike = [detail for detail in every if detail in merged]
        if len(alike) > 1:
            merged[text] = sum(merged.pop(detail) for detail in alike)
    return merged


def _in_common(texts: Sequence[Sequence[str]]) -> str:
    """Return words with which all of several different texts begin and end; empty for too few.

    >>> _in_common([["root", "is", "a,", "not", "x"], ["root", "is", "b,", "not", "x"]])
    'root is ..., not x'
    """
    first, shortest = texts[0], min(map(len, texts))
    begin = 0
    while begin < shortest and all(text[begin] == first[begin] for text in texts):
        begin += 1
    end = 0
    while begin + end < shortest and all(text[-1 - end] == first[-1 - end] for text in texts):
        end += 1
    marks = {text[len(text) - end - 1][-1:] for text in texts if begin + end < len(text)}
    mark = marks.pop() if len(marks) == 1 and marks <= {",", ";"} else ""
    words = [*first[:begin], f"...{mark}", *first[len(first) - end :]]
    return " ".join(words) if begin + end >= _MIN_COMMON else ""


def general(reason: Reason, detail: str) -> Shortage:
    """Return a reason that is about no request."""
    refusal = Refusal(reason=reason, detail=shown(detail, MAX_DETAIL))
    return Shortage(claim="", request="", refusal=refusal)


def listing(names: Sequence[str]) -> str:
    """Return names for people: `a, b and c`."""
    named = list(names)
    if len(named) > _MAX_NAMED:
        named = [*named[: _MAX_NAMED - 1], f"{len(named) - _MAX_NAMED + 1} more"]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
