"""Processes that a network cuts off from the API server: packets are lost, and connections stay.

Nobody hears of it but by silence, and what was sent meanwhile arrives when the network is back.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from e2e import inventory
from e2e.access import Access, stream
from e2e.audit import conflicts, log_length, stored_claims
from e2e.bridge import LEASE, Bridge, bridged, doubly_held
from e2e.credentials import kubeconfig, write_secret
from e2e.drawbridge import CERTIFICATES, CONTROLLER, WEBHOOK, Drawbridge
from e2e.inventory import EXAMPLE
from e2e.link import Link
from e2e.objects import pod
from e2e.owned import AUDITED, SHORT_LEASE, Owned, taker
from e2e.translated import legacy_keys
from kube.names import NAMESPACE

TIMEOUT_S: Final = 120.0
PODS: Final = 6
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


# --- the sidecar ----------------------------------------------------------------------------------


@pytest.fixture
def link(owned_bridge: Owned) -> Iterator[Link]:
    """The link between the sidecar of replica `cut-off` and the API server; `PODS` devices."""
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="partition"),
        lambda node: inventory.example_gpus(node, gpus=PODS),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.stop("a")
    with Link(cluster.entry()) as link_:
        yield link_
        link_.mend()
    owned_bridge.bridge.ensure()
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


@pytest.fixture
def impatient(owned_bridge: Owned, link: Link) -> Iterator[Bridge]:
    """The bridge with a short Lease and `cut-off` as the active replica."""
    bridge = Bridge(owned_bridge.cluster, drivers=(), settings=SHORT_LEASE)
    file = bridge.replica("cut-off").folder / "sidecar.kubeconfig"
    document = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    document["clusters"][0]["cluster"] = link.entry()
    file.unlink()
    write_secret(file, json.dumps(document))
    bridge.wait_working("cut-off")
    yield bridge
    link.mend()
    for name in ("cut-off", "stand-by"):
        bridge.stop(name)


@pytest.mark.parametrize("cluster", [AUDITED], indirect=True)
def test_a_sidecar_behind_a_partition_writes_nothing_that_counts_and_leads_again(
    owned_bridge: Owned, link: Link, impatient: Bridge
) -> None:
    cluster, began = owned_bridge.cluster, log_length(owned_bridge.cluster)
    first, second, third = (
        [f"{part}-{number}" for number in range(PODS // 3)] for part in ("early", "cut", "late")
    )
    owned_bridge.apply(*(bridged(taker(name)) for name in first))
    owned_bridge.running(*first)
    leader = cluster.get("lease", LEASE, NAMESPACE)["spec"]["holderIdentity"]
    sidecar = impatient.child("sidecar", "cut-off")

    link.swallow()
    # Its scheduler still hears of them, and has it decide.
    owned_bridge.apply(*(bridged(taker(name)) for name in second))
    impatient.start("stand-by")
    impatient.wait_working("stand-by")
    owned_bridge.running(*second)
    assert cluster.get("lease", LEASE, NAMESPACE)["spec"]["holderIdentity"] != leader
    cluster.wait_until(
        lambda: sidecar.exit_status is not None, "it knows that it is cut off", timeout_s=TIMEOUT_S
    )

    link.mend()  # What it had sent arrives.
    impatient.tend("cut-off", "stand-by")
    impatient.stop("stand-by")
    impatient.wait_working("cut-off")
    owned_bridge.apply(*(bridged(taker(name)) for name in third))
    # A scheduler ends if its sidecar is new and does not lead yet, and comes again as a kubelet would have it.
    owned_bridge.running_while_tended(impatient, third, "cut-off")
    assert [] == doubly_held(cluster)
    assert [] == conflicts(stored_claims(cluster, began))


# --- webhook and controllers ----------------------------------------------------------------------


@pytest.fixture
def behind(cluster: Access, drawbridge: Drawbridge, fleet: list[str]) -> Iterator[Link]:
    """The link between webhook, controllers and certificates and the API server."""
    processes = (WEBHOOK, CONTROLLER, CERTIFICATES)
    with Link(cluster.entry()) as link_:
        for name in processes:
            drawbridge.stop(name)
            user = {"token": cluster.token(drawbridge.namespace, name)}
            file = cluster.directory / f"{name}.behind.kubeconfig"
            write_secret(file, kubeconfig(link_.entry(), user))
            drawbridge.start(name, environment={"KUBECONFIG": str(file)})
        drawbridge.wait_ready()
        yield link_
        link_.mend()
        for name in processes:
            drawbridge.stop(name)
            drawbridge.start(name)
            (cluster.directory / f"{name}.behind.kubeconfig").unlink()
        drawbridge.wait_ready()


def test_pods_are_admitted_behind_a_partition_and_get_their_templates_after_it(
    cluster: Access, drawbridge: Drawbridge, behind: Link, namespace: str
) -> None:
    def create(name: str) -> None:
        document = stream(pod(name, limits=LIMITS))
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=document)

    create("before")
    cluster.wait_running("before", namespace)
    lost = drawbridge.log(CONTROLLER).count("lease.lost")

    behind.swallow()
    create("meanwhile")
    assert legacy_keys(cluster.get("pods", "meanwhile", namespace)) == set()
    cluster.wait_until(
        lambda: drawbridge.log(CONTROLLER).count("lease.lost") > lost,
        "the controller leads no more",
        timeout_s=TIMEOUT_S,
    )
    behind.mend()

    cluster.wait_running("meanwhile", namespace, timeout_s=TIMEOUT_S)
    drawbridge.wait_ready()
    for name in (WEBHOOK, CONTROLLER, CERTIFICATES):
        assert cluster.children[name].exit_status is None, name
    (template,) = cluster.objects("resourceclaimtemplates", namespace)
    assert len(cluster.objects("resourceclaims", namespace)) == 2, template["metadata"]["name"]
