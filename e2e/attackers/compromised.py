"""Attackers with the credentials of one of our processes, or of a node.

Each does what its account may do; the objects that it writes are its own, and keep their meaning.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from e2e import inventory
from e2e.attackers.target import DRY_RUN, Caller, Target, text
from kube.names import (
    BRIDGE_ACCOUNT,
    CERTIFICATES_REPORTER,
    CONTROLLER_REPORTER,
    NAMESPACE,
    OBSERVER_NAMESPACE,
    OBSERVER_REPORTER,
    SIDECAR_REPORTER,
)
from testing.documents import api_object

OBSERVER: Final = "drawbridge-observer"
WEBHOOK: Final = "drawbridge-webhook"
CONTROLLERS: Final = "drawbridge-controller"
CERTIFICATES: Final = "drawbridge-certificates"
ACCOUNTS: Final[Mapping[str, tuple[str, str]]] = {
    OBSERVER: (OBSERVER_NAMESPACE, OBSERVER),
    **{name: (NAMESPACE, name) for name in (WEBHOOK, CONTROLLERS, CERTIFICATES, BRIDGE_ACCOUNT)},
}
"""Namespace and name of each account, by the name under which an attacker has its token."""

_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
_CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_OURS: Final = f"/api/v1/namespaces/{NAMESPACE}"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_OWNERSHIP: Final = "/apis/drawbridge.internal/v1alpha1/allocatorownerships/default/status"


def observer(target: Target, chance: random.Random) -> Iterator[int]:
    """List all ResourceSlices and write events, by turns: the rights of the observer's token."""
    with target.caller(OBSERVER) as caller:
        while True:
            yield _write_event(caller, target, OBSERVER_REPORTER, chance)
            yield _list(caller, _SLICES)


def webhook(target: Target, _chance: random.Random) -> Iterator[int]:
    """List devices, claims, nodes and classes, by turns: the webhook's token writes nothing."""
    with target.caller(WEBHOOK) as caller:
        for path in itertools.cycle((_SLICES, _CLAIMS, _NODES, _CLASSES)):
            yield _list(caller, path)


def controllers(target: Target, chance: random.Random) -> Iterator[int]:
    """List devices and pods, write events, and change the ConfigMap that webhooks watch, by turns."""
    with target.caller(CONTROLLERS) as caller:
        while True:
            yield _list(caller, _SLICES)
            yield _write_event(caller, target, CONTROLLER_REPORTER, chance)
            yield _list(caller, _PODS)
            yield _change(caller, f"{_OURS}/configmaps/drawbridge-inventory", chance)


def certificate_controller(target: Target, chance: random.Random) -> Iterator[int]:
    """Change the Secret with the path keys, list the configurations, and write events, by turns.

    Webhooks watch the Secret. Its keys stay as they are: whoever may write them may replace them, and is
    trusted.
    """
    with target.caller(CERTIFICATES) as caller:
        while True:
            yield _change(caller, f"{_OURS}/secrets/drawbridge-webhook-path", chance)
            yield _list(caller, f"{_CONFIGURATIONS}?fieldSelector=metadata.name%3Dzz-drawbridge")
            yield _write_event(caller, target, CERTIFICATES_REPORTER, chance)


def bridge(target: Target, chance: random.Random) -> Iterator[int]:
    """List devices and claims, write events, and report another holder of the Lease, by turns.

    Scheduler and sidecar have one account. Webhooks watch the object with the report.
    """
    with target.caller(BRIDGE_ACCOUNT) as caller:
        while True:
            yield _list(caller, _SLICES)
            yield _write_event(caller, target, SIDECAR_REPORTER, chance)
            yield _list(caller, _CLAIMS)
            yield caller.patch(_OWNERSHIP, {"status": {"holder": text(chance, 12)}})


def node(target: Target, chance: random.Random) -> Iterator[int]:
    """Publish the devices of a node again and again, with other attributes each time.

    Everything that is kept about the inventory is made anew.
    """
    if target.node_files is None:
        return
    (document,) = inventory.example_gpus(target.node, gpus=target.devices)
    path = f"/apis/resource.k8s.io/v1/resourceslices/{document['metadata']['name']}"
    with target.kubelet() as caller:
        for generation in itertools.count(chance.randrange(10**6)):
            document["spec"]["pool"]["generation"] = generation
            for device in document["spec"]["devices"]:
                device["attributes"]["model"] = {"string": text(chance, 12)}
            patch = {"spec": document["spec"]}
            yield caller.patch(path, patch)


def _list(caller: Caller, path: str) -> int:
    return caller.request("GET", path)[0]


def _change(caller: Caller, path: str, chance: random.Random) -> int:
    """Change an annotation that nobody reads; all watchers of the object decode it anew."""
    return caller.patch(path, {"metadata": {"annotations": {"note": text(chance, 2_000)}}})


def _write_event(caller: Caller, target: Target, reporter: str, chance: random.Random) -> int:
    path = f"/apis/events.k8s.io/v1/namespaces/{target.namespace}/events{DRY_RUN}"
    return caller.post(path, _event(target.namespace, text(chance, 12), reporter))


def _event(namespace: str, name: str, reporter: str) -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return api_object(
        "Event",
        name,
        namespace,
        eventTime=now,
        type="Warning",
        reason="Hostile",
        action="Hostile",
        note=name * 50,
        reportingController=reporter,
        reportingInstance=name,
        regarding={"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name},
    )
