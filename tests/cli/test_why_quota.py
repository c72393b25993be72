"""ResourceQuotas that reject pods or their claims, in `drawbridge why`."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.urls import DEVICE_CLASSES, EVENTS, RESOURCE_QUOTAS
from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document, api_object
from testing.fake_api_server import FakeApiServer
from testing.questions import event, why
from testing.simulated_cluster import claim, device_class, node, slice_of, using


def quota(**lines: tuple[str, str]) -> Document:
    """A quota with the used and the hard amount of each line."""
    return api_object(
        "ResourceQuota",
        "gpus",
        "team",
        spec={"hard": {name: hard for name, (_, hard) in lines.items()}},
        status={
            "hard": {name: hard for name, (_, hard) in lines.items()},
            "used": {name: used for name, (used, _) in lines.items()},
        },
    )


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(DEVICE_CLASSES, device_class())
        server.put(
            RESOURCE_QUOTAS,
            quota(**{"requests.nvidia.com/gpu": ("3", "4"), "pods": ("9", "9"), "cpu": ("1", "9")}),
        )
        yield server


DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
NOTE = (
    'Error creating: pods "llm-5d4f8-x" is forbidden: exceeded quota: gpus, requested: '
    "requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"
)


def waiting_pod() -> tuple[Document, Document]:
    """A pod without its claim, and the template of it."""
    template = {**claim("one"), "kind": "ResourceClaimTemplate"}
    template["spec"] = {"spec": claim("one")["spec"]}
    pod = using("pending")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return pod, template


@pytest.mark.parametrize(
    ("line", "amounts"),
    [
        (DEVICES, "requested 1, used 4, hard 4"),
        ("count/resourceclaims.resource.k8s.io", "requested 1, used 4, hard 4"),
    ],
)
def test_a_claim_that_a_quota_rejects_is_reported_with_the_line(line: str, amounts: str) -> None:
    state = (device_class(), node("a"), slice_of("a"), *waiting_pod(), quota(**{line: ("4", "4")}))

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "-o", "json", "--snapshot", "-"),
        stdin=dump_yaml(state),
    )

    (sentence,) = json.loads(result.stdout)["advice"]
    assert f"exceeds ResourceQuota gpus: {line}: {amounts}; request less, delete" in sentence


def test_a_quota_with_room_is_not_named() -> None:
    state = (
        *(device_class(), node("a"), slice_of("a"), *waiting_pod()),
        quota(**{DEVICES: ("3", "4")}),
    )

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "-o", "json", "--snapshot", "-"),
        stdin=dump_yaml(state),
    )

    (sentence,) = json.loads(result.stdout)["advice"]
    assert sentence.startswith("not created yet: 1 claim of the pod; ")


def test_a_workload_without_pods_is_reported_with_the_quotas_of_its_namespace() -> None:
    state = (
        node("a"),
        quota(**{"requests.nvidia.com/gpu": ("4", "4"), "requests.cpu": ("1", "9")}),
    )

    result = drawbridge(
        "why", "deploy/llm", "-n", "team", "--snapshot", "-", stdin=dump_yaml(state)
    )

    assert result.exit_code == 2
    assert "being created: ResourceQuota gpus: requests.nvidia.com/gpu: used 4, hard 4." in (
        result.stderr
    )


# --- live -----------------------------------------------------------------------------------------


async def test_pods_that_are_not_created_are_reported_by_the_last_event(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.put(EVENTS, event("llm-5d4f8", "Error creating: old", "2026-11-25T10:00:00Z"))
    server.put(EVENTS, event("llm-5d4f8", NOTE, "2026-11-25T11:00:00Z"))
    server.put(EVENTS, event("llm-chat-77c9b", "Error creating: other", "2026-11-25T11:00:00Z"))
    server.put(EVENTS, event("llm-5d4f8", "elsewhere", "2026-11-25T12:00:00Z", reason="Other"))

    text = (await why(server, tmp_path, "deploy/llm")).stdout
    document = json.loads((await why(server, tmp_path, "deploy/llm", "-o", "json")).stdout)

    assert document["notCreated"] == [f"{NOTE} (last at 2026-11-25T11:00:00Z)"]
    assert document["quotas"] == [
        "ResourceQuota gpus: pods: used 9, hard 9",
        "ResourceQuota gpus: requests.nvidia.com/gpu: used 3, hard 4",
    ]
    assert "status    0 of 0 pods pending" in text
    assert "not made  Error creating: pods" in text
    assert "advice    request less, delete what is not in use" in text


async def test_a_denial_of_a_webhook_is_not_blamed_on_quotas(
    server: FakeApiServer, tmp_path: Path
) -> None:
    note = 'Error creating: admission webhook "pods.drawbridge.internal" denied the request: no'
    server.put(EVENTS, event("llm-5d4f8", note, "2026-11-25T10:00:00Z"))

    document = json.loads((await why(server, tmp_path, "deploy/llm", "-o", "json")).stdout)

    assert document["notCreated"] == [f"{note} (last at 2026-11-25T10:00:00Z)"]
    assert (document["quotas"], document["advice"]) == ([], "")


async def test_without_the_right_to_read_events_the_quotas_are_reported(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, matches=lambda call: call.path.endswith("/events"))

    result = await why(server, tmp_path, "deploy/llm")

    assert result.exit_code == 2
    assert "ResourceQuota gpus: requests.nvidia.com/gpu: used 3, hard 4" in result.stderr
