"""Pod templates with device keys are found in objects of any kind, for a bounded price."""

from typing import Any, NamedTuple

import pytest

from testing.builders import container, pod
from testing.documents import Document
from translation.reading.embedded_templates import (
    MAX_TEMPLATES,
    MAX_VALUES,
    check_embedded_templates,
)

SHARE = pod(container("main", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}))
NOT_READ = "podTemplateNotRead"


class Case(NamedTuple):
    name: str
    want: tuple[tuple[str, str], ...]
    spec: Any


CASES = (
    Case("nothing", (), {}),
    Case("a template without devices", (), {"template": pod(container("main", {"cpu": 1}))}),
    Case("a Knative Service", ((NOT_READ, "spec.template"),), {"template": SHARE}),
    Case(
        "a PyTorchJob",
        (
            (NOT_READ, "spec.pytorchReplicaSpecs.Master.template"),
            (NOT_READ, "spec.pytorchReplicaSpecs.Worker.template"),
        ),
        {"pytorchReplicaSpecs": {"Master": {"template": SHARE}, "Worker": {"template": SHARE}}},
    ),
    Case(
        "a Volcano Job",
        ((NOT_READ, "spec.tasks[1].template"),),
        {"tasks": [{"template": pod(container("main"))}, {"template": SHARE}]},
    ),
    Case("a spec like a pod's", ((NOT_READ, "spec"),), SHARE["spec"]),
    Case(
        "a placeholder for an amount",
        ((NOT_READ, "spec.template"),),
        {"template": pod(container("main", {"nvidia.com/gpu": "$GPUS"}))},
    ),
    Case(
        "a GPU without a domain, and names with one",
        (
            (NOT_READ, "spec.services.Worker.resources"),
            (
                "untranslatedDeviceKey",
                "spec.services.Worker.resources.limits[vke.volcengine.com/rdma]",
            ),
        ),
        {
            "services": {
                "Worker": {
                    "resources": {
                        "limits": {
                            "cpu": "8",
                            "gpu": "1",
                            "custom": {"vke.volcengine.com/rdma": "1"},
                        }
                    }
                }
            }
        },
    ),
    Case(
        "the GPU of a SparkApplication",
        ((NOT_READ, "spec.executor.gpu"),),
        {"executor": {"cores": 4, "gpu": {"name": "nvidia.com/gpu", "quantity": 1}}},
    ),
    Case(
        "devices of a virtual machine",
        (
            ("untranslatedDeviceKey", "spec.domain.devices.gpus[0]"),
            ("untranslatedDeviceKey", "spec.domain.devices.hostDevices[0]"),
        ),
        {
            "domain": {
                "devices": {
                    "gpus": [{"name": "a", "deviceName": "nvidia.com/GA102GL_A10"}],
                    "hostDevices": [{"name": "b", "deviceName": "acme.example/gpu"}],
                }
            }
        },
    ),
    Case(
        "a name of no device", (), {"resources": {"limits": {"cpu": 1, "example.com/license": 1}}}
    ),
    Case(
        "a quota of a queue is no request",
        (),
        {"resourceGroups": [{"resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}]},
    ),
    Case(
        "a key that is not translated",
        (
            (
                "untranslatedDeviceKey",
                "spec.template.spec.containers[0].resources.limits[furiosa.ai/rngd]",
            ),
        ),
        {"template": pod(container("main", {"furiosa.ai/rngd": 1}))},
    ),
    Case(
        "an init container",
        ((NOT_READ, "spec.template"),),
        {
            "template": {
                "spec": {
                    "initContainers": [container("setup", {"nvidia.com/gpu": 1})],
                    "containers": [container("main")],
                }
            }
        },
    ),
    Case(
        "a container that is not in a list",
        ((NOT_READ, "spec.predictor.resources"),),
        {"predictor": container("main", {"nvidia.com/gpu": 1})},
    ),
    Case(
        "a bare pod spec",
        ((NOT_READ, "spec.template.containers[0].resources"),),
        {"template": SHARE["spec"]},
    ),
    Case("resources of something else", (), {"resources": {"limits": {"cpu": "1"}, "requests": 3}}),
    Case(
        "resources with a key that is not translated",
        (("untranslatedDeviceKey", "spec.resources.limits[furiosa.ai/rngd]"),),
        {"resources": {"limits": {"furiosa.ai/rngd": 1}}},
    ),
    Case("a manifest in a text", (), {"data": '{"spec": {"containers": []}}'}),
    Case("containers that are none", (), {"template": {"spec": {"containers": 3}}}),
    Case("containers of texts", (), {"template": {"spec": {"containers": ["a"]}}}),
    Case(
        "amounts that are none",
        (),
        {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": []}}}]}}},
    ),
    Case(
        "more templates than are reported",
        tuple((NOT_READ, f"spec.roles[{number}]") for number in range(MAX_TEMPLATES)),
        {"roles": [SHARE] * 100},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_templates(case: Case) -> None:
    document: Document = {"apiVersion": "example.com/v1", "kind": "Any", "spec": case.spec}

    findings = check_embedded_templates(document)

    assert case.want == tuple((finding.code, str(finding.path)) for finding in findings)


def test_a_template_names_its_keys_and_what_becomes_of_its_pods() -> None:
    (finding,) = check_embedded_templates({"spec": {"template": SHARE}})

    assert finding.message == (
        "contains a pod template with device keys (nvidia.com/gpu, nvidia.com/gpumem) and stays as it is; its pods "
        "are translated when they are created"
    )


def test_the_search_ends() -> None:
    wide: Document = {"spec": {"values": [{} for _ in range(MAX_VALUES)], "template": SHARE}}

    assert () == check_embedded_templates(wide)


TEXT = """
spec:
  containers:
  - name: $NAME
    resources:
      limits:
        "nvidia.com/gpu": $GPUS
        cpu: 8
      requests: {{nvidia.com/gpu: {count}, amd.com/gpu: 1}}
    nodeSelector:
      nvidia.com/gpu.count: "8"
"""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (TEXT, "(amd.com/gpu, nvidia.com/gpu)"),
        ("limits:\n  cpu: 1\nnvidia.com/gpu: 1", ""),
        ("nvidia.com/gpu.product: A100\nkey: limits", ""),
        ("limits:\n- {}\n" * 9 + "x" * 2**17, ""),
        (3, ""),
    ],
    ids=["a template", "another place", "labels", "long", "no text"],
)
def test_a_text_of_a_config_map_names_its_keys(text: object, want: str) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"job.yaml": text}}

    findings = check_embedded_templates(document)

    assert ["data[job.yaml]"] * bool(want) == [str(finding.path) for finding in findings]
    assert all(want in finding.message for finding in findings)
    assert () == check_embedded_templates({**document, "kind": "Secret"})


PATCH = '{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"{{count}}"}}}]}'


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"podSpecPatch": PATCH, "container": {}}, "spec.templates[0].podSpecPatch"),
        ({"resource": {"manifest": TEXT}}, "spec.templates[0].resource.manifest"),
    ],
    ids=["a patch", "a manifest"],
)
def test_a_text_of_a_workflow_names_its_keys(template: Document, path: str) -> None:
    document = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": {"name": "tune"},
        "spec": {"templates": [{"name": "train", **template}]},
    }

    (finding,) = check_embedded_templates(document)

    assert str(finding.path) == path
    assert "nvidia.com/gpu" in finding.message
