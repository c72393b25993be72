"""Pools of NICs in a pod with networks that Multus attaches."""

from collections.abc import Iterator

from findings.finding import Code, Finding, error
from kube.api.network_attachments import NETWORKS
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.profile import Sharing
from translation.record.derive import provider


def check_multus_networks(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield an error for each pool of NICs in a pod with networks that Multus attaches.

    The network may be on the NIC that the claim would move out of the host. Most such pools stay with their
    device plugin (`translation.cluster.network_claims`); not those of keys that a DeviceClass maps.
    """
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
