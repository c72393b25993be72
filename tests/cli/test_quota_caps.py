"""The caps of a DeviceQuota on one request and one device, in the keys that a pod was written with."""

import json
from pathlib import Path

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from testing.budgets import QUOTA
from testing.command import drawbridge
from testing.documents import Document, api_object

GPU, MEMORY, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The cluster of the example, with 40Gi for a request and 20Gi for a device of it."""
    documents = list(yaml.load_all((QUOTA / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader))
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    (memory,) = (limit for limit in quota["spec"]["limits"] if limit["name"] == "memory")
    memory |= {"perRequest": "40Gi", "perDevice": "20Gi"}
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(documents))
    return file


def pod_spec(limits: dict[str, int | str]) -> Document:
    return {"containers": [{"name": "main", "image": "a", "resources": {"limits": limits}}]}


def breaches(cluster: Path, document: Document, *options: object) -> list[tuple[str, str]]:
    """Return path and fix of each error about a cap."""
    call = ("check", "-f", "-", "--snapshot", cluster, "-o", "json", *options)
    findings = json.loads(drawbridge(*call, stdin=dump_yaml([document])).stdout)["findings"]
    return [
        (finding["path"], finding["fix"])
        for finding in findings
        if (finding["severity"], finding["code"]) == ("error", "exceedsPerRequestQuota")
    ]


@pytest.mark.parametrize(
    ("limits", "key", "fix"),
    [
        ({GPU: 1, MEMORY: 30000}, MEMORY, "20480"),
        # 40Gi of three devices is no whole number of mebibytes.
        ({GPU: 3, MEMORY: 15000}, MEMORY, "13653"),
        ({GPU: 1, PERCENT: 50}, PERCENT, "25"),
        ({"koordinator.sh/gpu-memory": "30Gi"}, "koordinator.sh/gpu-memory", "20Gi"),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 30000},
            "volcano.sh/vgpu-memory",
            "20480",
        ),
    ],
)
def test_a_cap_names_the_key_and_the_most_for_it(
    limits: dict[str, int | str], key: str, fix: str, cluster: Path
) -> None:
    metadata = {"name": "a", "namespace": "vision"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(limits)}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(limits)}
    selector = {"matchLabels": {"app": "a"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"selector": selector, "template": template},
    }

    place, words = f"spec.containers[0].resources.limits[{key}]", f"write {key}: {fix}"

    assert breaches(cluster, pod) == [(place, words)]
    assert breaches(cluster, deployment) == [(f"spec.template.{place}", words)]


WHOLE: dict[str, int | str] = {GPU: 1}
COUNTED: dict[str, int | str] = {"volcano.sh/vgpu-number": 2}


@pytest.mark.parametrize(
    ("limits", "key", "added"),
    [
        (WHOLE, GPU, (MEMORY, 20480)),
        ({GPU: 3}, GPU, (MEMORY, 13653)),
        (COUNTED, "volcano.sh/vgpu-number", ("volcano.sh/vgpu-memory", 20480)),
    ],
)
def test_a_cap_names_the_key_to_add_to_whole_devices(
    limits: dict[str, int | str], key: str, added: tuple[str, int], cluster: Path
) -> None:
    name, amount = added
    document = api_object("Pod", "a", "vision")

    found = breaches(cluster, {**document, "spec": pod_spec(limits)})
    mended = breaches(cluster, {**document, "spec": pod_spec({**limits, name: amount})})

    place = f"spec.containers[0].resources.limits[{key}]"
    assert ([(place, f"add {name}: {amount}")], []) == (found, mended)


def test_the_key_to_add_has_the_name_of_the_settings(cluster: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {renamedKeys: {example.com/memory: nvidia.com/gpumem}}")
    pod = api_object("Pod", "a", "vision", spec=pod_spec(WHOLE))

    ((_, fix),) = breaches(cluster, pod, "--settings", settings)

    assert "add example.com/memory: 20480" == fix
