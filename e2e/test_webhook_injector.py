"""Another webhook adds device resources after ours: they are translated in the second round.

The API server asks again only whom it asked in the first round, which is why our configuration
matches what makes such webhooks add resources, and not only resources.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.access import Access, Object, stream
from e2e.cluster import Cluster
from e2e.injector import LABEL, Injector
from e2e.objects import pod
from e2e.translated import devices, legacy_keys
from kube.names import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

SHARE = "nvidia.com/gpumem"
NIC = "openshift.io/nic"
NETWORKS = "k8s.v1.cni.cncf.io/networks"


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def injector(own_cluster: Cluster, namespace: str, resource: str, tmp_path: Path) -> Iterator[None]:
    """It listens on loopback, so that only an API server of ours reaches it."""
    cluster = own_cluster
    with Injector(cluster, namespace, resource, tmp_path):
        plain = pod("plain", labels={LABEL: "yes"})
        cluster.wait_until(
            lambda: "injected" in created(cluster, namespace, plain)["metadata"]["labels"],
            "the injector is called",
        )
        yield


def created(cluster: Access, namespace: str, document: Object) -> Object:
    """The pod as it would be created."""
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    shown: Object = json.loads(cluster.kubectl(*command, input=stream(document)).stdout)
    return shown


@pytest.mark.usefixtures("injector")
@pytest.mark.parametrize("resource", [NIC], indirect=True)
def test_a_resource_that_a_network_brings_later_becomes_a_claim(
    cluster: Access, namespace: str
) -> None:
    pod_ = pod("attached", labels={LABEL: "yes"}, annotations={NETWORKS: "blue"})

    shown = created(cluster, namespace, pod_)

    assert shown["metadata"]["labels"]["injected"] == "yes"
    assert legacy_keys(shown) == set()
    assert NIC not in json.dumps(shown["spec"])
    assert NIC in shown["metadata"]["annotations"][REQUEST_ANNOTATION]
    assert len(shown["spec"]["resourceClaims"]) == 1


@pytest.mark.usefixtures("injector")
@pytest.mark.parametrize("resource", [NIC], indirect=True)
def test_a_resource_that_comes_after_a_gpu_was_translated_is_translated_too(
    cluster: Access, namespace: str
) -> None:
    both = pod("both", labels={LABEL: "yes"}, limits={"nvidia.com/gpu": 1, SHARE: 1000})

    shown = created(cluster, namespace, both)

    assert NIC not in json.dumps(shown["spec"])
    assert len(shown["spec"]["resourceClaims"]) == 2


@pytest.mark.usefixtures("injector")
@pytest.mark.parametrize("resource", ["nvidia.com/gpucores"], indirect=True)
def test_a_pod_that_two_webhooks_changed_runs_on_what_both_asked_for(
    cluster: Access, namespace: str
) -> None:
    share = pod("share", labels={LABEL: "yes"}, limits={"nvidia.com/gpu": 1, SHARE: 1000})
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(share))

    running = cluster.wait_running("share", namespace)

    assert legacy_keys(running) == set()
    (main,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert set(main.amounts) == {"memory", "cores"}


@pytest.mark.usefixtures("injector")
@pytest.mark.parametrize("resource", ["nvidia.com/gpu"], indirect=True)
def test_what_nothing_announces_is_not_seen(cluster: Access, namespace: str) -> None:
    """The limit: neither a resource nor a known annotation, so we are not asked, nor asked again.

    The pod keeps the resource and waits; it does not run without a device.
    """
    shown = created(cluster, namespace, pod("silent", labels={LABEL: "yes"}))

    assert legacy_keys(shown) == {"nvidia.com/gpu"}
    assert "resourceClaims" not in shown["spec"]
