"""The scheduler of a new pod or claim, by the drivers of its open claims.

Where the bridge owns all of them, the webhook gives the pod the bridge's schedulerName, so the verdict on
the pod is the bridge's. Claims that are allocated already bind a pod to nodes and to no scheduler, so they
do not count.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.text import quote_text
from kube.api.core import Pod
from kube.api.resource import DeviceClaim
from kube.cel.scope import AnswersPending
from kube.names import DEFAULT_SCHEDULER_NAME
from rules.context.claim_drivers import ClaimDrivers, drivers_of_claim
from rules.context.context import Context

MAX_CLAIMS: Final = 64
"""Claims of a pod that are inspected."""
CLAIMS: Final = FieldPath.of("spec", "resourceClaims")

_NONE: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class PodDrivers(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers of a pod's open claims.

    Attributes:
        drivers: The drivers of all known claims.
        missing: Paths and names of claims and templates that are not known.
    """

    drivers: ClaimDrivers = ClaimDrivers()
    missing: tuple[tuple[FieldPath, str], ...] = ()


def scheduler_of_pod(
    pod: Pod, namespace: str, context: Context, derived: Mapping[str, frozenset[str]] = _NONE
) -> str:
    """Return the scheduler that a pod will have once the webhook has routed it.

    Args:
        namespace: The pod's namespace.
        derived: Name of each template that derives from the pod's keys to the drivers of its profiles.

    Raises:
        AnswerInterrupted: Selectors of a claim count, and are not evaluated yet.
    """
    scheduler = pod.spec.scheduler_name
    is_open = scheduler in {"", DEFAULT_SCHEDULER_NAME} and not pod.spec.node_name
    if not (is_open and context.owned_drivers and pod.spec.resource_claims):
        return scheduler
    drivers = drivers_of_pod(pod, namespace, context, derived).drivers
    return context.bridge_scheduler if is_allocated_by_bridge(drivers, context) else scheduler


def scheduler_of_claim(claim: DeviceClaim, context: Context) -> str:
    """Return the bridge's name if it owns all drivers of an open claim; empty else: pods decide.

    Raises:
        AnswerInterrupted: Selectors of the claim count, and are not evaluated yet.
    """
    if not context.owned_drivers:
        return ""
    drivers = drivers_of_claim(claim, context)
    return context.bridge_scheduler if is_allocated_by_bridge(drivers, context) else ""


def is_allocated_by_bridge(drivers: ClaimDrivers, context: Context) -> bool:
    """Return True if the bridge owns all drivers of open claims, and some is known."""
    return bool(drivers.all) and drivers.all <= context.owned_drivers


def drivers_of_pod(
    pod: Pod, namespace: str, context: Context, derived: Mapping[str, frozenset[str]] = _NONE
) -> PodDrivers:
    """Return the drivers of the claims of a pod that are not allocated; see `scheduler_of_pod`."""
    drivers = ClaimDrivers()
    missing: list[tuple[FieldPath, str]] = []
    pending: AnswersPending | None = None
    for index, entry in enumerate((pod.spec.resource_claims or ())[:MAX_CLAIMS]):
        path = CLAIMS.child(index)
        claim: DeviceClaim | None
        if entry.resource_claim_template_name:
            name = entry.resource_claim_template_name
            if derived.get(name):
                drivers |= ClaimDrivers(published=derived[name])
                continue
            claim, what = context.templates.get((namespace, name)), "ResourceClaimTemplate"
        else:
            name = entry.resource_claim_name or ""
            if (namespace, name) in context.allocated_claims:
                continue
            claim, what = context.claims.get((namespace, name)), "ResourceClaim"
        if claim is None:
            missing.append((path, f"{what} {quote_text(name[:253])} does not exist yet"))
            continue
        try:
            drivers |= drivers_of_claim(claim, context)
        except AnswersPending as error:
            pending = error  # So that the engine hears of all claims at once.
    if pending is not None:
        raise pending
    return PodDrivers(drivers=drivers, missing=tuple(missing))
