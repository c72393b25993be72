"""Reasons that claims do not fit a node: device by device, request by request.

The search only reports that nothing fits. The reasons are found by running the same search on less:
each request alone, then ever fewer requests and constraints that together still do not fit. What is
left is a minimal conflict, so its description is true by construction. Of a device, the first check
that it does not pass is reported, in the order in which the search makes them.

Names of another namespace's objects never appear, and texts of claims and drivers are shown in one
line of bounded length.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from allocator.cluster import equivalence
from allocator.cluster.verdicts import ClassVerdict, Outcome, Verdicts
from allocator.explain.conflicts import (
    capacity_rejection,
    constraint_rejection,
    evaluation_failure,
    rejections_beside,
)
from allocator.explain.parts import Case, Item, Items, subset_of
from allocator.explain.pools import explain_pools, missing_devices
from allocator.explain.selector import unmet_condition
from allocator.explain.wording import (
    bound_rejection,
    enumerate_names,
    node_shortage,
    reduce_rejections,
)
from allocator.features import binding_conditions as binding
from allocator.features import device_taints as taints
from allocator.features import node_operations
from allocator.features import partitionable_devices as counters
from allocator.model.devices import NodeDevices
from allocator.model.outcome import (
    AttemptFailed,
    BudgetExhausted,
    DoesNotFit,
    Reason,
    RejectionReason,
    Shortage,
    Verb,
)
from allocator.model.plan import Budget, Plan
from allocator.model.pools import targets_node
from allocator.model.requests import PendingClaims, Request
from allocator.model.selectors import SelectorFailure, selector_chain
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions, Attempt, RequestCandidates, lay_out
from allocator.search.search import allocate
from findings.text import count_text
from kube.api.resource import MAX_RESULTS

STEPS: Final = 400_000
"""Search steps for the explanation of one node, beside one search for all claims."""

_MAX_REQUESTS: Final = 16
"""Requests that are explained of those that do not fit even alone."""

_STEPS: Final = 20_000
"""Search steps for one part of the claims."""


def explain_node(
    node: NodeDevices,
    pending: PendingClaims,
    usage: Usage,
    rules: AllocatorOptions,
    *,
    steps: int = STEPS,
) -> tuple[Shortage, ...]:
    """Return the reasons that claims do not fit a node; nothing when they do.

    Args:
        node: The devices of the node.
        pending: The claims, allocated together.
        usage: Devices that are in use.
        rules: Gates and policies.
        steps: The budget of all searches together. With fewer steps, a conflict may not be minimal.

    Returns:
        For each request that does not fit even alone: the reasons against its devices, most devices
        first, then the shortages (with no devices). Where each fits alone: the same for the last
        request of a minimal conflict. Unusable pools come last; first where they are all that a node has.
    """
    return _Explanation(node, pending, usage, rules, steps).shortages()


def first_rejections(
    node: NodeDevices, pending: PendingClaims, usage: Usage, rules: AllocatorOptions
) -> Iterator[tuple[Request, dict[int, RejectionReason | None]]]:
    """Yield each request with its devices by position, and the first check that each does not pass.

    Requests that cannot be laid out are left out; arguments as of `explain_node`.
    """
    explanation = _Explanation(node, pending, usage, rules, STEPS)
    for item in explanation.items():
        for alternative in range(len(pending.requests[item.claim][item.number])):
            try:
                yield explanation.devices_alone(Case((item,), item, alternative))
            except AttemptFailed:
                continue


def divide_classes(verdicts: Verdicts, pending: PendingClaims) -> tuple[ClassVerdict, ...]:
    """Return verdicts with classes divided so that all nodes of one have the same explanation.

    They may still differ in values that constraints compare, which differ from node to node.
    """
    projection = equivalence.explanation_projection(pending)
    divided_verdicts: list[ClassVerdict] = []
    for verdict in verdicts.classes:
        if isinstance(verdict.outcome, Plan) or len(verdict.nodes) == 1:
            divided_verdicts.append(verdict)
            continue
        keys, nodes = verdicts.equivalence_keys(projection), dict[Hashable, list[str]]()
        for name in verdict.nodes:
            nodes.setdefault(keys[name], []).append(name)
        for names in nodes.values():
            example = verdicts.devices[names[0]]
            divided_verdicts.append(
                msgspec.structs.replace(verdict, representative=example, nodes=tuple(names))
            )
    return tuple(divided_verdicts)


class _Explanation:
    """Searches for parts of one attempt on one node, with a common budget."""

    def __init__(
        self,
        node: NodeDevices,
        pending: PendingClaims,
        usage: Usage,
        rules: AllocatorOptions,
        steps: int,
    ) -> None:
        self._node = node
        self._pending = pending
        self._usage = usage
        self._rules = rules
        self._steps = steps
        requests = sum(map(len, pending.requests))
        # A search evaluates each device for each request before it chooses any.
        self._layout = 1 + len(node.devices) * requests // 4

    def shortages(self) -> tuple[Shortage, ...]:
        try:
            shortages = self._alone() or self._together()
        except AttemptFailed as error:
            shortages = [node_shortage(Reason.ATTEMPT_FAILED, str(error))]
        if not shortages:
            return ()
        pools = tuple(explain_pools(self._node))
        # Of a node without devices, they are the cause.
        return (*shortages, *pools) if self._node.devices else (*pools, *shortages)

    # --- which requests --------------------------------------------------------------------------

    def _alone(self) -> list[Shortage]:
        """Explain each request that does not fit even if it were the only one."""
        shortages: list[Shortage] = []
        explained_mask = 0
        for item in self.items():
            if explained_mask < _MAX_REQUESTS and self._is_infeasible((item,)):
                explained_mask += 1
                shortages += self._explain_last((item,))
        return shortages

    def _together(self) -> list[Shortage]:
        """Explain a minimal part of the claims that does not fit; nothing when all of it does.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        outcome = allocate(self._node, self._pending, self._usage, self._rules)
        if isinstance(outcome, Plan):
            return []
        if isinstance(outcome, BudgetExhausted):
            return [node_shortage(Reason.BUDGET_EXHAUSTED, outcome.progress)]
        constraints = [
            Item(is_request=False, claim=number, number=index)
            for number, claim in enumerate(self._pending.claims)
            for index in range(len(claim.spec.devices.constraints or ()))
        ]
        return self._explain_last(self._minimal_conflict((*constraints, *self.items())))

    def devices_alone(self, case: Case) -> tuple[Request, dict[int, RejectionReason | None]]:
        """Return a request with the first rejection of each device, as if it were the only one.

        Raises:
            AttemptFailed: It cannot be laid out.
        """
        attempt = lay_out(self._node, case.part(self._pending), self._usage, self._rules)
        table = _last_table(attempt, case)
        positions = table.all_positions or range(len(self._node.devices))
        return table.request, {
            position: self._first_rejection(attempt, table, position) for position in positions
        }

    def items(self) -> list[Item]:
        """Return the requests of all claims, in order."""
        return [
            Item(is_request=True, claim=claim, number=index)
            for claim, requests in enumerate(self._pending.requests)
            for index in range(len(requests))
        ]

    def _minimal_conflict(self, items: Items) -> Items:
        """Return a part that does not fit, as small as the budget allows."""
        size = max(len(items) // 2, 1)
        while size:
            start = 0
            while start < len(items):
                fewer = items[:start] + items[start + size :]
                if self._is_infeasible(fewer):
                    items = fewer
                else:
                    start += size
            size //= 2
        return items

    def _is_infeasible(self, items: Items) -> bool:
        """Return True if a part of the claims provably does not fit."""
        return isinstance(self._outcome(subset_of(self._pending, items)), DoesNotFit)

    def _outcome(self, pending: PendingClaims) -> Outcome | None:
        """Return the outcome of the search; None if it fails or the budget is spent."""
        if self._steps <= 0:
            return None
        budget = Budget(steps=min(_STEPS, self._steps))
        try:
            outcome = allocate(self._node, pending, self._usage, self._rules, budget=budget)
        except AttemptFailed:
            return None
        finally:
            self._steps -= self._layout
        self._steps -= outcome.steps
        return outcome

    # --- which devices ---------------------------------------------------------------------------

    def _explain_last(self, items: Items) -> list[Shortage]:
        """Explain the last request of a part of the claims that does not fit."""
        last = max(item for item in items if item.is_request)
        shortages: list[Shortage] = []
        for alternative in range(len(self._pending.requests[last.claim][last.number])):
            case = Case(items, last, alternative)
            try:
                shortages += self._explain_alternative(case)
            except AttemptFailed as error:
                part = case.part(self._pending)
                request = part.requests[last.claim][-1][0]
                reason, detail = Reason.ATTEMPT_FAILED, str(error)
                if _least_devices(part.requests[last.claim]) > MAX_RESULTS:
                    reason = Reason.TOO_MANY_DEVICES
                    detail = f"a claim can have at most {MAX_RESULTS} devices"
                shortages.append(self._shortage(request, _whole(reason, detail)))
        return shortages

    def _explain_alternative(self, case: Case) -> list[Shortage]:
        """Explain one alternative of the last request.

        Raises:
            AttemptFailed: Even this part cannot be evaluated.
        """
        attempt = lay_out(self._node, case.part(self._pending), self._usage, self._rules)
        table = _last_table(attempt, case)
        positions = table.all_positions or range(len(self._node.devices))
        rejections = {
            position: rejection
            for position in positions
            if (rejection := self._first_rejection(attempt, table, position)) is not None
        }
        # A device in use may still serve a request with admin access, or have room for a share.
        suitable = len(table.all_positions or self._node.devices) - len(rejections)
        request = table.request
        shortages = self._count(request, rejections.values())
        if not self._node.devices:
            missing = _whole(Reason.NO_DEVICES, f"the node has no {missing_devices(self._node)}")
            return [self._shortage(request, missing)]
        if table.all_positions is not None:
            if not table.all_positions:
                missing = _whole(Reason.NO_DEVICES, "no device matches")
                return [*shortages, self._shortage(request, missing)]
            if rejections:
                detail = f"all {len(table.all_positions)} matching devices requested"
                missing = _whole(Reason.TOO_FEW_DEVICES, detail)
                return [*shortages, self._shortage(request, missing)]
        elif suitable < table.count:
            if not suitable:
                return shortages
            detail = f"only {count_text(suitable, 'suitable device')}, {table.count} requested"
            return [*shortages, self._shortage(request, _whole(Reason.TOO_FEW_DEVICES, detail))]
        suitable_positions = {position for position in positions if position not in rejections}
        return [*shortages, *self._explain_combination(case, attempt, table, suitable_positions)]

    def _first_rejection(
        self, attempt: Attempt, table: RequestCandidates, position: int
    ) -> RejectionReason | None:
        """Return the first check that a device does not pass while nothing is chosen yet."""
        request, device = table.request, self._node.devices[position]
        features = self._rules.features
        try:
            rejection = binding.rejection(device.device, features)
            if rejection is not None:
                return rejection
            verdict = selector_chain(request.expressions).verdict(device)
            if isinstance(verdict, SelectorFailure):
                return RejectionReason(
                    reason=Reason.SELECTOR,
                    verb=Verb.HAVE,
                    subject="selector error",
                    remark=verdict.message,
                )
            if not verdict:
                return unmet_condition(request.expressions, device)
            if not targets_node(device, self._node):
                return _whole(Reason.NODE_SELECTION, "for other nodes")
            use = self._usage.of(device.id)
            if use is not None and use.exclusive and not request.admin:
                return _whole(Reason.ALLOCATED, "in use")
            return (
                node_operations.rejection(device.slice, self._node.declared_features, features)
                or counters.rejection(device.device, features)
                or taints.rejection(device.device, request.tolerations, features)
                or capacity_rejection(attempt, request, position)
                or constraint_rejection(attempt, request, position, further_share=False)
            )
        except AttemptFailed as error:
            return evaluation_failure(error)

    # --- why not together ------------------------------------------------------------------------

    def _explain_combination(
        self, case: Case, attempt: Attempt, table: RequestCandidates, suitable: set[int]
    ) -> list[Shortage]:
        """Explain the lack of suitable combinations of devices.

        Args:
            suitable: Positions of devices that the last request could have by itself.
        """
        most, plan = self._most_devices(case, table)
        shortages = []
        if plan is not None:
            rejections = rejections_beside(attempt, table, plan, suitable)
            shortages = self._count(table.request, rejections)
        missing = self._conflict(case, attempt, table, most, len(suitable))
        return [*shortages, self._shortage(table.request, missing)]

    def _conflict(
        self, case: Case, attempt: Attempt, table: RequestCandidates, most: int, suitable: int
    ) -> RejectionReason:
        """Return the conflict of the combination as a whole.

        Args:
            most: Devices that the last request can have beside the others.
            suitable: Devices that it could have if nothing else were chosen.
        """
        infeasible = attempt.infeasibility()
        if infeasible is not None and infeasible.reason is Reason.CONSTRAINT:
            return infeasible
        if case.has_constraints:
            return self._constraint_conflict(case, table, most)
        if len(case.requests) > 1:
            return self._request_conflict(case, attempt)
        detail = (
            f"only {most} of {count_text(suitable, 'suitable device')} can be used together, "
            f"{table.count} requested"
        )
        if table.all_positions is not None:
            detail = f"all {table.count} matching devices requested, they cannot be used together"
        return _whole(Reason.JOINTLY_INFEASIBLE, detail)

    def _most_devices(self, case: Case, table: RequestCandidates) -> tuple[int, Plan | None]:
        """Return the number of devices for the last request beside the others, and a plan."""
        least, most = 0, table.count if table.all_positions is None else 1
        best: Outcome | None = self._outcome(case.part(self._pending, count=0))
        while most - least > 1:
            middle = (least + most) // 2
            outcome = self._outcome(case.part(self._pending, count=middle))
            if isinstance(outcome, Plan):
                least, best = middle, outcome
            else:
                most = middle
        return least, best if isinstance(best, Plan) else None

    def _constraint_conflict(
        self, case: Case, table: RequestCandidates, most: int
    ) -> RejectionReason:
        """Return the constraints that are in conflict, if counting does not show it."""
        conditions = []
        for item in case.items:
            if not item.is_request:
                devices = self._pending.claims[item.claim].spec.devices
                constraint = (devices.constraints or ())[item.number]
                kind = "the same" if constraint.match_attribute else "different values of"
                attribute = constraint.match_attribute or constraint.distinct_attribute
                conditions.append(f"{kind} {attribute}")
        if len(case.requests) == 1 and table.count > 1:
            detail = (
                f"only {count_text(most, 'suitable device')} can have {enumerate_names(conditions)}, "
                f"{table.count} requested"
            )
            return _whole(Reason.CONSTRAINT, detail)
        detail = f"no suitable devices have {enumerate_names(conditions)}"
        if len(case.requests) > 1:
            detail += f" for {self._request_names(case)}"
        return _whole(Reason.CONSTRAINT, detail)

    def _request_conflict(self, case: Case, attempt: Attempt) -> RejectionReason:
        """Return the total that several requests ask for and cannot have."""
        tables = [
            alternatives[0]
            for claim in attempt.requests
            for alternatives in claim
            if len(alternatives) == 1
        ]
        needed_count = sum(table.count for table in tables)
        suitable = 0
        for table in tables:
            suitable |= table.candidates
        count = suitable.bit_count()
        names = self._request_names(case)
        is_short = needed_count > count and not suitable & attempt.shareable
        if len(tables) == len(case.requests) and is_short:
            detail = (
                f"only {count_text(count, 'suitable device')} for {names}, {needed_count} requested"
            )
        else:
            detail = f"{names} fit separately, but not together"
        return _whole(Reason.JOINTLY_INFEASIBLE, detail)

    def _request_names(self, case: Case) -> str:
        """Return the requests of a combination: `requests a and b`."""
        namespace = self._pending.claims[case.last.claim].metadata.namespace
        has_several_claims = len({item.claim for item in case.requests}) > 1
        names: list[str] = []
        foreign = 0
        for item in case.requests:
            metadata = self._pending.claims[item.claim].metadata
            request = self._pending.requests[item.claim][item.number][0]
            name = request.parent or request.name
            if metadata.namespace != namespace:
                foreign += 1
            else:
                names.append(f"{name} of claim {metadata.name}" if has_several_claims else name)
        if foreign:
            names.append(f"{foreign} of claims in other namespaces")
        return f"requests {enumerate_names(names)}"

    # --- results ---------------------------------------------------------------------------------

    def _count(self, request: Request, rejections: Iterable[RejectionReason]) -> list[Shortage]:
        """Return the reasons with their number of devices, the most frequent first."""
        counts: dict[Reason, dict[RejectionReason, int]] = {}
        for rejection in map(bound_rejection, rejections):
            same = counts.setdefault(rejection.reason, {})
            same[rejection] = same.get(rejection, 0) + 1
        reduced_counts = [reduce_rejections(of_reason) for of_reason in counts.values()]
        kept_counts, others = (
            (
                [(rejection, count) for part in parts for rejection, count in part.items()]
                for parts in zip(*reduced_counts, strict=True)
            )
            if reduced_counts
            else ([], [])
        )
        kept_counts.sort(key=lambda entry: -entry[1])
        return [self._shortage(request, *entry) for entry in (*kept_counts, *others)]

    def _shortage(self, request: Request, rejection: RejectionReason, devices: int = 0) -> Shortage:
        metadata = self._pending.claims[request.claim].metadata
        return Shortage(
            claim=f"{metadata.namespace}/{metadata.name}",
            request=request.full_name,
            rejection=bound_rejection(rejection),
            devices=devices,
        )


def _whole(reason: Reason, detail: str) -> RejectionReason:
    return RejectionReason(reason=reason, subject=detail)


def _last_table(attempt: Attempt, case: Case) -> RequestCandidates:
    return attempt.requests[case.last.claim][-1][0]


def _least_devices(requests: Iterable[Sequence[Request]]) -> int:
    """Return the minimum number of devices for requests of a claim, without those of mode All."""
    return sum(min(request.count for request in alternatives) for alternatives in requests)
