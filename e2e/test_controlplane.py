"""The cluster itself: everything that all other stories take for granted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.binaries import KUBERNETES
from e2e.cluster import Cluster
from e2e.objects import claim_template, pod


def test_version_is_the_one_that_is_pinned(own_cluster: Cluster) -> None:
    version = json.loads(own_cluster.kubectl("version", "--output=json").stdout)

    assert f"v{KUBERNETES}" == "v1.37.1"
    assert f"v{KUBERNETES}" == version["serverVersion"]["gitVersion"]
    assert f"v{KUBERNETES}" == version["clientVersion"]["gitVersion"]


def test_only_the_stable_version_of_resource_k8s_io_is_served(own_cluster: Cluster) -> None:
    parts = own_cluster.kubectl("api-versions").stdout.split()

    assert [version for version in parts if version.startswith("resource.k8s.io")] == [
        "resource.k8s.io/v1"
    ]


def test_a_plain_pod_runs(cluster: Access, namespace: str, nodes: list[str]) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(pod("plain")))

    assert cluster.wait_running("plain", namespace)["spec"]["nodeName"]


def test_a_pod_gets_the_devices_it_claims_and_gives_them_back(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    objects = [
        claim_template("two-gpus", inventory.EXAMPLE, count=2),
        pod("training", claims={"gpu": "two-gpus"}),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    running = cluster.wait_running("training", namespace)

    name = running["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    claim = cluster.get("resourceclaims", name, namespace)
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [result["driver"] for result in results] == [inventory.EXAMPLE] * 2
    assert {running["spec"]["nodeName"]} == {result["pool"] for result in results}
    assert claim["status"]["reservedFor"][0]["name"] == "training"

    cluster.kubectl("delete", "-n", namespace, "pod", "training")
    cluster.wait_gone("resourceclaims", name, namespace)


def test_every_driver_s_devices_can_be_allocated(cluster: Access, namespace: str) -> None:
    cluster.apply(inventory.device_classes())
    classes = {
        inventory.NVIDIA: inventory.nvidia_gpus,
        inventory.NVIDIA_MIG_CLASS: inventory.nvidia_mig,
        inventory.HAMI: inventory.hami_gpus,
    }
    names = [f"{namespace}-{number}" for number in range(len(classes))]
    publish = dict(zip(names, classes.values(), strict=True))
    cluster.add_nodes(map(inventory.kwok_node, names), lambda node: publish[node](node, gpus=1))
    try:
        for node, device_class in zip(names, classes, strict=True):
            objects = [
                claim_template(device_class, device_class),
                pod(
                    node,
                    claims={"gpu": device_class},
                    nodeSelector={"kubernetes.io/hostname": node},
                ),
            ]
            cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
        for node in names:
            assert node == cluster.wait_running(node, namespace)["spec"]["nodeName"]
    finally:
        cluster.remove_nodes(names)


@pytest.mark.parametrize(
    "objects",
    [
        inventory.nvidia_gpus("node", gpus=130, model=inventory.H100_80GB),
        inventory.nvidia_mig("node", gpus=8),
        inventory.nvidia_mig(
            "node", model=inventory.A100_80GB, layout=inventory.MIG_LAYOUT_80GB, gpus=2
        ),
        inventory.nvidia_mig("node", layout=("1g.5gb+me", *["1g.5gb"] * 6)),
        inventory.hami_gpus("node", model=inventory.T4),
        inventory.example_gpus("node"),
        inventory.example_gpus("node", shared=True),
        inventory.device_classes(),
        inventory.nvidia_classes(extended_resource=""),
    ],
    ids=[
        "more whole GPUs than one slice holds",
        "A100 of 40 GB cut up",
        "A100 of 80 GB cut up",
        "media extensions on one instance",
        "HAMi's shares",
        "gpu.example.com",
        "gpu.example.com with shares",
        "all classes",
        "classes without an extended resource",
    ],
)
def test_the_api_server_takes_what_the_builders_make(
    cluster: Access, objects: list[Object]
) -> None:
    command = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")

    assert cluster.kubectl(*command, input=stream(objects)).stderr == ""


def test_a_service_account_has_its_own_rights_only(cluster: Access, namespace: str) -> None:
    config = cluster.kubeconfig_for(namespace, "default")

    output = cluster.kubectl("get", "nodes", kubeconfig=config, check=False)

    assert output.returncode == 1
    assert f'User "system:serviceaccount:{namespace}:default" cannot list' in output.stderr


@pytest.mark.parametrize(
    "cluster",
    [{"feature_gates": {"DRADeviceCompatibilityGroups": True}}],
    indirect=True,
    ids=["a gate that is off by default"],
)
def test_feature_gates_are_a_parameter(cluster: Access) -> None:
    metric = 'kubernetes_feature_enabled{name="DRADeviceCompatibilityGroups",stage="ALPHA"}'

    assert f"{metric} 1" in cluster.api_metrics()


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        pytest.param({"CI": "1"}, "1 error", id="in CI a skip fails"),
        pytest.param({}, "1 skipped", id="what needs flags is skipped", marks=pytest.mark.long),
    ],
)
def test_an_existing_cluster_will_do(
    own_cluster: Cluster, environment: dict[str, str], want: str
) -> None:
    stories = "test_a_plain_pod_runs or test_version"
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    existing = {"DRAWBRIDGE_E2E_KUBECONFIG": str(own_cluster.kubeconfig)}

    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "e2e", "-k", stories, __file__],
        cwd=Path(__file__).parent.parent,
        env={**inherited, **existing, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    summary = completed.stdout.splitlines()[-1]
    assert "1 passed" in summary, completed.stdout
    assert want in summary, completed.stdout
