"""`drawbridge status` about the installation of the session: ready, and each way of not being so."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, Drawbridge, command_line
from e2e.modes import GENERATED, write_configurations
from e2e.objects import pod
from kube.names import CONFIGURATION
from translation.cluster.snapshot import Mode

WAIT: Final = ("--wait", "180s")
TIMEOUT_S: Final = 60.0
SHARE: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


def status(cluster: Access, *flags: str, exit_status: int) -> dict[str, Any]:
    """Return the output of the command about a cluster."""
    result = command_line(cluster, "status", "-o", "json", *flags)
    assert result.returncode == exit_status, result.stdout + result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def wrong(answer: dict[str, Any]) -> dict[str, str]:
    return {
        check["name"]: check["state"]
        for check in answer["checks"]
        if check["state"] in {"waiting", "failed"}
    }


def wait_wrong(cluster: Access, **expected: str) -> None:
    """Wait until nothing else is wrong: on a busy machine another component may be without a leader for a moment."""
    cluster.wait_until(
        lambda: wrong(status(cluster, exit_status=1)) == expected,
        f"{expected} alone is wrong",
        timeout_s=TIMEOUT_S,
    )


@contextmanager
def settings_map(drawbridge: Drawbridge, cluster: Access, text: str) -> Iterator[None]:
    """Have the cluster hold the settings of its processes for a while."""
    metadata = {"name": "drawbridge-settings", "namespace": drawbridge.namespace}
    document: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"settings.yaml": text},
    }
    cluster.kubectl("apply", "-f", "-", input=stream(document))
    try:
        yield
    finally:
        cluster.kubectl("delete", "configmap", metadata["name"], "-n", drawbridge.namespace)


@pytest.mark.usefixtures("fleet")
def test_an_installation_is_ready(cluster: Access, drawbridge: Drawbridge, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(pod("share", limits=SHARE)))
    cluster.wait_running("share", namespace)

    answer = status(cluster, *WAIT, exit_status=0)

    assert (answer["ready"], answer["mode"]) == (True, "OptOut")
    assert answer["namespace"] == drawbridge.namespace
    assert answer["featureGates"]["DRAConsumableCapacity"] is True
    assert answer["translatedPods"]["total"] >= 1
    assert "hami-core-gpu.project-hami.io" in {entry["driver"] for entry in answer["drivers"]}
    text = command_line(cluster, "status").stdout
    assert "ready" in text.splitlines()[0]
    assert len(text.splitlines()) < 50


@pytest.mark.usefixtures("fleet")
def test_a_component_that_is_gone_is_named_until_it_is_back(
    cluster: Access, drawbridge: Drawbridge
) -> None:
    status(cluster, *WAIT, exit_status=0)
    drawbridge.stop(CONTROLLER)
    try:
        # It gives its Lease back when it ends.
        wait_wrong(cluster, controller="failed")
    finally:
        drawbridge.start(CONTROLLER)
        drawbridge.wait_ready()

    status(cluster, *WAIT, exit_status=0)


@pytest.mark.usefixtures("fleet")
def test_the_emergency_stop_is_reported(cluster: Access, drawbridge: Drawbridge) -> None:
    cluster.kubectl("delete", ",".join(GENERATED), CONFIGURATION)
    try:
        answer = status(cluster, exit_status=1)

        assert {"mutating", "validating"} <= wrong(answer).keys()
        assert "apply the manifests again" in answer["nextStep"]
    finally:
        cluster.apply(drawbridge.webhook_configurations())
        drawbridge.wait_ready()

    status(cluster, *WAIT, exit_status=0)


@pytest.mark.usefixtures("fleet")
def test_the_mode_is_in_two_places_that_agree(cluster: Access, drawbridge: Drawbridge) -> None:
    """The configurations of OptIn alone are no mode; with the setting they are."""
    try:
        write_configurations(cluster, Mode.OPT_IN)
        wait_wrong(cluster, mode="failed")

        with settings_map(drawbridge, cluster, "translation: {mode: OptIn}\n"):
            answer = status(cluster, *WAIT, exit_status=0)
            assert (answer["mode"], wrong(answer)) == ("OptIn", {})
    finally:
        write_configurations(cluster, Mode.OPT_OUT)


@pytest.mark.usefixtures("fleet")
def test_settings_of_another_version_are_reported_before_an_upgrade(
    cluster: Access, drawbridge: Drawbridge
) -> None:
    def findings(exit_status: int) -> list[str]:
        result = command_line(cluster, "check-upgrade", "--live", "-o", "json")
        assert result.returncode == exit_status, result.stdout + result.stderr
        return [
            entry["code"]
            for entry in json.loads(result.stdout)["findings"]
            if entry["severity"] == "error"
        ]

    assert findings(0) == []
    with settings_map(drawbridge, cluster, "translation: {removed: true}\n"):
        assert findings(1) == ["settingsInvalid"]


@pytest.mark.usefixtures("fleet", "drawbridge")
def test_fields_that_an_older_version_drops_are_found(cluster: Access) -> None:
    result = command_line(cluster, "check-upgrade", "--live", "--kubernetes", "1.35")

    assert result.returncode == 1, result.stderr
    # The shares of the session's pods, and the names that its classes map.
    assert "featureGateOff" in result.stdout
    assert "drops extendedResourceName" in result.stdout


@pytest.mark.usefixtures("fleet", "drawbridge")
def test_who_may_read_nothing_is_told_so(cluster: Access) -> None:
    stranger = cluster.kubeconfig_for("default", "default")

    result = command_line(cluster, "status", "-o", "json", "--kubeconfig", stranger)
    answer = json.loads(result.stdout)

    assert result.returncode == 1
    assert "deployments" in answer["unreadable"]
    assert "may not read" in answer["checks"][0]["message"]
