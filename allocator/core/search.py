"""Depth-first search for devices, in upstream's order and with upstream's answer, minus its waste.

Claims in order, requests in order, alternatives in order, then each device of a request after the
one before it: the first complete assignment wins. What upstream tries in vain is skipped where it
can be proved that it is in vain:

* a device that looks like one that just failed in the same place (`Problem.kinds`);
* a request that was reached before in a state that is equivalent for all that lies ahead (`_memo`);
* other devices for a choice that had no part in the failure of a later request (`_Blame`), since
  choosing more never makes a later answer better;
* a request where it, or all that follow, need more devices or counters than are left (`Demand`).

The first two leave even fatal errors where upstream has them. The others look ahead, so they are
off for problems in which merely looking at a device can end the attempt
(`Problem.is_treacherous`).

The stack is explicit: 200 claims of 32 devices are deeper than Python recurses.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal, allocateOne and
allocateDevice; research notes give its steps in words. ADR 2, ADR 3.
"""

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from allocator.core.demand import Demand
from allocator.core.model import Asked, Budget, NodeDevices, Plan, Usage, renumbered
from allocator.core.outcome import AttemptFailed, GaveUp, Unfit
from allocator.core.problem import Problem, Rules, Table, problem
from allocator.core.tracker import Tracker
from kube.api.resource import MAX_RESULTS

DEFAULT_BUDGET: Final = Budget()


def allocate(
    node: NodeDevices,
    asked: Asked,
    usage: Usage,
    rules: Rules,
    *,
    budget: Budget = DEFAULT_BUDGET,
    order: Sequence[int] | None = None,
) -> Plan | Unfit | GaveUp:
    """Return the devices that claims get on a node.

    Args:
        node: What the node can be given.
        asked: The claims, solved together.
        usage: What allocated claims hold.
        rules: Gates and policies.
        budget: What the search may cost.
        order: Positions in the order in which a strategy prefers them; None for upstream's, which
            also holds where the verdict depends on it, and where the other led to nothing within
            the budget.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    straight = problem(node, asked, usage, rules)
    if order is None or straight.is_treacherous or straight.is_order_bound:
        return search(straight, budget)
    preferred = search(problem(renumbered(node, order), asked, usage, rules), budget)
    # A strategy must not cost the claims their devices.
    return search(straight, budget) if isinstance(preferred, GaveUp) else preferred


def search(attempt: Problem, budget: Budget) -> Plan | Unfit | GaveUp:
    """Return the devices that the claims get, the first solution in upstream's order.

    Args:
        attempt: Claims on one node, laid out; its trackers are back in their first state afterwards.
        budget: Steps that the search may take.

    Raises:
        AttemptFailed: The search came across input that ends the attempt on all nodes.
    """
    hopeless = attempt.hopeless()
    if hopeless:
        return Unfit(invalid_pools=attempt.has_invalid_pools)
    return _Search(attempt, budget.steps).run()


_NEVER_REMEMBERED: Final = None
"""The key of a frame that is not the first of its request."""


class _Signal(Enum):
    """How a part of the search ended.

    Upstream's words: (false, nil), errAllocationResultMaxSizeExceeded and (true, nil).
    """

    FAILED = auto()
    TOO_MANY = auto()
    DONE = auto()


class _Blame(NamedTuple):
    """The request that has just failed, and the state it failed in."""

    claim: int
    request: int
    key: Hashable


class _Choices:
    """A frame of the stack that tries the alternatives of one `firstAvailable` request.

    Attributes:
        key: Under which the outcome is remembered.
        opens_claim: It stands for a whole claim, beyond which TOO_MANY means only failed.
    """

    def __init__(self, claim: int, index: int, tables: tuple[Table, ...]) -> None:
        self.claim = claim
        self.index = index
        self.tables = tables
        self.alternative = -1
        self.all_too_many = True
        self.key: Hashable = _NEVER_REMEMBERED
        self.opens_claim = False


class _Slot:
    """A frame of the stack that fills one device slot of one request.

    Attributes:
        left: Positions still to try, as a mask.
        position: The one chosen now; -1 for none.
        failed_kinds: Kinds of which an untouched device failed here.
    """

    def __init__(self, claim: int, table: Table, slot: int, left: int) -> None:
        self.claim = claim
        self.table = table
        self.slot = slot
        self.left = left
        self.position = -1
        self.further_share = False
        self.failed_kinds: set[int] = set()
        self.index = table.request.index
        self.key: Hashable = _NEVER_REMEMBERED
        self.opens_claim = False


_Frame = _Choices | _Slot


class _Search:
    """The state of one search."""

    def __init__(self, problem: Problem, steps: int) -> None:
        self._problem = problem
        self._limit = steps
        self._steps = problem.steps
        self._trackers: tuple[Tracker, ...] = problem.trackers
        self._stack: list[_Frame] = []
        self._chosen: list[list[tuple[Table, int]]] = [[] for _ in problem.tables]
        self._taken = 0
        self._taken_by = [0 for _ in problem.tables]
        self._shares: dict[int, int] = {}
        self._memo: dict[Hashable, _Signal] = {}
        self._blame: _Blame | None = None
        self._twins, self._unique = _twins(problem.kinds)
        self._demand = Demand(problem)

    def run(self) -> Plan | Unfit | GaveUp:
        """Drive the stack until it is empty or all claims have their devices."""
        signal = self._enter(0, 0)
        while signal is not _Signal.DONE:
            if self._steps > self._limit:
                self._rewind()
                return GaveUp(steps=self._steps, proved=self._progress())
            if not self._stack:
                return Unfit(invalid_pools=self._problem.has_invalid_pools, steps=self._steps)
            frame = self._stack[-1]
            if isinstance(frame, _Slot):
                signal = self._resume_slot(frame, signal)
            else:
                signal = self._resume_choices(frame, signal)
        plan = self._plan()
        self._rewind()
        return plan

    # --- going down ------------------------------------------------------------------------------

    def _enter(self, claim: int, index: int) -> _Signal | None:
        """Begin a request; None when a frame was pushed, else how it ended at once."""
        tables = self._problem.tables
        opens_claim = False
        while claim < len(tables) and index >= len(tables[claim]):
            claim, index, opens_claim = claim + 1, 0, True
        if claim >= len(tables):
            return _Signal.DONE
        key = self._key(claim, index)
        known = self._memo.get(key)
        if known is None:
            height = len(self._stack)
            known = self._begin(claim, index, tables[claim][index])
            if known is None:
                self._stack[height].key = key
                self._stack[height].index = index
                self._stack[height].opens_claim = opens_claim
                return None
            if known is _Signal.DONE:
                return known
            self._memo[key] = known
        self._blame = _Blame(claim, index, key)
        return _Signal.FAILED if opens_claim and known is _Signal.TOO_MANY else known

    def _begin(self, claim: int, index: int, alternatives: tuple[Table, ...]) -> _Signal | None:
        self._steps += 1
        if not self._problem.is_treacherous and self._demand.exceeds(claim, index, self._taken):
            return _Signal.FAILED
        if alternatives[0].request.parent is None:
            return self._enter_slot(claim, alternatives[0], 0, 0)
        self._stack.append(_Choices(claim, index, alternatives))
        return None

    def _enter_slot(self, claim: int, table: Table, slot: int, start: int) -> _Signal | None:
        """Begin one device of a request, from a position on; None when a frame was pushed."""
        if table.listed is not None and not table.listed:
            return _Signal.FAILED
        if slot >= table.need:
            return self._enter(claim, table.request.index + 1)
        if table.need - slot > MAX_RESULTS - len(self._chosen[claim]):
            return _Signal.TOO_MANY
        if table.listed is not None:
            left = 1 << table.listed[slot]
        else:
            left = table.candidates >> start << start
            left &= ~(self._taken_by[claim] if table.request.admin else self._taken)
            if not self._problem.is_treacherous:
                left = self._problem.narrowed(table.request, left)
                if left.bit_count() < table.need - slot:
                    return _Signal.FAILED
        self._stack.append(_Slot(claim, table, slot, left))
        return None

    # --- coming back -----------------------------------------------------------------------------

    def _resume_choices(self, frame: _Choices, signal: _Signal | None) -> _Signal | None:
        """Try the next alternative; `signal` is how the one before ended, None at first."""
        while True:
            if signal is not None and signal is not _Signal.TOO_MANY:
                frame.all_too_many = False
                if self._had_no_part():
                    return self._leave(frame, signal, explored=False)
            frame.alternative += 1
            if frame.alternative == len(frame.tables):
                ended = _Signal.TOO_MANY if frame.all_too_many else _Signal.FAILED
                return self._leave(frame, ended)
            signal = self._enter_slot(frame.claim, frame.tables[frame.alternative], 0, 0)
            if signal is None or signal is _Signal.DONE:
                return signal

    def _resume_slot(self, frame: _Slot, signal: _Signal | None) -> _Signal | None:
        """Try the next device; `signal` is what became of the one before, None at first."""
        while True:
            if signal is not None:
                self._put_back(frame)
                if signal is _Signal.TOO_MANY or frame.table.listed is not None:
                    return self._leave(frame, signal)
                if self._had_no_part():
                    return self._leave(frame, signal, explored=False)
            if not self._take_next(frame):
                return self._leave(frame, _Signal.FAILED)
            signal = self._enter_slot(frame.claim, frame.table, frame.slot + 1, frame.position + 1)
            if signal is None or signal is _Signal.DONE:
                return signal

    def _leave(self, frame: _Frame, signal: _Signal, *, explored: bool = True) -> _Signal:
        """Give a frame up.

        Args:
            explored: All of it was tried; if not, what was blamed before still is to blame.
        """
        self._stack.pop()
        if frame.key is not _NEVER_REMEMBERED:
            self._memo[frame.key] = signal
        if explored:
            is_whole = frame.key is not _NEVER_REMEMBERED and signal is _Signal.FAILED
            self._blame = _Blame(frame.claim, frame.index, frame.key) if is_whole else None
        return _Signal.FAILED if frame.opens_claim and signal is _Signal.TOO_MANY else signal

    def _had_no_part(self) -> bool:
        """Return whether what was just undone had no part in the failure that is to blame."""
        blame = self._blame
        if blame is None or self._problem.is_treacherous:
            return False
        if self._key(blame.claim, blame.request) == blame.key:
            return True
        self._blame = None
        return False

    # --- one device ------------------------------------------------------------------------------

    def _take_next(self, frame: _Slot) -> bool:
        """Choose the next device that will do; false when there is none."""
        problem, table = self._problem, frame.table
        while frame.left and self._steps <= self._limit:
            lowest = frame.left & -frame.left
            frame.left ^= lowest
            position = lowest.bit_length() - 1
            if self._is_in_use(frame, lowest):
                continue
            kind = problem.kinds[position]
            if kind in frame.failed_kinds and self._is_untouched(position):
                continue
            self._steps += 1
            if lowest & table.fatal:
                raise AttemptFailed(table.failures[position])
            if table.listed is not None and lowest & table.refused:
                return False
            if self._take(frame, position):
                return True
            if self._is_untouched(position):
                frame.failed_kinds.add(kind)
        return False

    def _take(self, frame: _Slot, position: int) -> bool:
        """Choose one device if every tracker agrees; otherwise change nothing."""
        request = frame.table.request
        can_share = self._problem.shareable >> position & 1
        further = bool(can_share) and (
            position in self._shares or bool(self._problem.shared >> position & 1)
        )
        if self._lacks_capacity(frame, position, further_share=further):
            return False
        for count, tracker in enumerate(self._trackers):
            if not tracker.add(request, position, further_share=further):
                for done in reversed(self._trackers[:count]):
                    done.undo(request, position, further_share=further)
                self._require_all(frame, tracker, position)
                return False
        if can_share:
            self._shares[position] = self._shares.get(position, 0) + 1
        else:
            self._taken |= 1 << position
            self._taken_by[frame.claim] |= 1 << position
        self._chosen[frame.claim].append((frame.table, position))
        frame.position = position
        frame.further_share = further
        return True

    def _lacks_capacity(self, frame: _Slot, position: int, *, further_share: bool) -> bool:
        """Return whether too little is left of a device, if that must be known before all else."""
        capacity = self._problem.capacity
        # Except in mode All, upstream looks at capacity before constraints, whose derived
        # attributes may end the attempt. Where nothing can, the order makes no difference.
        return (
            capacity is not None
            and self._problem.is_treacherous
            and frame.table.listed is None
            and capacity.refusal(frame.table.request, position, further_share=further_share)
            is not None
        )

    def _put_back(self, frame: _Slot) -> None:
        """Take back the device that a frame has chosen; it failed here."""
        position, request = frame.position, frame.table.request
        self._chosen[frame.claim].pop()
        if position in self._shares:
            self._shares[position] -= 1
            if not self._shares[position]:
                del self._shares[position]
        else:
            bit = 1 << position
            self._taken_by[frame.claim] &= ~bit
            if not any(mask & bit for mask in self._taken_by):
                self._taken &= ~bit
        for tracker in reversed(self._trackers):
            tracker.undo(request, position, further_share=frame.further_share)
        if self._is_untouched(position):
            frame.failed_kinds.add(self._problem.kinds[position])
        frame.position = -1

    def _require_all(self, frame: _Slot, tracker: Tracker, position: int) -> None:
        # Upstream: a claim whose constraints exclude one of "all" devices makes no sense.
        if frame.table.listed is not None and tracker is self._problem.constraints:
            device = self._problem.node.devices[position].id
            raise AttemptFailed(
                f"claim {self._problem.claim_name(frame.claim)}, request "
                f"{frame.table.request.name}: cannot add device {device} because a claim "
                "constraint would not be satisfied"
            )

    def _is_in_use(self, frame: _Slot, bit: int) -> bool:
        taken = self._taken_by[frame.claim] if frame.table.request.admin else self._taken
        return bool(taken & bit)

    def _is_untouched(self, position: int) -> bool:
        return not self._taken >> position & 1 and position not in self._shares

    # --- what is known ---------------------------------------------------------------------------

    def _key(self, claim: int, index: int) -> Hashable:
        """Return all that the rest of the search depends on, blind to which twin was taken."""
        ahead = self._demand.ahead(claim, index)
        taken = self._taken & ahead.positions
        # Who holds a device matters only for admin access, and only within a claim.
        mine = self._taken_by[claim] & ahead.positions
        twins = [((taken & mask).bit_count(), (mine & mask).bit_count()) for mask in self._twins]
        count = len(self._chosen[claim])
        return (
            claim,
            index,
            # How many devices the claim has matters only where it could come to have too many.
            count if count > self._demand.spare(claim, index) else 0,
            taken & self._unique,
            mine & self._unique,
            tuple(twins),
            frozenset([share for share in self._shares if ahead.positions >> share & 1]),
            tuple([tracker.outlook(ahead) for tracker in self._trackers]),
        )

    def _progress(self) -> str:
        wanted = sum(len(requests) for requests in self._problem.tables)
        return (
            f"gave up after {self._limit} steps; no contradiction was found among "
            f"{len(self._problem.tables)} claims with {wanted} requests on "
            f"{len(self._problem.node.devices)} devices"
        )

    def _rewind(self) -> None:
        """Undo all that is chosen, so that the trackers can be asked again."""
        for frame in reversed(self._stack):
            if isinstance(frame, _Slot) and frame.position >= 0:
                self._put_back(frame)

    def _plan(self) -> Plan:
        chosen = [
            tuple(self._problem.choice(table, position) for table, position in devices)
            for devices in self._chosen
        ]
        alternatives = [[0 for _ in requests] for requests in self._problem.tables]
        for frame in self._stack:
            if isinstance(frame, _Choices):
                alternatives[frame.claim][frame.index] = frame.alternative
        return Plan(
            node=self._problem.node.node,
            choices=tuple(chosen),
            alternatives=tuple(tuple(each) for each in alternatives),
            steps=self._steps,
        )


def _twins(kinds: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return a mask per kind that several devices are of, and one of all other devices."""
    masks: dict[int, int] = {}
    for position, kind in enumerate(kinds):
        masks[kind] = masks.get(kind, 0) | 1 << position
    unique = sum(mask for mask in masks.values() if mask.bit_count() == 1)
    return tuple(mask for mask in masks.values() if mask.bit_count() > 1), unique
