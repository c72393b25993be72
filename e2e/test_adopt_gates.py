"""A cluster with feature gate DRAConsumableCapacity off: no pod gets more than it requested."""

import json
from typing import Any

import pytest

from e2e.access import Access, stream
from e2e.drawbridge import Drawbridge, command_line
from e2e.objects import pod
from e2e.translated import legacy_keys
from kube.names import REQUEST_ANNOTATION

GATE = "DRAConsumableCapacity"
pytestmark = pytest.mark.parametrize(
    "cluster", [{"feature_gates": {GATE: False}}], indirect=True, ids=["without-shares"]
)
GPU = "nvidia.com/gpu"
SHARE = {GPU: 1, "nvidia.com/gpumem": 100}
TIMEOUT_S = 90.0


def create(cluster: Access, namespace: str, document: dict[str, Any], *flags: str) -> str:
    """Return the output of kubectl; the pod may be rejected."""
    command = ("create", "-n", namespace, *flags, "-o", "json", "-f", "-")
    result = cluster.kubectl(*command, input=stream(document), check=False)
    return result.stdout + result.stderr


@pytest.mark.usefixtures("fleet")
def test_shares_are_refused_and_whole_devices_are_not(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    """The controllers find out by a dry run, and every replica of the webhook follows."""
    share, whole = pod("share", limits=SHARE), pod("whole", limits={GPU: 1})
    cluster.wait_until(
        lambda: "sharesNotSupported" in create(cluster, namespace, share, "--dry-run=server"),
        "shares are refused",
        timeout_s=TIMEOUT_S,
    )
    stored = cluster.get("configmaps", "drawbridge-inventory", drawbridge.namespace)
    assert json.loads(stored["data"]["featureGates"]) == {GATE: False}
    assert cluster.find("pods", "share", namespace) is None

    create(cluster, namespace, whole)

    made = cluster.get("pods", "whole", namespace)
    is_translated = REQUEST_ANNOTATION in made["metadata"].get("annotations", {})
    assert is_translated is not bool(legacy_keys(made))
    assert all(
        "capacity" not in request["exactly"]
        for template in cluster.objects("resourceclaimtemplates", namespace)
        for request in template["spec"]["spec"]["devices"]["requests"]
    )


@pytest.mark.usefixtures("fleet", "drawbridge")
def test_the_command_line_says_the_same(cluster: Access, namespace: str) -> None:
    cluster.wait_until(
        lambda: (
            json.loads(command_line(cluster, "status", "-o", "json").stdout)["featureGates"].get(
                GATE
            )
            is False
        ),
        "the status tells the gate",
        timeout_s=TIMEOUT_S,
    )
    flags = ("--live", "-n", namespace, "-o", "json", "-f", "-")

    def codes() -> set[str]:
        text = stream(pod("share", limits=SHARE))
        answer = json.loads(command_line(cluster, "translate", *flags, input=text).stdout)
        return {finding["code"] for finding in answer["findings"]}

    cluster.wait_until(
        lambda: "sharesNotSupported" in codes(),
        "translate --live refuses the share",
        timeout_s=TIMEOUT_S,
    )
