"""Requests divided among several claims, since Kubernetes allocates too few devices for one.

A claim has at most 32 devices and 32 requests. Claims of one pod are allocated on one node, so devices
that nothing relates to each other may be in several. No constraint spans claims: devices that one
relates stay together, and a pod that requests more of them is rejected.

Source: k8s.io/api resource/v1, AllocationResultsMaxSize and DeviceRequestsMaxSize.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from findings.finding import Code, Finding, error
from kube.api.resource import MAX_REQUESTS, MAX_RESULTS
from translation.model.bounds import MAX_CLAIMS
from translation.model.intents import DeviceKind, Intent
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import DeviceProfile, Granularity, Profile, Sharing


class RequestedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that becomes a request, and the containers that use it."""

    intent: Intent
    users: tuple[str, ...]


def divide_devices(
    group: Sequence[RequestedDevices], profile: Profile, facts: Mapping[DeviceKind, Facts]
) -> Sequence[Sequence[RequestedDevices]]:
    """Divide the devices of one claim among as few claims as Kubernetes needs, in order.

    A claim that Kubernetes can allocate is not divided, nor is what cannot be: see `check_limits`.

    Args:
        facts: Device kind to the facts of the driver's published devices.
    """
    total = sum(devices.intent.count for devices in group)
    if total <= MAX_RESULTS and len(group) <= MAX_REQUESTS:
        return (group,)
    if profile.claims is Granularity.CONTAINER or total > MAX_CLAIMS * MAX_RESULTS:
        return (group,)
    pieces = [piece for devices in group for piece in _pieces(devices, profile, facts)]
    claims: list[list[RequestedDevices]] = [[]]
    for piece in pieces:
        used = sum(devices.intent.count for devices in claims[-1])
        if claims[-1] and (
            used + piece.intent.count > MAX_RESULTS or len(claims[-1]) == MAX_REQUESTS
        ):
            claims.append([])
        claims[-1].append(piece)
    return claims


def check_limits(intents: Sequence[Intent]) -> Iterator[Finding]:
    """Yield an error for each limit of Kubernetes that one claim for the intents would exceed."""
    total = sum(intent.count for intent in intents)
    if total > MAX_RESULTS:
        yield error(
            Code.TOO_MANY_DEVICES,
            intents[-1].path("count"),
            f"{total} devices in one claim, Kubernetes allocates at most {MAX_RESULTS}; these cannot "
            "be divided among claims, because no constraint spans claims",
            f"request at most {MAX_RESULTS} of these devices per pod",
        )
    if len(intents) > MAX_REQUESTS:
        yield error(
            Code.TOO_MANY_REQUESTS,
            intents[-1].path("count"),
            f"{len(intents)} requests in one claim, Kubernetes allows at most {MAX_REQUESTS}",
            "use fewer containers with devices",
        )


def _pieces(
    devices: RequestedDevices, profile: Profile, facts: Mapping[DeviceKind, Facts]
) -> Iterator[RequestedDevices]:
    """Yield parts of a request that fit in a claim each; the request itself if it has none."""
    intent = devices.intent
    known_facts = facts.get(intent.kind, UNKNOWN)
    if intent.count <= MAX_RESULTS or _are_related(
        intent, profile.devices[intent.kind], known_facts
    ):
        yield devices
        return
    for first in range(0, intent.count, MAX_RESULTS):
        count = min(MAX_RESULTS, intent.count - first)
        yield msgspec.structs.replace(devices, intent=msgspec.structs.replace(intent, count=count))


def _are_related(intent: Intent, device: DeviceProfile, facts: Facts) -> bool:
    """Return True if a constraint relates the devices of an intent to each other.

    Shares must be of different devices. A whole device is taken as a whole, so no other claim can get
    the same.
    """
    is_shared = device.sharing is Sharing.ALWAYS or (
        device.sharing is Sharing.PUBLISHED and bool(facts.shared)
    )
    is_whole = intent.exclusive and (device.memory is not None or device.cores is not None)
    are_related = intent.same_numa or intent.within is not None or intent.every
    return are_related or (is_shared and not is_whole)
