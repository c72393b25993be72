"""Reasons that a device cannot be chosen, alone or beside devices that are chosen already."""

from collections.abc import Iterable, Mapping

from allocator.model.outcome import AttemptFailed, Reason, RejectionReason
from allocator.model.plan import Plan
from allocator.model.requests import Request
from allocator.search.attempt import Attempt, RequestCandidates


def capacity_rejection(attempt: Attempt, request: Request, position: int) -> RejectionReason | None:
    """Return the reason a device's whole capacity is not enough.

    Raises:
        AttemptFailed: The amounts cannot be evaluated.
    """
    if attempt.capacity_constraint is None:
        return None
    static = attempt.capacity_constraint.consumption_at(request, position)
    return static if isinstance(static, RejectionReason) else None


def constraint_rejection(
    attempt: Attempt, request: Request, position: int, *, further_share: bool
) -> RejectionReason | None:
    """Return the first constraint on combinations that a device would violate now.

    Raises:
        AttemptFailed: A constraint cannot be evaluated.
    """
    further = further_share or bool(attempt.shared >> position & 1)
    for constraint in attempt.constraints:
        rejection = constraint.rejection(request, position, further_share=further)
        if rejection is not None:
            return rejection
    return None


def rejections_beside(
    attempt: Attempt, table: RequestCandidates, plan: Plan, suitable: Iterable[int]
) -> list[RejectionReason]:
    """Return the reasons against every further device beside those of a plan.

    Args:
        table: The candidates of the last request.
        plan: A plan for the same requests, the last perhaps with fewer devices, or none in mode
            All.
        suitable: Positions of devices that could be chosen if nothing else were.
    """
    replayed_choices = _replay(attempt, plan)
    owners = {position: request for request, position, _ in replayed_choices}
    rejections = []
    for position in sorted(suitable):
        rejection = _rejection_beside(attempt, table.request, position, owners)
        if rejection is not None:
            rejections.append(rejection)
        elif table.all_positions is not None:
            # Mode All requires every device, so each is chosen as long as the ones before allow it.
            further = bool(attempt.shared >> position & 1) or position in owners
            if _choose(attempt, table.request, position, further_share=further):
                replayed_choices.append((table.request, position, further))
    for request, position, further in reversed(replayed_choices):
        for constraint in reversed(attempt.constraints):
            constraint.remove(request, position, further_share=further)
    return rejections


def _replay(attempt: Attempt, plan: Plan) -> list[tuple[Request, int, bool]]:
    """Choose the devices of a plan; return request, position and `further_share` of each."""
    requests = {
        (table.request.claim, table.request.full_name): table.request
        for claim in attempt.requests
        for alternatives in claim
        for table in alternatives
    }
    choices: list[tuple[Request, int, bool]] = []
    used = attempt.shared
    for choice in (choice for choices in plan.choices for choice in choices):
        request = requests.get((choice.request.claim, choice.request.full_name))
        position = attempt.node.positions[choice.device.id]
        further = bool(used & attempt.shareable & 1 << position)
        if request is not None and _choose(attempt, request, position, further_share=further):
            choices.append((request, position, further))
            used |= 1 << position
    return choices


def _rejection_beside(
    attempt: Attempt, request: Request, position: int, owners: Mapping[int, Request]
) -> RejectionReason | None:
    """Return the reason a device cannot be chosen as well; None when it can, or is chosen already."""
    owner, can_share = owners.get(position), attempt.shareable >> position & 1
    if owner is not None and not can_share and not request.admin:
        if owner is request:
            return None
        return RejectionReason(
            reason=Reason.ALLOCATED,
            subject="assigned to",
            value=_owner_name(attempt, owner, request),
        )
    try:
        return constraint_rejection(attempt, request, position, further_share=owner is not None)
    except AttemptFailed as error:
        return evaluation_failure(error)


def evaluation_failure(error: AttemptFailed) -> RejectionReason:
    """Return the rejection of a device that ends the attempt."""
    return RejectionReason(
        reason=Reason.ATTEMPT_FAILED, subject="cannot be evaluated", remark=str(error)
    )


def _owner_name(attempt: Attempt, owner: Request, request: Request) -> str:
    """Return the other request that has a device, without names of another namespace."""
    if owner.claim == request.claim:
        return f"request {owner.full_name}"
    metadata = attempt.pending.claims[owner.claim].metadata
    if metadata.namespace != attempt.pending.claims[request.claim].metadata.namespace:
        return "a claim in another namespace"
    return f"claim {metadata.name}"


def _choose(attempt: Attempt, request: Request, position: int, *, further_share: bool) -> bool:
    """Choose a device; false, and nothing changes, when some constraint does not allow it."""
    for number, constraint in enumerate(attempt.constraints):
        if not constraint.add(request, position, further_share=further_share):
            for added_constraint in reversed(attempt.constraints[:number]):
                added_constraint.remove(request, position, further_share=further_share)
            return False
    return True
