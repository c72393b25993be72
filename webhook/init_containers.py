"""Which init containers use the devices of another container.

Classic accounting needs the larger of the init containers and the sum of the app containers, since
init containers run first. Claims are held for the pod's whole life, so without sharing the pod would
need the sum of everything. An init container that needs no more than another container shares its
request; sidecars run beside the app containers, so they neither lend nor borrow.

Source: KEP-753 for sidecars; k8s.io/component-helpers resource, PodRequests, for the accounting.
"""

from collections.abc import Mapping, Sequence

from kube.quantity import Quantity
from webhook.findings import Code, Finding, warning
from webhook.intents import DeviceKind, Intent, LegacyContainer


def hosts(
    intents: Sequence[Intent], containers: Mapping[str, LegacyContainer]
) -> tuple[Mapping[int, int], tuple[Finding, ...]]:
    """Return place of an init container's intent to the place of the one whose devices it uses.

    Args:
        intents: In the order of the pod's containers.
        containers: By name.
    """
    findings: list[Finding] = []
    first = [p for p, i in enumerate(intents) if _runs_first(containers[i.container])]
    lenders = [
        place
        for place, intent in enumerate(intents)
        if place not in first and not containers[intent.container].sidecar
    ]
    found: dict[int, int] = {}
    # The largest first, so that smaller init containers can use what it gets.
    for place in sorted(first, key=lambda place: _size(intents[place]), reverse=True):
        guest = intents[place]
        taken = {found.get(p, p) for p in first if intents[p].container == guest.container}
        host = next((h for h in lenders if h not in taken and _covers(intents[h], guest)), None)
        if host is None:
            lenders.append(place)
            findings.append(_held(guest))
            continue
        found[place] = host
        if _size(intents[host]) != _size(guest):
            findings.append(_sees_more(guest, intents[host]))
    return found, tuple(findings)


def _runs_first(container: LegacyContainer) -> bool:
    return container.init and not container.sidecar


def _size(intent: Intent) -> tuple[int, bool, Quantity, int, int]:
    return (
        intent.count,
        intent.exclusive or intent.takes_all_memory,
        intent.memory or Quantity(0),
        intent.memory_percent or 0,
        intent.cores_percent or 0,
    )


def _covers(host: Intent, guest: Intent) -> bool:
    """Whether the devices of one intent are enough for the other."""
    same = ("kind", "filter", "replica", "through_mps")
    if any(getattr(host, field) != getattr(guest, field) for field in same):
        return False
    if host.count < guest.count or (guest.same_numa and not host.same_numa):
        return False
    if host.kind is DeviceKind.GPU and host.exclusive:
        return True
    if host.exclusive is not guest.exclusive:
        return False
    return _memory_covers(host, guest) and (host.cores_percent or 0) >= (guest.cores_percent or 0)


def _memory_covers(host: Intent, guest: Intent) -> bool:
    if host.memory is None and host.memory_percent is None:
        # All of the memory of a share, but of a MIG device only what its profile has.
        return host.kind is DeviceKind.GPU or guest.memory is None
    if host.memory is not None and guest.memory is not None:
        return host.memory >= guest.memory
    return (host.memory_percent or 0) >= (guest.memory_percent or 101)


def _held(guest: Intent) -> Finding:
    return warning(
        Code.HELD_FOR_LIFE,
        guest.path("count"),
        "no app container asks for as much, so the pod keeps the init container's devices for its "
        "whole life",
    )


def _sees_more(guest: Intent, host: Intent) -> Finding:
    return warning(
        Code.INIT_SHARES_DEVICE,
        guest.path("count"),
        f"uses the devices of container {host.container} and sees that one's share",
    )
