"""Pending pods that no lack of devices holds back: their scheduler, their group, or an event of the past."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.urls import DEVICE_CLASSES, EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.manifests.dump import dump_yaml
from kube.names import SCHEDULER_NAME
from testing import documents
from testing.command import drawbridge
from testing.documents import Document, api_object, owned
from testing.fake_api_server import FakeApiServer
from testing.questions import advice, event, why
from testing.simulated_cluster import claim, device_class, node, slice_of, using

NODES_WITH_DEVICES = (node("a"), slice_of("a", {"name": "gpu-0"}))
CONDITION = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}


@pytest.mark.parametrize(
    ("scheduler", "conditions", "sentences"),
    [
        (
            SCHEDULER_NAME,
            [],
            [
                (
                    "its scheduler drawbridge-scheduler has not tried it yet, or does not run; "
                    "drawbridge status says whether the bridge works"
                )
            ],
        ),
        ("volcano", [], ["its scheduler volcano has not tried it yet, or does not run"]),
        ("volcano", [CONDITION], []),
        ("default-scheduler", [], []),
    ],
)
def test_a_scheduler_that_has_not_tried_a_pod_is_named(
    scheduler: str, conditions: list[Document], sentences: list[str]
) -> None:
    pod = using("pending", "one", schedulerName=scheduler) | {"status": {"conditions": conditions}}

    assert advice(pod, claim("one"), nodes=NODES_WITH_DEVICES) == sentences
    result = drawbridge(
        *("top", "waiting", "--snapshot", "-"),
        stdin=dump_yaml((device_class(), *NODES_WITH_DEVICES, pod, claim("one"))),
        COLUMNS="200",
    )
    for sentence in sentences:
        assert sentence in result.stdout


def test_a_bridge_that_does_not_serve_says_so_itself() -> None:
    ownership = documents.ownership(
        owned(name="gpu.example.com"),
        status={
            "conditions": [
                {"type": "Serving", "status": "False", "message": "the fence is missing"}
            ]
        },
    )
    pod = using("pending", "one", schedulerName=SCHEDULER_NAME)

    (sentence,) = advice(pod, claim("one"), ownership, nodes=NODES_WITH_DEVICES)

    assert sentence.startswith(
        "its scheduler drawbridge-scheduler allocates nothing: the fence is missing"
    )


def member(number: int, **labels: str) -> Document:
    pod = using(f"train-{number}", f"one-{number}")
    pod["metadata"]["labels"] = labels
    pod["spec"]["schedulerName"] = "scheduler-plugins-scheduler"
    return pod


def gang(name: str, minimum: int) -> Document:
    return api_object(
        "PodGroup",
        name,
        "team",
        api_version="scheduling.x-k8s.io/v1alpha1",
        spec={"minMember": minimum},
    )


def test_a_group_with_too_few_pods_waits_for_more_of_them() -> None:
    label = {"scheduling.x-k8s.io/pod-group": "training"}
    state = (
        *(device_class(), node("a"), slice_of("a"), gang("training", 4)),
        *(member(0, **label), member(1, **label), claim("one-0"), claim("one-1")),
    )
    call = ("-n", "team", "--snapshot", "-")

    text = drawbridge("why", "pod", "train-0", *call, stdin=dump_yaml(state), COLUMNS="300").stdout
    waiting = drawbridge("top", "waiting", *call, "-o", "json", stdin=dump_yaml(state)).stdout

    reason = (
        "coscheduling PodGroup team/training needs 4 pods, and 2 exist; create 4 (parallelism and completions of "
        "a Job, or replicas), or write minMember: 2 in the group"
    )
    assert f"status    pending: {reason}" in text
    assert "no place for" not in text
    assert json.loads(waiting)["waiting"] == [
        {"pods": ["team/train-0", "team/train-1"], "reason": reason}
    ]


@pytest.mark.parametrize(
    ("resource", "requested", "has"),
    [("cpu", "3", "4"), ("hugepages-2Mi", "768Mi", "1Gi"), ("hugepages-1Gi", "2Gi", "3Gi")],
)
def test_a_resource_that_a_group_lacks_is_named_with_its_amounts(
    resource: str, requested: str, has: str
) -> None:
    label = {"scheduling.x-k8s.io/pod-group": "training"}
    amounts = {resource: requested}
    pods = [member(number, **label) for number in (0, 1)]
    for pod in pods:
        pod["spec"]["containers"][0].setdefault("resources", {})["requests"] = amounts
    first = {**node("a"), "status": {"allocatable": {resource: has, "pods": "10"}}}
    state = (
        *(device_class(), first, slice_of("a"), gang("training", 2), *pods),
        *(claim("one-0"), claim("one-1")),
    )

    text = drawbridge(
        *("why", "pod", "train-0", "-n", "team", "--snapshot", "-"),
        stdin=dump_yaml(state),
        COLUMNS="300",
    ).stdout

    assert "1 of 2 pods fits, and 2 are needed" in text
    assert (
        f"Insufficient {resource}: the pod requests {requested}, and too little of {has} is left"
        in text
    )


def test_equal_pods_of_several_groups_wait_for_reasons_of_their_own() -> None:
    key = "scheduling.x-k8s.io/pod-group"
    state = (
        *(device_class(), node("a"), slice_of("a"), gang("small", 1), gang("large", 4)),
        *(member(0, **{key: "small"}), member(1, **{key: "large"}), claim("one-0"), claim("one-1")),
    )

    result = drawbridge("top", "waiting", "--snapshot", "-", "-o", "json", stdin=dump_yaml(state))

    reasons = {tuple(g["pods"]): g["reason"] for g in json.loads(result.stdout)["waiting"]}
    assert reasons == {
        (
            "team/train-0",
        ): "its scheduler scheduler-plugins-scheduler has not tried it yet, or does not run",
        (
            "team/train-1",
        ): "coscheduling PodGroup team/large needs 4 pods, and 1 exists; create 4 (parallelism "
        "and completions of a Job, or replicas), or write minMember: 1 in the group",
    }


def test_a_hint_on_keys_of_device_plugins_promises_no_claims() -> None:
    pod = using("pending")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "1"}}

    result = drawbridge(
        "why", "pod", "pending", "-n", "team", "--snapshot", "-", stdin=dump_yaml((node("a"), pod))
    )

    assert "`drawbridge translate` says whether claims can take their place" in result.stderr


# --- live -----------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(DEVICE_CLASSES, device_class())
        server.put(NODES, node("a"))
        server.put(RESOURCE_SLICES, slice_of("a", {"name": "gpu-0"}))
        server.put(PODS, using("pending", "one"))
        failed = event("pending", 'template "x" not found', "2026-11-25T11:00:00Z")
        failed |= {"reason": "FailedResourceClaimCreation"}
        failed["regarding"]["kind"] = "Pod"
        server.put(EVENTS, failed)
        yield server


async def test_an_event_about_a_claim_that_exists_by_now_is_past(
    server: FakeApiServer, tmp_path: Path
) -> None:
    missing = json.loads((await why(server, tmp_path, "pod/pending", "-o", "json")).stdout)
    server.put(RESOURCE_CLAIMS, claim("one"))
    made = json.loads((await why(server, tmp_path, "pod/pending", "-o", "json")).stdout)

    assert 'a claim of the pod was not created: template "x" not found' in missing["advice"]
    assert made["advice"] == [
        "the event FailedResourceClaimCreation is past: the claims of the pod exist by now"
    ]


def test_a_scheduling_gate_of_another_controller_is_named() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    pod = using("pending", "one", schedulingGates=gates)
    state = dump_yaml((device_class(), *NODES_WITH_DEVICES, pod, claim("one")))
    call = ("why", "pod", "pending", "-n", "team", "--snapshot", "-")

    output = drawbridge(*call, stdin=state, COLUMNS="200").stdout

    assert (
        "status    pending, behind its scheduling gate: kueue.x-k8s.io/admission, "
        "which its controller removes\n" in output
    )
    assert "then      once let through it would be placed on node a" in output
