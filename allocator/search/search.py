"""Depth-first search for devices in upstream's order, pruned without a change of the outcome.

Claims in order, requests in order, alternatives in order, then each device of a request after the
one before it: the first complete assignment wins. In the terms of constraint satisfaction, the
device slots of requests are the variables, devices are the values, and the order of both is fixed.
Branches that provably contain no solution are pruned (docs/search.md):

* symmetry: a device that is symmetric to one that just failed in the same place
  (`Attempt.find_symmetry_classes`);
* memoisation: a request that failed before in a state with the same residual key (`_failed`);
* conflict-directed backjumping: other devices for a choice that had no part in the failure of a
  later request (`Conflict`), since a further choice never turns a later no into a yes;
* bounds: a request from which on more devices or counters are needed than are available
  (`Demand`).

The first two leave fatal errors where upstream has them. The others look ahead, so they are off for
attempts in which inspecting a device may abort the attempt (`Attempt.may_abort`).

The stack is explicit: 200 claims of 32 devices are deeper than Python's recursion limit.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal, allocateOne and
allocateDevice. P. Prosser, Hybrid algorithms for the constraint satisfaction problem, 1993. ADR 2,
ADR 3, ADR 14.
"""

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from allocator.model.amount_bound import AmountBound
from allocator.model.constraint import Constraint
from allocator.model.devices import NodeDevices, reorder
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions, Attempt, RequestCandidates, lay_out
from allocator.search.bounds import Demand, has_bounds
from allocator.search.frames import (
    AlternativesFrame,
    Conflict,
    DeviceFrame,
    Frame,
    Result,
)
from kube.api.resource import MAX_RESULTS
from kube.cel.scope import STEPS_PER_LOOK, current_scope

DEFAULT_BUDGET: Final = Budget()


def allocate(
    node: NodeDevices,
    pending: PendingClaims,
    usage: Usage,
    options: AllocatorOptions,
    *,
    budget: Budget = DEFAULT_BUDGET,
    order: Sequence[int] | None = None,
    bounds: Sequence[AmountBound] = (),
) -> Plan | DoesNotFit | BudgetExhausted:
    """Choose devices of a node for claims.

    Args:
        node: The devices of the node.
        pending: The claims, allocated together.
        usage: Usage by allocated claims.
        options: Feature gates and policies.
        budget: Maximum cost of the search in one order.
        order: Positions in the order of a strategy; None for upstream's order. Upstream's order is
            also used where the verdict depends on it, and where the strategy's order exhausts the
            budget: then the outcome has the steps of both searches.
        bounds: Bounds on the sums of amounts.

    Raises:
        AttemptFailed: The attempt fails on all nodes.
    """
    attempt = lay_out(node, pending, usage, options, bounds)
    if order is None or attempt.may_abort or attempt.is_order_sensitive:
        return search(attempt, budget)
    outcome = search(lay_out(reorder(node, order), pending, usage, options, bounds), budget)
    if not isinstance(outcome, BudgetExhausted):
        return outcome
    # A strategy must not change whether the claims fit.
    repeated = search(attempt, budget)
    return replace(repeated, steps=outcome.steps + repeated.steps)


def search(attempt: Attempt, budget: Budget) -> Plan | DoesNotFit | BudgetExhausted:
    """Choose devices for the claims of an attempt: the first solution in upstream's order.

    Args:
        attempt: The attempt. Its constraints are in their initial state again afterwards.
        budget: Maximum cost of the search.

    Raises:
        AttemptFailed: An error that fails the attempt on all nodes.
        AnswerInterrupted: The answer took too much time, or nobody waits for it.
    """
    if attempt.infeasibility() is not None:
        return DoesNotFit(invalid_pools=attempt.has_invalid_pools)
    running_search = _Search(attempt, budget.steps)
    try:
        return running_search.run()
    except AttemptFailed as error:
        error.steps = running_search.steps
        raise
    finally:
        running_search.count()


class _Search:
    """The state of one search.

    Attributes:
        steps: Cost so far.
    """

    def __init__(self, attempt: Attempt, steps: int) -> None:
        self._attempt = attempt
        self._limit = steps
        self.steps = attempt.steps
        # The layout has charged its own.
        self._counted = attempt.steps
        self._constraints: tuple[Constraint, ...] = attempt.constraints
        self._stack: list[Frame] = []
        self._choices: list[list[tuple[RequestCandidates, int]]] = [[] for _ in attempt.requests]
        # Masks of the dedicated devices that are chosen: by any claim, and by each claim.
        self._chosen = 0
        self._chosen_by = [0 for _ in attempt.requests]
        self._shares: dict[int, int] = {}
        self._failed: dict[Hashable, Result] = {}
        self._conflict: Conflict | None = None
        self._is_bounded = not attempt.may_abort and has_bounds(attempt)

    @cached_property
    def _demand(self) -> Demand:
        return Demand(self._attempt)

    @cached_property
    def _symmetry_classes(self) -> tuple[int, ...]:
        """The symmetry class of each position: only a device that failed, or a residual key, needs them."""
        return self._attempt.find_symmetry_classes()

    @cached_property
    def _symmetry_masks(self) -> tuple[tuple[int, ...], int]:
        return _group_by_symmetry(self._symmetry_classes)

    def run(self) -> Plan | DoesNotFit | BudgetExhausted:
        """Resume frames until the stack is empty or all claims have their devices."""
        result = self._enter_request(0, 0)
        while result is not Result.SOLVED:
            # Counted in batches, since a look at the clock costs more than a step.
            if self.steps - self._counted >= STEPS_PER_LOOK:
                self.count()
            if self.steps > self._limit:
                self._rewind()
                return BudgetExhausted(steps=self.steps, progress=self._progress())
            if not self._stack:
                return DoesNotFit(invalid_pools=self._attempt.has_invalid_pools, steps=self.steps)
            frame = self._stack[-1]
            if isinstance(frame, DeviceFrame):
                result = self._resume_devices(frame, result)
            else:
                result = self._resume_alternatives(frame, result)
        plan = self._plan()
        self._rewind()
        return plan

    def count(self) -> None:
        """Have the meter in force count the steps since the last time."""
        steps, self._counted = self.steps - self._counted, self.steps
        current_scope().meter.count(steps)

    # --- descend ----------------------------------------------------------------------------------

    def _enter_request(self, claim: int, index: int) -> Result | None:
        """Enter a request; return None if a frame was pushed, else the result."""
        requests = self._attempt.requests
        opens_claim = False
        while claim < len(requests) and index >= len(requests[claim]):
            claim, index, opens_claim = claim + 1, 0, True
        if claim >= len(requests):
            return Result.SOLVED
        # Before the first failure there is nothing to find, and most searches have none.
        key = self._residual_key(claim, index) if self._failed else None
        result = None if key is None else self._failed.get(key)
        if result is None:
            height = len(self._stack)
            result = self._push_request(claim, index, requests[claim][index])
            if result is None:
                self._stack[height].opens_request = True
                self._stack[height].key = key
                self._stack[height].opens_claim = opens_claim
                return None
            if result is Result.SOLVED:
                return result
            key = self._residual_key(claim, index) if key is None else key
            self._failed[key] = result
        self._conflict = Conflict(claim, index, key)
        return Result.FAILED if opens_claim and result is Result.TOO_MANY else result

    def _push_request(
        self, claim: int, index: int, alternatives: tuple[RequestCandidates, ...]
    ) -> Result | None:
        self.steps += 1
        if self._is_bounded and self._demand.exceeds(claim, index, self._chosen):
            return Result.FAILED
        if alternatives[0].request.parent is None:
            return self._enter_slot(claim, alternatives[0], 0, 0)
        self._stack.append(AlternativesFrame(claim, index, alternatives))
        return None

    def _enter_slot(
        self, claim: int, candidates: RequestCandidates, slot: int, start: int
    ) -> Result | None:
        """Enter a device slot of a request; return None if a frame was pushed, else the result.

        Args:
            claim: Index of the claim.
            candidates: The request.
            slot: Number of the device in the request.
            start: First position to try.
        """
        if candidates.all_positions is not None and not candidates.all_positions:
            return Result.FAILED
        if slot >= candidates.count:
            return self._enter_request(claim, candidates.request.index + 1)
        if candidates.count - slot > MAX_RESULTS - len(self._choices[claim]):
            return Result.TOO_MANY
        if candidates.all_positions is not None:
            untried_mask = 1 << candidates.all_positions[slot]
        else:
            # Only later positions: the same devices in another order are no further solution.
            untried_mask = candidates.candidates >> start << start
            # Admin access may use devices of other claims, but none twice in its own claim.
            untried_mask &= ~(self._chosen_by[claim] if candidates.request.admin else self._chosen)
            if not self._attempt.may_abort:
                untried_mask = self._attempt.prune(candidates.request, untried_mask)
                if untried_mask.bit_count() < candidates.count - slot:
                    return Result.FAILED
        self._stack.append(DeviceFrame(claim, candidates, slot, untried_mask))
        return None

    # --- backtrack --------------------------------------------------------------------------------

    def _resume_alternatives(
        self, frame: AlternativesFrame, result: Result | None
    ) -> Result | None:
        """Try the next alternative; `result` is that of the one before, None at first."""
        while True:
            if result is not None and result is not Result.TOO_MANY:
                frame.all_too_many = False
                if self._can_backjump():
                    return self._leave(frame, result, explored=False)
            frame.alternative += 1
            if frame.alternative == len(frame.alternatives):
                failure = Result.TOO_MANY if frame.all_too_many else Result.FAILED
                return self._leave(frame, failure)
            result = self._enter_slot(
                frame.claim, frame.alternatives[frame.alternative], slot=0, start=0
            )
            if result is None or result is Result.SOLVED:
                return result

    def _resume_devices(self, frame: DeviceFrame, result: Result | None) -> Result | None:
        """Try the next device; `result` is that of the one before, None at first."""
        while True:
            if result is not None:
                position = frame.position
                self._revert(frame)
                self._exclude_alike(frame, position)
                # Another device changes neither the size of a claim nor the devices of mode All.
                if result is Result.TOO_MANY or frame.candidates.all_positions is not None:
                    return self._leave(frame, result)
                if self._can_backjump():
                    return self._leave(frame, result, explored=False)
            if not self._choose_next(frame):
                return self._leave(frame, Result.FAILED)
            result = self._enter_slot(
                frame.claim, frame.candidates, slot=frame.slot + 1, start=frame.position + 1
            )
            if result is None or result is Result.SOLVED:
                return result

    def _leave(self, frame: Frame, result: Result, *, explored: bool = True) -> Result:
        """Pop a frame that has failed.

        Args:
            frame: The top of the stack.
            result: Its result.
            explored: All of its values were tried. If not, an earlier conflict still applies.
        """
        self._stack.pop()
        if explored:
            self._conflict = None
        if frame.opens_request:
            # The state is again as it was when the request was entered.
            key = self._residual_key(frame.claim, frame.index) if frame.key is None else frame.key
            self._failed[key] = result
            if explored and result is Result.FAILED:
                self._conflict = Conflict(frame.claim, frame.index, key)
        return Result.FAILED if frame.opens_claim and result is Result.TOO_MANY else result

    def _can_backjump(self) -> bool:
        """Return True if the choice that was just reverted had no part in the current conflict.

        If the request that failed has the same residual key without the choice, it fails for every
        other value of the choice, too.
        """
        conflict = self._conflict
        if conflict is None or self._attempt.may_abort:
            return False
        if self._residual_key(conflict.claim, conflict.request) == conflict.key:
            return True
        self._conflict = None
        return False

    # --- one device -------------------------------------------------------------------------------

    def _choose_next(self, frame: DeviceFrame) -> bool:
        """Choose the next device that all constraints accept; return false if there is none."""
        candidates = frame.candidates
        # The limit counts here, too, since one frame may reject many devices.
        while frame.untried and self.steps <= self._limit:
            # Bit arithmetic finds the next candidate without a visit to the positions between.
            lowest = frame.untried & -frame.untried
            frame.untried ^= lowest
            position = lowest.bit_length() - 1
            if self._is_chosen(frame, lowest):
                continue
            if (
                frame.failed_classes
                and self._symmetry_classes[position] in frame.failed_classes
                and self._is_unchosen(position)
            ):
                continue
            self.steps += 1
            if lowest & candidates.fatal:
                raise AttemptFailed(candidates.failures[position])
            if candidates.all_positions is not None and lowest & candidates.rejected:
                return False
            if self._choose(frame, position):
                return True
            self._exclude_alike(frame, position)
        return False

    def _exclude_alike(self, frame: DeviceFrame, position: int) -> None:
        """Exclude the devices from a frame that are symmetric to one that failed there."""
        if self._is_unchosen(position):
            frame.failed_classes.add(self._symmetry_classes[position])

    def _choose(self, frame: DeviceFrame, position: int) -> bool:
        """Choose one device if every constraint accepts it; otherwise change nothing."""
        request = frame.candidates.request
        can_share = self._attempt.shareable >> position & 1
        further_share = bool(can_share) and (
            position in self._shares or bool(self._attempt.shared >> position & 1)
        )
        if self._lacks_capacity(frame, position, further_share=further_share):
            return False
        for count, constraint in enumerate(self._constraints):
            if not constraint.add(request, position, further_share=further_share):
                for added_constraint in reversed(self._constraints[:count]):
                    added_constraint.remove(request, position, further_share=further_share)
                self._check_all_mode(frame, constraint, position)
                return False
        if can_share:
            self._shares[position] = self._shares.get(position, 0) + 1
        else:
            self._chosen |= 1 << position
            self._chosen_by[frame.claim] |= 1 << position
        self._choices[frame.claim].append((frame.candidates, position))
        frame.position = position
        frame.further_share = further_share
        return True

    def _lacks_capacity(self, frame: DeviceFrame, position: int, *, further_share: bool) -> bool:
        """Return True if a device lacks capacity, if that has to be checked before all else."""
        capacity = self._attempt.capacity_constraint
        # Except in mode All, upstream checks capacity before constraints, whose derived attributes
        # may abort the attempt. If nothing can abort it, the order makes no difference.
        return (
            capacity is not None
            and self._attempt.may_abort
            and frame.candidates.all_positions is None
            and capacity.rejection(frame.candidates.request, position, further_share=further_share)
            is not None
        )

    def _revert(self, frame: DeviceFrame) -> None:
        """Revert the choice of a frame that failed."""
        position, request = frame.position, frame.candidates.request
        self._choices[frame.claim].pop()
        if position in self._shares:
            self._shares[position] -= 1
            if not self._shares[position]:
                del self._shares[position]
        else:
            bit = 1 << position
            self._chosen_by[frame.claim] &= ~bit
            # With admin access, another claim may have chosen the same device, so the bit may stay.
            if not any(mask & bit for mask in self._chosen_by):
                self._chosen &= ~bit
        for constraint in reversed(self._constraints):
            constraint.remove(request, position, further_share=frame.further_share)
        frame.position = -1

    def _check_all_mode(self, frame: DeviceFrame, constraint: Constraint, position: int) -> None:
        # Upstream: a claim whose constraints exclude one of all devices makes no sense.
        if (
            frame.candidates.all_positions is not None
            and constraint is self._attempt.attribute_constraints
        ):
            device = self._attempt.node.devices[position].id
            raise AttemptFailed(
                f"claim {self._attempt.claim_name(frame.claim)}, request "
                f"{frame.candidates.request.name}: cannot add device {device} because a claim "
                "constraint would not be satisfied"
            )

    def _is_chosen(self, frame: DeviceFrame, bit: int) -> bool:
        is_admin = frame.candidates.request.admin
        return bool((self._chosen_by[frame.claim] if is_admin else self._chosen) & bit)

    def _is_unchosen(self, position: int) -> bool:
        return not self._chosen >> position & 1 and position not in self._shares

    # --- states -----------------------------------------------------------------------------------

    def _residual_key(self, claim: int, index: int) -> Hashable:
        """Return everything that the rest of the search depends on, up to symmetry."""
        remaining = self._demand.remaining(claim, index)
        chosen_mask = self._chosen & remaining.positions
        # Which claim has a device only matters for admin access, and only within a claim.
        own = self._chosen_by[claim] & remaining.positions
        symmetric, unique = self._symmetry_masks
        counts = [
            ((chosen_mask & mask).bit_count(), (own & mask).bit_count()) for mask in symmetric
        ]
        size = len(self._choices[claim])
        return (
            claim,
            index,
            # The number of devices of a claim only matters if the claim could exceed its limit.
            size if size > self._demand.slack(claim, index) else 0,
            chosen_mask & unique,
            own & unique,
            tuple(counts),
            # Only that a device is shared counts: the capacity constraint's key has the amounts.
            frozenset([share for share in self._shares if remaining.positions >> share & 1]),
            tuple([constraint.residual_key(remaining) for constraint in self._constraints]),
        )

    def _progress(self) -> str:
        requests = sum(len(claim_requests) for claim_requests in self._attempt.requests)
        return (
            f"the search budget of {self._limit} steps is exhausted; no contradiction was found among "
            f"{len(self._attempt.requests)} claims with {requests} requests on "
            f"{len(self._attempt.node.devices)} devices"
        )

    def _rewind(self) -> None:
        """Revert all choices, so that the constraints are in their initial state."""
        for frame in reversed(self._stack):
            if isinstance(frame, DeviceFrame) and frame.position >= 0:
                self._revert(frame)

    def _plan(self) -> Plan:
        choices = tuple(
            tuple(
                self._attempt.choice(candidates.request, position)
                for candidates, position in of_claim
            )
            for of_claim in self._choices
        )
        alternatives = [[0 for _ in claim_requests] for claim_requests in self._attempt.requests]
        for frame in self._stack:
            if isinstance(frame, AlternativesFrame):
                alternatives[frame.claim][frame.index] = frame.alternative
        return Plan(
            node=self._attempt.node.node,
            choices=choices,
            alternatives=tuple(tuple(of_claim) for of_claim in alternatives),
            steps=self.steps,
        )


def _group_by_symmetry(classes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return a mask per class with several devices, and a mask of all other devices."""
    masks: dict[int, int] = {}
    for position, symmetry_class in enumerate(classes):
        masks[symmetry_class] = masks.get(symmetry_class, 0) | 1 << position
    unique = sum(mask for mask in masks.values() if mask.bit_count() == 1)
    return tuple(mask for mask in masks.values() if mask.bit_count() > 1), unique
