"""Settings of a cluster: renamed keys of HAMi, and pods of a scheduler that is adopted."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.access import Access, Object, stream
from e2e.drawbridge import ROOT, Drawbridge, command_line
from e2e.fleet import EXAMPLES
from e2e.inventory import kwok_node
from e2e.objects import pod
from e2e.older_kubernetes import needs
from e2e.translated import devices
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from testing.documents import api_object

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
    return api_object(
        "ConfigMap", "hami-scheduler-device", namespace, data={"device-config.yaml": DEVICE_CONFIG}
    )


def admitted(cluster: Access, namespace: str, document: Object) -> dict[str, Any]:
    """The annotations that a pod would get."""
    printed = cluster.kubectl(
        *("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-"),
        input=stream(document),
    ).stdout
    annotations: dict[str, Any] = json.loads(printed)["metadata"].get("annotations", {})
    return annotations


@contextmanager
def conditions_of(cluster: Access, settings: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Have the match conditions that settings need, as `--print-configuration` prints them."""
    file = folder / "settings.json"
    file.write_text(json.dumps(settings))
    printed = subprocess.run(
        [sys.executable, "-m", "webhook", "--config", str(file), "--print-configuration"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (generated,) = (
        document
        for document in yaml.load_all(printed, Loader=yaml.CSafeLoader)
        if document["kind"] == "MutatingWebhookConfiguration"
    )
    name = generated["metadata"]["name"]
    before = cluster.get("mutatingwebhookconfigurations", name)
    write_conditions(cluster, before, generated)
    try:
        yield
    finally:
        write_conditions(cluster, before, before)


def write_conditions(cluster: Access, stored: Object, generated: Object) -> None:
    """Give the webhooks of a stored configuration the conditions of another one."""
    conditions = {
        webhook_["name"]: webhook_["matchConditions"] for webhook_ in generated["webhooks"]
    }
    patch = [
        {
            "op": "replace",
            "path": f"/webhooks/{index}/matchConditions",
            "value": conditions[webhook["name"]],
        }
        for index, webhook in enumerate(stored["webhooks"])
    ]
    name = stored["metadata"]["name"]
    cluster.kubectl(
        *("patch", "mutatingwebhookconfiguration", name, "--type=json", "-p", json.dumps(patch))
    )


def test_a_renamed_key_of_hami_is_translated_with_its_defaults(
    cluster: Access, namespace: str, drawbridge: Drawbridge, tmp_path: Path
) -> None:
    share = pod("share", limits={COUNT: 1, MEMORY: 3000})
    cluster.apply(config_map(namespace))

    imported = command_line(cluster, "settings", "import", "--live")

    assert imported.returncode == 0, imported.stderr
    assert REQUEST_ANNOTATION not in admitted(cluster, namespace, share)
    settings = yaml.load(imported.stdout, Loader=yaml.CSafeLoader)
    with drawbridge.configured(settings), conditions_of(cluster, settings, tmp_path):
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


def test_a_share_of_kai_is_translated_where_its_scheduler_is_adopted(
    cluster: Access, namespace: str, drawbridge: Drawbridge, tmp_path: Path
) -> None:
    (share,) = yaml.load_all(
        (EXAMPLES / "shares" / "kai.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    settings = {"translation": {"adoptSchedulers": {"kai-scheduler": "default-scheduler"}}}

    assert REQUEST_ANNOTATION not in admitted(cluster, namespace, share)
    with drawbridge.configured(settings), conditions_of(cluster, settings, tmp_path):
        cluster.wait_until(
            lambda: REQUEST_ANNOTATION in admitted(cluster, namespace, share),
            "the API server asks about pods of KAI scheduler",
        )
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(share))
        running = cluster.wait_running("kai", namespace)
        (device,) = devices(running, cluster.objects("resourceclaims", namespace))["serve"]
        assert "default-scheduler" == running["spec"]["schedulerName"]
        assert device.amounts["memory"] > Quantity(0)
        cluster.kubectl("delete", "pod", "kai", "-n", namespace, "--wait=true")


DEFINITIONS: Final = "network-attachment-definitions.k8s.cni.cncf.io"
DEFINITION_CRD: Final[Object] = api_object(
    "CustomResourceDefinition",
    DEFINITIONS,
    annotations={"api-approved.kubernetes.io": "unapproved, for a test"},
    spec={
        "group": "k8s.cni.cncf.io",
        "scope": "Namespaced",
        "names": {
            "plural": "network-attachment-definitions",
            "kind": "NetworkAttachmentDefinition",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
)
CNI: Final = "cni.dra.networking.x-k8s.io"


@pytest.fixture
def networks(cluster: Access, namespace: str) -> Iterator[None]:
    """The network of examples/multus, in the namespace of the story, and its node."""
    documents = list(
        yaml.load_all((EXAMPLES / "multus" / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader)
    )
    by_kind = {document["kind"]: document for document in documents}
    definition, device_class = by_kind["NetworkAttachmentDefinition"], by_kind["DeviceClass"]
    definition["metadata"]["namespace"] = namespace
    cluster.apply(DEFINITION_CRD)
    cluster.apply(device_class)
    node = kwok_node(by_kind["Node"]["metadata"]["name"])
    added = cluster.add_nodes([node], lambda _: [by_kind["ResourceSlice"]])
    cluster.wait_until(
        lambda: (
            not cluster.kubectl(
                "apply", "-f", "-", input=stream(definition), check=False
            ).returncode
        ),
        "kubectl knows the new kind",
        timeout_s=120,
    )
    yield
    cluster.remove_nodes(added)
    cluster.kubectl("delete", "deviceclass", device_class["metadata"]["name"])
    cluster.kubectl("delete", "customresourcedefinition", DEFINITIONS, "--wait=true")


@needs(35, "an allocator that looks at the capacity of the device that it allocates")
def test_the_bandwidth_of_a_network_is_reserved_where_a_driver_attaches_it(
    cluster: Access, namespace: str, drawbridge: Drawbridge, networks: None
) -> None:
    (stream_pod,) = yaml.load_all(
        (EXAMPLES / "multus" / "pod.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    settings = {"translation": {"profiles": {"multus": CNI}}}

    assert REQUEST_ANNOTATION not in admitted(cluster, namespace, stream_pod)
    with drawbridge.configured(settings):
        cluster.wait_until(
            lambda: REQUEST_ANNOTATION in admitted(cluster, namespace, stream_pod),
            "the webhook has the definition of the network",
            timeout_s=120,
        )
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(stream_pod))
        running = cluster.wait_running("stream", namespace)
        (device,) = devices(running, cluster.objects("resourceclaims", namespace))["send"]
        assert (CNI, "eth1") == (device.driver, device.device)
        assert Quantity("4G") == device.amounts["bandwidth"]
        cluster.kubectl("delete", "pod", "stream", "-n", namespace, "--wait=true")
