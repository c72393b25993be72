"""Policies of quota gates deleted, and every gate removed, so that no pod waits for controllers that are gone.

Bindings go first: a policy without one holds nothing back. An API server forgets them about a second later,
and until then it denies the removal of gates and adds them to new pods. So pods are listed until none has
had a gate for a while.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from admission.quota_gates import HOLDER_POLICY, gate_documents
from controllers.quotas.gates import RESOURCES, removal_patch
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.urls import PODS, Resource
from kube.client.client import Client, PatchType
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from quotas.gates.counted_objects import is_gated

QUIET_S: Final = 5.0
"""The time without a gate after which no API server adds one."""
PERIOD_S: Final = 1.0
"""The time between two lists of pods."""
TIMEOUT_S: Final = 240.0
"""The time after which the removal is given up."""

log = get_logger()


class Pace(NamedTuple):
    """Times of the removal, in seconds; the constants of this module describe each."""

    quiet_s: float = QUIET_S
    period_s: float = PERIOD_S
    timeout_s: float = TIMEOUT_S


PACE: Final = Pace()


class PodsStayGatedError(Exception):
    """Pods still have the gate at the end of the time."""


def policies_to_delete() -> Sequence[tuple[Resource, str]]:
    """Return the resource and name of bindings, and then of policies.

    Without the one that reads the Lease, which stays: see `admission.quota_gates`.
    """
    documents = [
        document for document in gate_documents() if document["metadata"]["name"] != HOLDER_POLICY
    ]
    documents.sort(key=lambda document: not document["kind"].endswith("Binding"))
    return [(RESOURCES[document["kind"]], document["metadata"]["name"]) for document in documents]


async def unlock_pods(client: Client, clock: Callable[[], float], pace: Pace = PACE) -> int:
    """Delete the policies, and remove the gates of all pods; return the number of gates removed.

    Args:
        clock: Monotonic seconds.

    Raises:
        PodsStayGatedError: The time is over.
        KubeError: Policies cannot be deleted, or pods cannot be listed.
    """
    for resource, name in policies_to_delete():
        try:
            await client.delete(resource, name)
        except NotFound:
            continue
        log.info("uninstall.policy_deleted", resource=resource.plural, policy=name)
    removed = 0
    quiet_from_s = clock()
    deadline_s = quiet_from_s + pace.timeout_s
    while True:
        pods = await _gated_pods(client)
        failures = [failure for pod in pods if (failure := await _remove(client, pod))]
        removed += len(pods) - len(failures)
        now_s = clock()
        if pods:
            quiet_from_s = now_s
        elif now_s - quiet_from_s >= pace.quiet_s:
            return removed
        if now_s >= deadline_s:
            why = failures[-1] if failures else "pods get it again and again"
            raise PodsStayGatedError(
                f"{len(pods)} pods still have the scheduling gate: {why}; see docs/quota-gates.md"
            )
        await asyncio.sleep(pace.period_s)


async def _gated_pods(client: Client) -> Sequence[Pod]:
    return [
        pod
        async for page in client.pages(PODS)
        for raw in page.items
        if is_gated(pod := decode(bytes(raw), Pod))
    ]


async def _remove(client: Client, pod: Pod) -> str:
    """Remove the gate of a pod; return the reason for a failure, empty if the pod has none any more."""
    metadata = pod.metadata
    try:
        await client.patch(
            PODS,
            metadata.name,
            removal_patch(pod),
            PatchType.JSON,
            msgspec.Raw,
            namespace=metadata.namespace,
        )
    except NotFound:
        return ""
    except KubeError as error:
        log.info(
            "uninstall.removal_failed", pod=f"{metadata.namespace}/{metadata.name}", why=str(error)
        )
        return str(error)
    return ""
