"""`helm uninstall` while pods wait behind the gate of DeviceQuotas: none stays locked.

Images run nowhere here. The Job of the hook is played as Deployments are in other stories: its own command, with
its own account, as a process beside the cluster; so kwok leaves its pod alone, and the story ends it.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from admission.quota_gates import HOLDER_POLICY
from e2e.access import Object, stream
from e2e.chart import CHART, RELEASE, run_helm
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT, command_of
from e2e.gated import device_quota, gated_pods, wait_policies
from e2e.objects import pod
from e2e.older_kubernetes import needs
from e2e.small_inventory import add_nodes, asking, gpu, template
from e2e.stand_in import StandIn
from kube.names import CONTROLLER_ACCOUNT, NAMESPACE, QUOTA_GATE_POLICY

DRIVER: Final = "uninstall.quota.example.com"
HOOK: Final = "drawbridge-uninstall"
FLAGS: Final = ("--set", "mode=OptOut", "--set", "quotaGates.enabled=true")
# A policy with a parameter that was deleted must not be created again in one API server process.
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 540}
TIMEOUT_S: Final = 60.0

pytestmark = [
    needs(36, "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1"),
    pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True),
]


class HookPlayer(StandIn):
    """Runs the command of the hook's Job, and ends its pod as the command ended.

    Attributes:
        log: The output of the command.
        present: The Deployments of the release when it began.
    """

    def __init__(self, cluster: Cluster, *, former: str) -> None:
        """Take a cluster.

        Args:
            former: The uid of a Job of the hook that came to no end.
        """
        super().__init__("hook")
        self.log = ""
        self._former = former
        self.present: list[str] = []
        self._cluster = cluster

    def _turn(self) -> None:
        selector = f"batch.kubernetes.io/job-name={HOOK}"
        for waiting in self._cluster.objects("pods", NAMESPACE, selector=selector):
            (owner,) = waiting["metadata"]["ownerReferences"]
            is_pending = waiting["status"].get("phase") == "Pending"
            if is_pending and owner["uid"] != self._former:
                self._play(waiting)

    def _play(self, waiting: Object) -> None:
        deployments = self._cluster.objects("deployments", NAMESPACE)
        self.present = [deployment["metadata"]["name"] for deployment in deployments]
        (container,) = waiting["spec"]["containers"]
        account = waiting["spec"]["serviceAccountName"]
        kubeconfig = self._cluster.kubeconfig_for(NAMESPACE, account)
        command = (*command_of(container), "--kubeconfig", str(kubeconfig))
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.log += result.stdout + result.stderr
        phase = "Failed" if result.returncode else "Succeeded"
        path = self._cluster.kind("pods").path(NAMESPACE, waiting["metadata"]["name"])
        self._cluster.request(
            "PATCH",
            f"{path}/status",
            {"status": {"phase": phase}},
            content_type="application/merge-patch+json",
        )


@pytest.fixture
def locked(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A namespace with two pods that wait behind the gate, with the chart installed."""
    run_helm(
        *("install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace", *FLAGS),
        kubeconfig=cluster.kubeconfig,
    )
    nodes = add_nodes(cluster, DRIVER, {"uninstall-node": [gpu("gpu-0", "80Gi"), gpu("b", "80Gi")]})
    cluster.apply(device_quota(namespace, DRIVER, 0))
    apply = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*apply, input=stream(template(asking(DRIVER), "wanted")))
    wait_policies(cluster, namespace, pod("probe", claims={"gpu": "wanted"}), TIMEOUT_S)
    pods = [pod(name, claims={"gpu": "wanted"}) for name in ("first", "second")]
    cluster.kubectl(*apply, input=stream(pods))
    yield namespace
    cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
    cluster.kubectl("delete", "devicequotas", "--all")
    cluster.remove_nodes(nodes)


def policies(cluster: Cluster) -> set[str]:
    """Return the names of the policies about gates, and of their bindings."""
    kinds = (
        *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    )
    return {
        entry["metadata"]["name"]
        for kind in kinds
        for entry in cluster.objects(kind)
        if entry["metadata"]["name"].startswith(QUOTA_GATE_POLICY)
    }


def test_helm_uninstall_unlocks_all_pods_before_it_deletes_anything(
    cluster: Cluster, locked: str
) -> None:
    uninstall = ("uninstall", RELEASE, "--namespace", NAMESPACE)
    names = ["first", "second"]
    assert gated_pods(cluster, locked) == names

    # A hook that does not end deletes nothing, so that the controllers go on.
    message = run_helm(*uninstall, "--timeout", "3s", kubeconfig=cluster.kubeconfig, fails=True)
    assert HOOK in message
    assert gated_pods(cluster, locked) == names
    assert QUOTA_GATE_POLICY in policies(cluster)
    assert cluster.find("deployments", CONTROLLER_ACCOUNT, NAMESPACE) is not None

    former = cluster.get("jobs", HOOK, NAMESPACE)["metadata"]["uid"]
    with HookPlayer(cluster, former=former) as player:
        run_helm(*uninstall, "--timeout", "3m", kubeconfig=cluster.kubeconfig)

    assert CONTROLLER_ACCOUNT in player.present, player.log
    assert gated_pods(cluster, locked) == [], player.log
    for name in names:
        cluster.wait_running(name, locked, timeout_s=TIMEOUT_S)
    # The one with the Lease stays on purpose.
    assert policies(cluster) == {HOLDER_POLICY}
    assert cluster.find("deployments", CONTROLLER_ACCOUNT, NAMESPACE) is None
    for kind in ("jobs", "serviceaccounts"):
        assert cluster.find(kind, HOOK, NAMESPACE) is None, kind
    assert cluster.find("clusterroles", HOOK) is None
    later = json.loads(
        cluster.kubectl(
            *("apply", "-n", locked, "-f", "-", "-o", "json"),
            input=stream(pod("third", claims={"gpu": "wanted"})),
        ).stdout
    )
    assert "schedulingGates" not in later["spec"]
