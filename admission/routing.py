"""The scheduler of a new pod, by the drivers of its claims; pure.

A pod whose open claims are all of drivers that the bridge owns gets the bridge's schedulerName, and a
toleration of the taint of the bridge's nodes, if it names no scheduler of its own, and loses the gate of
DeviceQuotas unless it has keys of device plugins beside its claims. A pod with open claims of owned and of
other drivers fits no scheduler and is rejected. Claims that are allocated already bind a pod to nodes and to
no scheduler, so they do not count beside open ones; a pod with no others goes to the bridge if that owns the drivers
of all of them, and is left as it is else. Where nothing tells the driver of a claim, the pod is left as it is with a
warning; the fence prevents harm. Never for lack of time: the scheduler of a pod cannot be changed later.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from admission.pods import Answer, Decision
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.core import Pod, PodResourceClaim, Toleration
from kube.api.extended_resources import requests_extended_resources
from kube.jsonpatch import Operation, add, pointer, remove
from kube.names import DEFAULT_SCHEDULER_NAME, QUOTA_GATE
from rules.context.context import Context
from rules.context.pod_scheduler import (
    CLAIMS,
    PodDrivers,
    drivers_of_pod,
    is_reserved_by_bridge,
)

MAX_NAMED: Final = 4
"""Drivers or claims in a message."""


class Bridge(NamedTuple):
    """The scheduler and taint of pods that the bridge schedules.

    Attributes:
        scheduler: Its schedulerName.
        taint: Key of the taint of its nodes, which such pods tolerate; empty where it has none.
    """

    scheduler: str
    taint: str = ""


def route_pod(
    pod: Pod,
    namespace: str,
    context: Context,
    bridge: Bridge,
    derived: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Answer:
    """Answer the creation of a pod with claims.

    Args:
        namespace: The pod's namespace.
        derived: Name of each template that derives from the pod's keys to the drivers of its profiles.

    Raises:
        AnswerInterrupted: Selectors of a claim count, and are not evaluated yet.
    """
    scheduler = bridge.scheduler
    spec = pod.spec
    if not context.owned_drivers or not spec.resource_claims or spec.node_name:
        return Answer(decision=Decision.UNTOUCHED)
    of_claims = drivers_of_pod(pod, namespace, context, derived)
    owned_drivers = context.owned_drivers
    drivers = of_claims.drivers
    foreign_name = spec.scheduler_name not in {"", DEFAULT_SCHEDULER_NAME, scheduler}
    names_none = not foreign_name and spec.scheduler_name != scheduler
    if names_none and is_reserved_by_bridge(pod, of_claims, context):
        return routed(pod, bridge)
    if not drivers.all & owned_drivers:
        if spec.scheduler_name == scheduler and drivers.all:
            return _untouched(_wrong_scheduler(drivers.all, scheduler))
        return _untouched(*_unknown(of_claims))
    if drivers.published & owned_drivers and drivers.published - owned_drivers:
        finding = error(
            Code.MIXED_DRIVER_OWNERSHIP, CLAIMS, *_mixed_drivers(drivers.published, owned_drivers)
        )
        return Answer(decision=Decision.REFUSED, findings=(finding,))
    if drivers.all - owned_drivers:
        finding = warning(
            Code.MIXED_DRIVER_OWNERSHIP, CLAIMS, *_mixed_drivers(drivers.all, owned_drivers)
        )
        return _untouched(finding)
    if foreign_name:
        return _untouched(_not_routed(drivers.all & owned_drivers, spec.scheduler_name, scheduler))
    findings = tuple(_unknown(of_claims))
    if spec.scheduler_name == scheduler:
        return _untouched(*findings)
    return routed(pod, bridge, *findings)


def routed(pod: Pod, bridge: Bridge, *findings: Finding) -> Answer:
    """Return the answer that gives a pod to the bridge."""
    return Answer(
        decision=Decision.ROUTED,
        operations=(
            add(pointer("spec", "schedulerName"), bridge.scheduler),
            *_tolerate(pod.spec.tolerations or (), bridge.taint),
            *_ungate(pod),
        ),
        findings=findings,
    )


def is_missing_claims(answer: Answer) -> bool:
    """Return True if an answer depends on a claim or template that was not known."""
    return any(
        finding.code is Code.DRIVER_OWNERSHIP_UNKNOWN and finding.path != CLAIMS
        for finding in answer.findings
    )


def missing_claims(pod: Pod, answer: Answer) -> tuple[PodResourceClaim, ...]:
    """Return the entries of a pod's claims with claims or templates that an answer has as not known."""
    paths = {
        finding.path for finding in answer.findings if finding.code is Code.DRIVER_OWNERSHIP_UNKNOWN
    }
    entries = enumerate(pod.spec.resource_claims or ())
    return tuple(entry for index, entry in entries if CLAIMS.child(index) in paths)


def _tolerate(tolerations: Sequence[Toleration], taint: str) -> Iterator[Operation]:
    """Yield the operation that makes a pod tolerate a taint, unless it tolerates the taint already."""
    is_tolerated = any(
        toleration.key in {"", taint}
        and toleration.operator == "Exists"
        and toleration.effect in {"", "NoSchedule"}
        for toleration in tolerations
    )
    if taint and not is_tolerated:
        toleration = {"key": taint, "operator": "Exists", "effect": "NoSchedule"}
        if tolerations:
            yield add(pointer("spec", "tolerations", "-"), toleration)
        else:
            yield add(pointer("spec", "tolerations"), [toleration])


def _ungate(pod: Pod) -> Iterator[Operation]:
    """Yield the removal of the gate of DeviceQuotas; policies add it before webhooks are called.

    The bridge does not decide about keys of device plugins, so a pod with some goes on waiting.
    """
    if requests_extended_resources(pod.spec):
        return
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if QUOTA_GATE in gates:
        yield remove(pointer("spec", "schedulingGates", gates.index(QUOTA_GATE)))


def _untouched(*findings: Finding) -> Answer:
    decision = Decision.VALIDATED if findings else Decision.UNTOUCHED
    return Answer(decision=decision, findings=findings)


def _mixed_drivers(drivers: frozenset[str], owned_drivers: frozenset[str]) -> tuple[str, str]:
    """Return the message and the fix of a finding about owned and other drivers."""
    message = (
        f"the claims reach {_names(drivers & owned_drivers)}, which the bridge allocates, and "
        f"{_names(drivers - owned_drivers)}, which kube-scheduler allocates; no scheduler allocates both"
    )
    fix = (
        "own both drivers (drawbridge bridge own), name one driver in the selectors of the class, or "
        "have the other claim allocated by another pod first"
    )
    return message, fix


def _not_routed(drivers: frozenset[str], driver_names: str, scheduler: str) -> Finding:
    return warning(
        Code.DRIVER_OWNED_BY_BRIDGE,
        FieldPath.of("spec", "schedulerName"),
        f"scheduler {quote_text(driver_names[:253])} cannot allocate {_names(drivers)}, which the bridge "
        "owns, so the pod stays pending",
        f"leave schedulerName out, or set it to {scheduler}",
    )


def _wrong_scheduler(drivers: frozenset[str], scheduler: str) -> Finding:
    return warning(
        Code.DRIVER_NOT_OWNED,
        FieldPath.of("spec", "schedulerName"),
        f"{scheduler} does not allocate {_names(drivers)}, which it does not own, so the pod stays pending",
        "leave schedulerName out, or own the driver: drawbridge bridge own",
    )


def _unknown(open_claims: PodDrivers) -> Iterator[Finding]:
    for path, what in open_claims.missing[:MAX_NAMED]:
        yield warning(
            Code.DRIVER_OWNERSHIP_UNKNOWN,
            path,
            f"{what}, so it is not known whether the bridge allocates its devices",
            "create it before the pod, or set schedulerName",
        )
    names = open_claims.drivers.unknown[:MAX_NAMED]
    if names:
        yield warning(
            Code.DRIVER_OWNERSHIP_UNKNOWN,
            CLAIMS,
            f"no device is published for request {_names(frozenset(names))}, and its class names no "
            "driver, so it is not known whether the bridge allocates it",
            "name the driver in the class: device.driver == ...",
        )


def _names(names: frozenset[str]) -> str:
    shown_names = [quote_text(name[:253]) for name in sorted(names)[:MAX_NAMED]]
    more = len(names) - len(shown_names)
    return ", ".join(shown_names) + (f" and {more} more" if more > 0 else "")
