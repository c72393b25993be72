"""Pools of NICs in a pod with networks that Multus attaches, and bandwidths of the pod's own network."""

from collections.abc import Iterator

from findings.finding import Code, Finding, error, info
from kube.api.network_attachments import NETWORKS, POD_BANDWIDTHS
from translation.model.intents import annotation_path
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.profile import Sharing
from translation.record.derive import provider


def check_multus_networks(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield an error for each pool of NICs in a pod with networks that Multus attaches; an info on its own network.

    The network may be on the NIC that the claim would move out of the host. Most such pools stay with their
    device plugin (`translation.cluster.network_claims`); not those of keys that a DeviceClass maps.
    """
    yield from _check_own_network(inputs)
    if not inputs.legacy.annotations.get(NETWORKS, "").strip():
        return
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, inputs.providers)
            if not intent.pool or profile is None:
                continue
            if profile.devices[intent.kind].sharing is Sharing.NEVER:
                yield error(
                    Code.MULTUS_BESIDE_POOL,
                    intent.path("count"),
                    f"{profile.driver} would move a NIC of the pool out of the host, and Multus attaches "
                    "networks of the host that may be on the same NIC",
                    "keep the device plugin for this pod: label drawbridge.internal/translate: "
                    '"false"; or remove the annotation of the networks',
                )


def _check_own_network(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield an info if a pod with claims limits the bandwidth of its own network."""
    annotations = inputs.legacy.annotations
    names = [name for name in POD_BANDWIDTHS if annotations.get(name, "").strip()]
    if names and inputs.claims:
        limit = "limit" if len(names) > 1 else "limits"
        yield info(
            Code.BANDWIDTH_NOT_RESERVED,
            annotation_path(names[0]),
            f"{' and '.join(names)} {limit} the pod's own network, which is no device, so no claim reserves "
            "the bandwidth",
            "to reserve one, write the rates at a network of Multus that a driver attaches",
        )
