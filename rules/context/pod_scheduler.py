"""The scheduler of a new pod or claim, by the drivers of its open claims.

Where the bridge owns all of them, the webhook gives the pod the bridge's schedulerName, so the verdict on
the pod is the bridge's. Claims that are allocated already bind a pod to nodes and to no scheduler, so they
do not count beside open ones. A pod whose claims are all allocated either scheduler could bind; if the bridge owns
the drivers of all of them, it does: it reserves a claim with one write for many pods, where kube-scheduler needs
one for each, and begins anew at each conflict.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.pods.extended_resource_claim import mapped_resources
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
    """The drivers of a pod's claims.

    Attributes:
        drivers: The drivers of all known open claims.
        missing: Paths and names of claims and templates that are not known.
        allocated: The drivers of the devices of a pod whose claims are all allocated; empty for other pods.
    """

    drivers: ClaimDrivers = ClaimDrivers()
    missing: tuple[tuple[FieldPath, str], ...] = ()
    allocated: frozenset[str] = frozenset()


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
    of_claims = drivers_of_pod(pod, namespace, context, derived)
    is_of_bridge = is_allocated_by_bridge(of_claims.drivers, context) or is_reserved_by_bridge(
        pod, of_claims, context
    )
    return context.bridge_scheduler if is_of_bridge else scheduler


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


def is_reserved_by_bridge(pod: Pod, of_claims: PodDrivers, context: Context) -> bool:
    """Return True if all claims of a pod are allocated, and the bridge owns all of their drivers.

    A pod with keys that a class maps is left out: kube-scheduler makes a claim for these, and the bridge
    rejects the pod.
    """
    drivers = of_claims.allocated
    return (
        bool(drivers)
        and drivers <= context.owned_drivers
        and not mapped_resources(pod, context.extended_resources)
    )


def drivers_of_pod(
    pod: Pod, namespace: str, context: Context, derived: Mapping[str, frozenset[str]] = _NONE
) -> PodDrivers:
    """Return the drivers of the claims of a pod; see `scheduler_of_pod`."""
    entries = pod.spec.resource_claims or ()
    drivers = ClaimDrivers()
    allocated: list[frozenset[str]] = []
    missing: list[tuple[FieldPath, str]] = []
    pending: AnswersPending | None = None
    for index, entry in enumerate(entries[:MAX_CLAIMS]):
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
            of_devices = context.allocated_claims.get((namespace, name))
            if of_devices is not None:
                allocated.append(of_devices)
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
    of_all = allocated if len(allocated) == len(entries) else ()
    return PodDrivers(
        drivers=drivers, missing=tuple(missing), allocated=frozenset[str]().union(*of_all)
    )
