"""Settings of HAMi that a cluster takes over: pods with its renamed keys are translated."""

import json
from typing import Any, Final

import pytest
import yaml

from e2e.access import Access, Object, stream
from e2e.drawbridge import Drawbridge, command_line
from e2e.objects import pod
from e2e.translated import devices
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity

pytestmark = pytest.mark.usefixtures("fleet")

COUNT: Final = "gpu.example.com/share"
MEMORY: Final = "gpu.example.com/memory"
DEVICE_CONFIG: Final = f"""\
nvidia:
  resourceCountName: {COUNT}
  resourceMemoryName: {MEMORY}
  defaultCores: 20
"""


def config_map(namespace: str) -> Object:
    """HAMi's own settings, in the layout of its chart."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hami-scheduler-device", "namespace": namespace},
        "data": {"device-config.yaml": DEVICE_CONFIG},
    }


def admitted(cluster: Access, namespace: str, document: Object) -> dict[str, Any]:
    """The annotations that a pod would get."""
    printed = cluster.kubectl(
        *("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-"),
        input=stream(document),
    ).stdout
    annotations: dict[str, Any] = json.loads(printed)["metadata"].get("annotations", {})
    return annotations


def test_a_renamed_key_of_hami_is_translated_with_its_defaults(
    cluster: Access, namespace: str, drawbridge: Drawbridge
) -> None:
    share = pod("share", limits={COUNT: 1, MEMORY: 3000})
    cluster.apply(config_map(namespace))

    imported = command_line(cluster, "settings", "import", "--live")

    assert imported.returncode == 0, imported.stderr
    assert REQUEST_ANNOTATION not in admitted(cluster, namespace, share)
    with drawbridge.configured(yaml.safe_load(imported.stdout)):
        cluster.wait_until(
            lambda: REQUEST_ANNOTATION in admitted(cluster, namespace, share),
            "the API server asks about pods with the renamed key",
        )
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(share))
        running = cluster.wait_running("share", namespace)
        (device,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
        assert COUNT not in running["spec"]["containers"][0]["resources"].get("limits", {})
        assert {"memory": Quantity("3000Mi"), "cores": Quantity(20)} == device.amounts
        cluster.kubectl("delete", "pod", "share", "-n", namespace, "--wait=true")
