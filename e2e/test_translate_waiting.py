"""Translated pods that are too large wait: the event names an amount for their own keys, and they run with it.

The observer writes about pods of the stock scheduler, the bridge about its own. Namespaces without
enforcement let such a pod in; elsewhere it is denied in the same words.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged
from e2e.drawbridge import ROOT, Drawbridge, install_drawbridge
from e2e.objects import pod
from kube.names import ENFORCEMENT_LABEL, OBSERVER_REPORTER, SIDECAR_REPORTER

IMPATIENT: Final = {"observer": {"initialDelay": "500ms", "reevaluationPeriod": "500ms"}}
GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
LARGE_MIB: Final = 200_000
"""More than any GPU has."""

pytestmark = pytest.mark.usefixtures("drawbridge", "fleet")


@pytest.fixture(scope="module")
def observer(cluster: Access, drawbridge: Drawbridge) -> Iterator[Drawbridge]:
    installed = install_drawbridge(
        cluster, manifests=ROOT / "manifests" / "observer", settings=IMPATIENT
    )
    yield installed
    installed.uninstall()


@pytest.fixture
def lenient(cluster: Access, namespace: str) -> str:
    """A namespace without enforcement: pods that fit no node are let in."""
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=off")
    return namespace


def sharing(name: str, memory_mib: int) -> Object:
    """A pod that requests a share by HAMi's keys."""
    return pod(name, limits={GPU: 1, MEMORY: memory_mib})


def apply(cluster: Access, namespace: str, document: Object) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(document))


def told(cluster: Access, namespace: str, reporter: str) -> int:
    """Wait for an event with the closest fit; return the amount of the pod's own key that it names."""
    amounts: list[str] = []

    def is_told() -> bool:
        notes = [
            event.get("note", "")
            for event in cluster.objects("events.events.k8s.io", namespace)
            if event["reportingController"] == reporter
        ]
        amounts[:] = re.findall(
            rf"Closest fit: write {re.escape(MEMORY)}: (\d+) to fit", "\n".join(notes)
        )
        return bool(amounts)

    cluster.wait_until(is_told, f"{reporter} says what fits")
    return int(amounts[0])


def test_an_event_of_the_observer_is_followed(
    cluster: Access, observer: Drawbridge, lenient: str
) -> None:
    apply(cluster, lenient, sharing("large", LARGE_MIB))

    fitting_mib = told(cluster, lenient, OBSERVER_REPORTER)

    apply(cluster, lenient, sharing("mended", fitting_mib))
    cluster.wait_running("mended", lenient)


def test_an_event_of_the_bridge_is_followed(cluster: Access, bridge: Bridge, lenient: str) -> None:
    apply(cluster, lenient, bridged(sharing("large", LARGE_MIB)))

    fitting_mib = told(cluster, lenient, SIDECAR_REPORTER)

    apply(cluster, lenient, bridged(sharing("mended", fitting_mib)))
    cluster.wait_running("mended", lenient)
