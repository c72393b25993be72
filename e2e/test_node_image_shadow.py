"""The chart in mode Shadow with the product's own image on a real node, and from there to claims.

What a person reads in NOTES.txt and docs/operations.md is what is done here: the legacy workload stays as
it is until its namespace has the label, and in the end nothing of Drawbridge is left.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from admission.quota_gates import HOLDER_POLICY
from e2e.access import Object, stream
from e2e.chart import CHART, DEFINITIONS, RELEASE, run_helm
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT
from e2e.gated import device_quota, gated_pods, remove_gates, wait_policies
from e2e.modes import GENERATED, reported_reasons
from e2e.node.driver import DRIVER, environment_of
from e2e.node.host_network import (
    NAMESPACE,
    PLUGIN,
    WORKLOADS,
    HostNetwork,
    host_network,
    write_plugin,
)
from e2e.node.node import Node
from e2e.node.pods import is_translated
from e2e.node.product_image import NAME
from e2e.node.product_pods import ROUTED, TIMEOUT_S, pods_of
from e2e.objects import claim_template, deployment, pod
from e2e.translated import legacy_keys
from kube.names import CONFIGURATION, REQUEST_ANNOTATION, TRANSLATE_LABEL

# Its own API server: one that knew the policy of the holder before denies removals, see docs/quota-gates.md.
pytestmark = pytest.mark.parametrize("cluster", [ROUTED | {"client_qps": 590}], indirect=True)

EXAMPLES: Final = ROOT / "examples" / "quickstart"
DRIVER_NAMESPACE: Final = "drawbridge-driver"
VALUES: Final = {
    "mode": "Shadow",
    "driver": {"enabled": True, "inventory": (EXAMPLES / "inventory.yaml").read_text()},
    "settings": {
        "translation": {"profiles": {"hami": DRIVER}},
        "controllers": {"auditPeriod": "2s"},
    },
}
KEPT: Final = {
    f"validatingadmissionpolicy{binding}.admissionregistration.k8s.io/{HOLDER_POLICY}"
    for binding in ("", "binding")
}
"""The chart leaves it on purpose, see docs/quota-gates.md."""
STATUS: Final = f"kubectl drawbridge status -n {NAMESPACE} --wait"


class Release:
    """A release of the chart on a node without a pod network."""

    def __init__(self, cluster: Cluster, node: str, folder: Path) -> None:
        """Write values and the post-renderer; nothing is installed yet."""
        self.cluster = cluster
        self._values = folder / "values.yaml"
        self._values.write_text(yaml.safe_dump(VALUES))
        where = ("--namespace", NAMESPACE, "--kube-version", "1.37.1")
        text = run_helm("template", RELEASE, CHART, *where, "--values", self._values)
        self._workloads = [
            (document["metadata"]["namespace"], document["metadata"]["name"])
            for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
            if document and document["kind"] in WORKLOADS
        ]
        self.network: HostNetwork = host_network(
            cluster, node, (name for _, name in self._workloads)
        )
        write_plugin(self.network, folder / "plugins")
        self._environment = {
            "HELM_PLUGINS": str(folder / "plugins"),
            "PYTHONPATH": str(ROOT),
        }

    def helm(self, verb: str, *arguments: str | Path) -> str:
        """Run Helm on the release; return its output."""
        return run_helm(
            *(verb, RELEASE, *arguments, "--namespace", NAMESPACE),
            kubeconfig=self.cluster.kubeconfig,
            environment=self._environment,
        )

    def install(self) -> str:
        """Install the chart; return its notes."""
        flags = ("--create-namespace", "--post-renderer", PLUGIN, "--values", self._values)
        return self.helm("install", CHART, *flags)

    def upgrade(self, *flags: str) -> str:
        """Change values of the release; return its notes."""
        return self.helm("upgrade", CHART, "--reuse-values", "--post-renderer", PLUGIN, *flags)

    def wait_rolled_out(self) -> None:
        """Wait until no workload has an old pod, and the driver publishes devices again.

        The kubelet deletes the slices of a driver that is away for half a minute, and a pod that fits no published
        device is charged with nothing.
        """
        for namespace, name in self._workloads:
            kind = "daemonset" if namespace == DRIVER_NAMESPACE else "deployment"
            words = ("rollout", "status", "-n", namespace, f"{kind}/{name}")
            self.cluster.kubectl(*words, f"--timeout={TIMEOUT_S:.0f}s")
        self.cluster.wait_until(
            lambda: any(
                entry["spec"]["driver"] == DRIVER and entry["spec"].get("devices")
                for entry in self.cluster.objects("resourceslices")
            ),
            "the driver publishes devices",
            timeout_s=TIMEOUT_S,
        )

    def pods(self) -> list[Object]:
        """Return all pods of the release."""
        return pods_of(self.cluster, {namespace for namespace, _ in self._workloads})

    @property
    def names(self) -> set[str]:
        """The names of its workloads."""
        return {name for _, name in self._workloads}

    def metrics(self, component: str) -> str:
        """Return the metrics of a component, as a person reads them through the API server."""
        (pod,) = self.cluster.objects(
            "pods", NAMESPACE, selector=f"app.kubernetes.io/component={component}"
        )
        port = self.network.ports[f"drawbridge-{component}"]["metrics"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:{port}/proxy/metrics"
        return self.cluster.kubectl("get", "--raw", path).stdout


@pytest.fixture
def offering_node(cluster: Cluster, real_node: Node) -> Iterator[Node]:
    """The real node, with the amounts that a device plugin of HAMi and its scheduler would serve."""
    amounts = {"nvidia.com/gpu": "20", "nvidia.com/gpumem": "160000", "nvidia.com/gpucores": "200"}
    cluster.kubectl("label", "node", real_node.name, "drawbridge.internal/driver=true")
    _patch_capacity(cluster, real_node.name, amounts)
    yield real_node
    _patch_capacity(cluster, real_node.name, dict.fromkeys(amounts))
    cluster.kubectl("label", "node", real_node.name, "drawbridge.internal/driver-")


def _patch_capacity(cluster: Cluster, node: str, amounts: dict[str, Any]) -> None:
    patch = json.dumps({"status": {"capacity": amounts}})
    cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)


@pytest.fixture
def release(
    cluster: Cluster, offering_node: Node, product_image: None, tmp_path: Path
) -> Iterator[Release]:
    """The chart, to be installed; removed if the story does not come to that."""
    release_ = Release(cluster, offering_node.name, tmp_path)
    yield release_
    # What the story does itself, if it ends early.
    quiet = ("--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", ",".join(GENERATED), CONFIGURATION, *quiet)
    cluster.kubectl("delete", "namespace", NAMESPACE, DRIVER_NAMESPACE, *quiet)
    remove_gates(cluster)
    # What the next story applies while it goes would be gone a moment later.
    cluster.kubectl("delete", "crd", *DEFINITIONS, "--ignore-not-found")
    for namespace in (NAMESPACE, DRIVER_NAMESPACE):
        cluster.wait_gone("namespaces", namespace, timeout_s=TIMEOUT_S)


def legacy_workload() -> Object:
    """Return a Deployment of one pod with HAMi's keys."""
    return deployment(
        "legacy", yaml.load((EXAMPLES / "fraction.yaml").read_text(), Loader=yaml.CSafeLoader)
    )


def run(cluster: Cluster, command: str, page: str) -> str:
    """Run a command of kubectl that a page names; return its output."""
    assert command in page
    return cluster.kubectl(*command.split()[1:]).stdout


@pytest.mark.long
def test_a_cluster_looks_on_and_then_moves_one_namespace(
    cluster: Cluster, namespace: str, release: Release
) -> None:
    manifest = json.dumps(legacy_workload())
    notes = release.install()
    status = run(cluster, STATUS, notes)
    assert "Shadow" in status
    pods = release.pods()
    assert len(pods) == len(release.names)
    assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {NAME}

    # In Shadow the workload is created and runs as it is written.
    dry = cluster.kubectl(
        "apply", "-n", namespace, "--dry-run=server", "-f", "-", input=manifest
    ).stderr
    assert f"would get claims of DeviceClass {DRIVER} in place of its device keys" in dry
    created = cluster.kubectl("apply", "-n", namespace, "-f", "-", input=manifest)
    assert created.stderr == ""
    before = wait_running(cluster, namespace)
    keys = set(
        legacy_workload()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    )
    assert legacy_keys(before) == keys
    assert REQUEST_ANNOTATION not in before["metadata"].get("annotations", {})
    assert cluster.objects("resourceclaimtemplates", namespace) == []
    cluster.wait_until(
        lambda: (
            reported_reasons(cluster, namespace) == {"Deployment/legacy": ["WouldBeTranslated"]}
        ),
        "the workload has one event",
        timeout_s=TIMEOUT_S,
    )
    events = "kubectl events -A --types=Normal,Warning"
    assert "WouldBeTranslated" in run(cluster, events, notes)
    counted = 'drawbridge_shadow_reviews_total{decision="translated",kind="Pod",operation="CREATE"}'
    assert f"{counted} 1.0" in release.metrics("webhook")
    assert "Deployment" in run(cluster, "kubectl drawbridge assess", notes)

    # In OptIn nothing changes for it, until its namespace has the label and its pod is a new one.
    notes = release.upgrade("--set", "mode=OptIn")
    assert "OptIn: 0 namespaces" in run(cluster, STATUS, notes)
    assert f"kubectl label namespace NAME {TRANSLATE_LABEL}=true" in notes
    cluster.kubectl("label", "namespace", namespace, f"{TRANSLATE_LABEL}=true")
    probe = yaml.load((EXAMPLES / "fraction.yaml").read_text(), Loader=yaml.CSafeLoader)
    cluster.wait_until(
        lambda: is_translated(cluster, namespace, probe),
        "pods of the namespace are translated",
        timeout_s=TIMEOUT_S,
    )
    assert wait_running(cluster, namespace)["metadata"]["uid"] == before["metadata"]["uid"]
    cluster.kubectl("rollout", "restart", "-n", namespace, "deployment/legacy")
    rollout = ("rollout", "status", "-n", namespace, "deployment/legacy")
    cluster.kubectl(*rollout, f"--timeout={TIMEOUT_S:.0f}s")
    after = wait_running(cluster, namespace)
    assert legacy_keys(after) == set()
    variables = environment_of(
        cluster.kubectl("logs", "-n", namespace, after["metadata"]["name"]).stdout
    )
    assert str(3000 * 2**20) == variables["DRAWBRIDGE_DEVICE_GPU_0_MEMORY"]

    # Without its pods with devices the driver may go, and then everything.
    cluster.kubectl("delete", "-n", namespace, "deployment", "legacy")
    cluster.wait_until(
        lambda: not cluster.objects("pods", namespace), "its pods are gone", timeout_s=TIMEOUT_S
    )
    release.upgrade("--set", "quotaGates.enabled=true")
    release.wait_rolled_out()
    lock_one_of_two_pods(cluster, namespace)
    uninstall(cluster, release, notes)
    # The Job of the hook has run as a container.
    assert gated_pods(cluster, namespace) == []
    cluster.wait_until(
        lambda: set(left(cluster)) == KEPT, "nothing else is left", timeout_s=TIMEOUT_S
    )
    cluster.kubectl("delete", *sorted(KEPT))


def lock_one_of_two_pods(cluster: Cluster, namespace: str) -> None:
    """Create two pods with a quota of one device; the other one waits behind the gate, and neither gets a node."""
    cluster.apply(device_quota(namespace, DRIVER, 1))
    nowhere = {"nodeSelector": {"example.com/nowhere": "true"}}
    first, second = [pod(name, claims={"gpu": "wanted"}, **nowhere) for name in ("first", "second")]
    apply = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*apply, input=stream(claim_template("wanted", DRIVER)))
    wait_policies(cluster, namespace, first, TIMEOUT_S)
    cluster.kubectl(*apply, input=stream([first, second]))
    cluster.wait_until(
        lambda: len(gated_pods(cluster, namespace)) == 1, "one waits", timeout_s=TIMEOUT_S
    )


def wait_running(cluster: Cluster, namespace: str) -> Object:
    """Return the only pod of the workload as soon as it runs."""
    running: list[Object] = []

    def is_running() -> bool:
        running[:] = cluster.objects("pods", namespace, selector="app=legacy")
        return [pod["status"].get("phase") for pod in running] == ["Running"]

    cluster.wait_until(is_running, "the only pod of the workload runs", timeout_s=TIMEOUT_S)
    return running[0]


def uninstall(cluster: Cluster, release: Release, notes: str) -> None:
    """Follow the notes and docs/operations.md, in their order."""
    page = (ROOT / "docs" / "operations.md").read_text()
    stop = f"kubectl delete {','.join(kind.lower() for kind in GENERATED)} {CONFIGURATION}"
    run(cluster, stop, notes)
    assert f"helm uninstall {RELEASE} -n {NAMESPACE}" in notes
    release.helm("uninstall")
    for command in (
        f"kubectl delete namespace {NAMESPACE}",
        "kubectl delete crd -l app.kubernetes.io/part-of=drawbridge",
        "kubectl delete resourceclaimtemplates --all-namespaces -l drawbridge.internal/managed",
    ):
        run(cluster, command, page)


def left(cluster: Cluster) -> list[str]:
    """Return the objects of all kinds but events that have our name."""
    words = ("api-resources", "--verbs=list", "-o", "name")
    kinds = [kind for kind in cluster.kubectl(*words).stdout.split() if "events" not in kind]
    get = ("get", ",".join(kinds), "--all-namespaces", "-o", "name")
    output = cluster.kubectl(*get, check=False)
    if output.returncode != 0:
        return [output.stderr]  # A kind that was still listed is gone.
    return [name for name in output.stdout.split() if "drawbridge" in name]
