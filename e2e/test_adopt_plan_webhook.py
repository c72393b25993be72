"""The checks and scripts of a plan on a real API server, while its webhook would translate no pod of a wave."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.access import Access, Object
from e2e.drawbridge import Drawbridge, command_line
from e2e.objects import pod, stateful_set
from kube.names import CONFIGURATION, NAMESPACE, SERVICE, TRANSLATE_LABEL
from testing.documents import namespace
from testing.migration import SHARE, hami_node

TEAM: Final = "webhook-team"
DATABASE: Final = f"StatefulSet/{TEAM}/database"
MUTATING: Final = "MutatingWebhookConfiguration"
REGISTERED: Final = f"{MUTATING}//{CONFIGURATION}"
SERVICE_OBJECT: Final = f"Service/{NAMESPACE}/{SERVICE}"
TIMEOUT_S: Final = 60.0
TRANSLATED: Final = "a new pod of it (a dry run) gets claims"


def database() -> Object:
    """Return a StatefulSet with a volume of its own that only its controller gives a pod."""
    manifest = stateful_set("database", pod("pod", limits=SHARE), replicas=0)
    manifest["metadata"]["namespace"] = TEAM
    spec = manifest["spec"]
    spec["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "data", "mountPath": "/data"}
    ]
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": storage}]
    return manifest


class Wave:
    """A wave that opts in a namespace, and the checks of its plan."""

    def __init__(self, cluster: Access, folder: Path) -> None:
        """Write a plan of the namespace and one node, as a snapshot would have them."""
        self.cluster = cluster
        self.plan = folder / "plan"
        snapshot = folder / "cluster.yaml"
        objects = [hami_node("webhook-hami"), namespace(TEAM), {**database(), "status": {}}]
        snapshot.write_text(yaml.safe_dump_all(objects))
        made = command_line(cluster, "plan", "--snapshot", snapshot, "-o", self.plan)
        assert made.returncode == 0, made.stdout + made.stderr

    def checks(self, *flags: str) -> tuple[int, Mapping[str, str]]:
        """Return the exit status, and object to message."""
        wave = f"--wave={self.plan / 'wave-1'}"
        result = command_line(
            self.cluster, "verify", "--live", "--webhook", wave, *flags, "-o", "json"
        )
        assert result.stdout, result.stderr
        checks = json.loads(result.stdout)["checks"]
        return result.returncode, {check["object"]: check["message"] for check in checks}

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the plan."""
        return subprocess.run(
            ["bash", self.plan / script, *arguments],
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def wave(cluster: Access, drawbridge: Drawbridge, tmp_path: Path) -> Iterator[Wave]:
    """A wave with an opted-in namespace, on a cluster with a webhook that translates."""
    cluster.apply([namespace(TEAM, {TRANSLATE_LABEL: "true"})])
    cluster.wait_for("serviceaccounts", "default", TEAM, timeout_s=TIMEOUT_S)
    cluster.apply([database()])
    yield Wave(cluster, tmp_path)
    # Whatever was changed, the webhook of the other stories is as it was.
    cluster.kubectl("delete", MUTATING, CONFIGURATION, "--ignore-not-found")
    cluster.apply(drawbridge.webhook_configurations())
    drawbridge.wait_ready()
    cluster.delete("namespaces", TEAM)
    cluster.wait_gone("namespaces", TEAM)


def change(cluster: Access, field: str, value: object) -> None:
    """Replace a field of the webhook for pods."""
    patch = [{"op": "replace", "path": f"/webhooks/0/{field}", "value": value}]
    cluster.kubectl("patch", MUTATING, CONFIGURATION, "--type=json", "-p", json.dumps(patch))


def test_pods_of_a_wave_are_really_translated(wave: Wave) -> None:
    """The controller of StatefulSets would add a volume to the template, and so does the trial."""
    status, messages = wave.checks("--wait=30s")

    assert (0, TRANSLATED) == (status, messages[DATABASE]), messages
    assert [] == wave.cluster.objects("pods", TEAM)


@pytest.mark.long
def test_without_a_configuration_nothing_is_prepared_and_nothing_restarted(wave: Wave) -> None:
    wave.cluster.delete(MUTATING, CONFIGURATION)

    status, messages = wave.checks()
    prepared = wave.run("prepare.sh")
    switched = wave.run("wave-1/switch.sh", "--step=namespaces")

    assert (1, True) == (status, "there is none, so no pod gets claims" in messages[REGISTERED])
    for result in (prepared, switched):
        assert 0 != result.returncode, result.stdout
        assert "there is none, so no pod gets claims" in result.stdout, result.stderr
        assert "stopped at: drawbridge verify --live" in result.stderr


def test_a_service_without_endpoints_stops_a_wave(wave: Wave) -> None:
    reference = {"namespace": NAMESPACE, "name": SERVICE, "port": 443}
    config = wave.cluster.get(MUTATING, CONFIGURATION)["webhooks"][0]["clientConfig"]
    change(wave.cluster, "clientConfig", {"service": reference, "caBundle": config.get("caBundle")})
    wave.cluster.wait_until(
        lambda: wave.checks()[0] == 1, "the API server calls the Service", timeout_s=TIMEOUT_S
    )

    status, messages = wave.checks()

    assert 1 == status
    assert "no endpoint of the webhook is ready" in messages[SERVICE_OBJECT]
    assert "a new pod of it (a dry run) is rejected, " in messages[DATABASE]


def test_a_namespace_that_is_not_matched_stops_a_wave(wave: Wave) -> None:
    exempt = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [TEAM]}
    selector: dict[str, Any] = {"matchExpressions": [exempt]}
    change(wave.cluster, "namespaceSelector", selector)
    wave.cluster.wait_until(
        lambda: TRANSLATED != wave.checks()[1][DATABASE],
        "the API server does not call the webhook",
        timeout_s=TIMEOUT_S,
    )

    status, messages = wave.checks()

    assert 1 == status
    assert (
        f"the namespaceSelector of {CONFIGURATION} leaves it out"
        in (messages[f"Namespace//{TEAM}"])
    )
    assert "a new pod of it (a dry run) gets no claims" in messages[DATABASE]
