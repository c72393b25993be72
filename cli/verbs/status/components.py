"""The components of an installation: their replicas and leaders. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from answers.cluster.leases import is_over
from cli.reading.installation import (
    CERTIFICATES_LEASE,
    CONTROLLER_LEASE,
    Component,
    Installation,
    webhooks_of,
)
from cli.verbs.status.model import State, StatusCheck
from kube.names import BRIDGE_LEASE
from kube.runtime.leader import LeaseSpec

_LEASES: Final = {
    "controller": CONTROLLER_LEASE,
    "certificates": CERTIFICATES_LEASE,
    "bridge": BRIDGE_LEASE,
}


def check_replicas(installation: Installation, component: str, now: datetime) -> StatusCheck:
    """Check that a component has its replicas, and a leader if only one of them works."""
    workloads = [entry for entry in installation.components if entry.component == component]
    lease = _LEASES.get(component)
    leader = _leader(installation.leases.get(lease), now) if lease is not None else None
    if not workloads and component == "webhook" and is_called_at_url(installation):
        return StatusCheck(
            name=component,
            state=State.UNKNOWN,
            message="it is called at a URL, so its replicas are not seen here",
        )
    if not workloads:
        if leader:
            return StatusCheck(name=component, state=State.OK, message=f"{leader} leads")
        return StatusCheck(
            name=component,
            state=State.UNKNOWN if "deployments" in installation.unreadable else State.FAILED,
            message="there is no Deployment, and nothing leads"
            if lease
            else "there is no Deployment",
            fix=f"apply the manifests again: Deployment drawbridge-{component} of namespace "
            f"{installation.namespace}",
        )
    ready, desired = _counts(workloads)
    is_whole = _is_whole(workloads)
    message = f"{ready} of {desired} replicas ready"
    if lease is not None:
        message += f", {leader} leads" if leader else ", none leads"
    elif not is_whole and ready >= desired:
        message += ", a rollout is under way"
    message += _troubles(workloads)
    is_ok = is_whole and (lease is None or bool(leader) or "leases" in installation.unreadable)
    return StatusCheck(
        name=component,
        state=State.OK if is_ok else State.WAITING,
        message=message,
        fix="" if is_ok else _look_at(workloads[0]),
    )


def check_optional(installation: Installation, component: str) -> StatusCheck:
    """Check that a component that need not be installed is whole."""
    workloads = [entry for entry in installation.components if entry.component == component]
    if not workloads and is_called_at_url(installation):
        # It leads nothing, so nothing in the cluster tells of one that is no pod either.
        return StatusCheck(
            name=component,
            state=State.UNKNOWN,
            message="no workload in the cluster; as a process outside, as the webhook is, it is not seen here",
        )
    if not workloads:
        return StatusCheck(name=component, state=State.OFF, message="not installed")
    ready, desired = _counts(workloads)
    is_whole = _is_whole(workloads)
    unit = "nodes" if workloads[0].kind == "DaemonSet" else "replicas"
    return StatusCheck(
        name=component,
        state=State.OK if is_whole else State.WAITING,
        message=f"{ready} of {desired} {unit} ready{_troubles(workloads)}",
        fix="" if is_whole else _look_at(workloads[0]),
    )


def check_bridge(installation: Installation, now: datetime) -> StatusCheck:
    """Check that the bridge allocates the drivers that it owns."""
    workloads = [entry for entry in installation.components if entry.component == "bridge"]
    is_installed = bool(workloads)
    leader = _leader(installation.leases.get(BRIDGE_LEASE), now)
    owned = ", ".join(installation.owned) or "no driver"
    if installation.owned and not leader:
        return StatusCheck(
            name="bridge",
            state=State.WAITING if is_installed else State.FAILED,
            message=f"it owns {owned}, and none leads: nobody allocates their devices"
            f"{_troubles(workloads)}",
            fix="drawbridge bridge status; to give drivers back: drawbridge bridge release DRIVER",
        )
    if not is_installed and not leader:
        return StatusCheck(
            name="bridge", state=State.OFF, message="not installed: kube-scheduler allocates"
        )
    check = check_replicas(installation, "bridge", now)
    if installation.owned and installation.not_serving is not None:
        return StatusCheck(
            name="bridge",
            state=State.FAILED,
            message=f"{check.message}; it owns {owned}, and allocates nothing "
            f"({installation.not_serving.reason}): {installation.not_serving.message}",
            fix="drawbridge bridge status",
        )
    return msgspec.structs.replace(check, message=f"{check.message}; it owns {owned}")


def _counts(workloads: Iterable[Component]) -> tuple[int, int]:
    pairs = [(workload.ready, workload.desired) for workload in workloads]
    return sum(ready for ready, _ in pairs), sum(desired for _, desired in pairs)


def _is_whole(workloads: Iterable[Component]) -> bool:
    return all(workload.is_whole for workload in workloads)


def _troubles(workloads: Iterable[Component]) -> str:
    """Return the reasons that pods are not ready, as the end of a message; empty if unknown."""
    return "".join(f"; {trouble}" for workload in workloads for trouble in workload.troubles)


def _look_at(workload: Component) -> str:
    return (
        f"kubectl -n {workload.namespace} get pods -l app.kubernetes.io/component="
        f"{workload.component}, and their logs: process.not_ready names the check"
    )


def _leader(lease: LeaseSpec | None, now: datetime) -> str:
    """Return the holder of a Lease that is not over; empty without one."""
    if lease is None or not lease.holder_identity:
        return ""
    is_free = is_over(lease.renew_time or "", lease.lease_duration_seconds or 0, now)
    return "" if is_free else lease.holder_identity


def is_called_at_url(installation: Installation) -> bool:
    """Return True if API servers reach the webhook without a Service of the cluster."""
    return any(
        (webhook.get("clientConfig") or {}).get("url") for webhook in webhooks_of(installation)
    )
