"""Quotas of device keys in namespaces with pods that get devices of the same classes by other keys."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.command import drawbridge
from testing.documents import api_object, namespace, node, resource_quota
from testing.migration import GPU, SHARE, WHOLE, hami_node, plugin_node, workload
from testing.plan import held_objects, planned, waves

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
SLICE: Final = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "16Gi"}
Objects = list[dict[str, Any]]


def koordinator_node(name: str) -> Objects:
    devices = [
        {
            "type": "gpu",
            "id": f"GPU-{name}-{number}",
            "minor": number,
            "health": True,
            "labels": {"node.koordinator.sh/gpu-model": "NVIDIA-A100-SXM4-40GB"},
            "resources": {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory": "40Gi",
                "koordinator.sh/gpu-memory-ratio": "100",
            },
        }
        for number in range(4)
    ]
    amounts = {
        "koordinator.sh/gpu-core": "400",
        "koordinator.sh/gpu-memory": "160Gi",
        "koordinator.sh/gpu-memory-ratio": "400",
    }
    device = api_object("Device", name, spec={"devices": devices})
    return [
        node(name, amounts, {"pool": "share"}, {}),
        device | {"apiVersion": "scheduling.koordinator.sh/v1alpha1"},
    ]


def cluster(hard: Mapping[str, str], whole: int = 2, shares: int = 5) -> Objects:
    """Pods with whole GPUs, and others with shares by Koordinator's keys."""
    return [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *(entry for number in range(2) for entry in koordinator_node(f"share-{number}")),
        namespace("team"),
        resource_quota(hard),
        *workload("whole", WHOLE, [f"gpu-{number % 2}" for number in range(whole)]),
        *workload(
            "notebooks",
            SLICE,
            [f"share-{number % 2}" for number in range(shares)],
            nodeSelector={"pool": "share"},
        ),
    ]


def convert(tmp_path: Path, objects: Objects, *arguments: str) -> Any:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    result = drawbridge("quota", "convert", "--snapshot", file, "-o", "json", *arguments)
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


def limits(answer: Any) -> dict[str, str]:
    """The limits of the DeviceQuota."""
    (entry,) = answer["conversions"]
    (document,) = entry["documents"]
    return {limit["name"]: limit["max"] for limit in document["spec"]["limits"]}


@pytest.mark.parametrize("hard", [1, 2, 8])
def test_pods_with_other_keys_take_no_part_of_a_line(tmp_path: Path, hard: int) -> None:
    """Five shares got five of the eight GPUs: the next share waited, and any above a small line held the namespace."""
    plan = planned(tmp_path, cluster({KEY: str(hard)}, whole=min(hard, 2)))

    (added,) = (lines["added"] for lines in plan["quotaLines"].values())
    parts = {1: 0, 2: 0, 8: 3}
    assert {SHARES: str(parts[hard] + 10)} == added
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert "Namespace/team" not in held_objects(plan)


def test_a_note_tells_of_pods_that_had_no_limit(tmp_path: Path) -> None:
    answer = convert(tmp_path, cluster({KEY: "8"}))

    (quota,) = answer["quotas"]
    texts = [effect["allows"] for effect in quota["effects"] if effect["line"] == SHARES]
    text = (
        "13, 10 of them for pods with other keys, which this quota did not count: twice what they use today; "
        "raise it if they may need more, since they wait for their claims above it"
    )
    assert [text] == texts


def test_shares_by_the_key_of_a_line_are_part_of_it(tmp_path: Path) -> None:
    """HAMi's webhook adds the key to pods with memory alone."""
    memory = {"nvidia.com/gpumem": "8000"}
    shares = [*workload("web", SHARE, ["hami-0"] * 2), *workload("more", memory, ["hami-0"])]
    objects = [hami_node("hami-0"), namespace("team"), resource_quota({KEY: "4"}), *shares]

    (quota,) = convert(tmp_path, objects)["quotas"]

    assert "4" == quota["added"][SHARES]


def test_a_class_of_other_keys_gets_no_line_that_nobody_asks_for(tmp_path: Path) -> None:
    """A webhook that only warns admits these pods without any."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {quota: warn}\n")

    (quota,) = convert(tmp_path, cluster({KEY: "8"}), "--settings", str(settings))["quotas"]

    assert SHARES not in quota["added"]


def test_limits_of_device_quotas_have_room_for_claims_of_other_lines(tmp_path: Path) -> None:
    """The limit of whole GPUs was 0, and that of all shares 1."""
    hard = {KEY: "1", "requests.koordinator.sh/gpu-core": "500"}

    answer = convert(tmp_path, cluster(hard, whole=1), "--to", "device")

    assert {"cores": "500", "gpu": "1", "gpu-2": "10"} == limits(answer)


# --- workloads of other projects ------------------------------------------------------------------


def of_another_project(pods: Objects, api_version: str, kind: str, name: str) -> Objects:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [reference]
    return pods


@pytest.mark.parametrize(
    ("api_version", "kind"), [("kubeflow.org/v1", "Notebook"), ("example.com/v1", "Training")]
)
def test_pods_of_other_projects_are_use_by_which_a_line_is_divided(
    tmp_path: Path, api_version: str, kind: str
) -> None:
    """Two of the four GPUs were for pods with whole ones, and there are none: the next Notebook waited."""
    _, one = workload("one", SHARE, ["hami-0"])
    _, two = workload("two", SHARE | {GPU: "2"}, ["hami-0"])
    pods = of_another_project([one, two], api_version, kind, "own")
    objects = [hami_node("hami-0"), plugin_node("gpu-0"), namespace("team"), *pods]

    (quota,) = convert(tmp_path, [*objects, resource_quota({KEY: "4"})])["quotas"]
    answer = convert(tmp_path, [*objects, resource_quota({KEY: "3"})], "--to", "device")

    assert quota["added"] == {NVIDIA: "0", SHARES: "4"}
    assert sorted(limits(answer).values()) == ["0", "3"]


def test_a_pod_of_another_project_that_ended_uses_nothing(tmp_path: Path) -> None:
    _, one = workload("one", SHARE, ["hami-0"])
    one["status"] = {"phase": "Succeeded"}
    pods = of_another_project([one], "kubeflow.org/v1", "Notebook", "own")
    objects = [hami_node("hami-0"), plugin_node("gpu-0"), namespace("team"), *pods]

    (quota,) = convert(tmp_path, [*objects, resource_quota({KEY: "4"})])["quotas"]

    assert quota["added"] == {NVIDIA: "2", SHARES: "2"}


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"drawbridge.internal/translate": "false"}},
        {"annotations": {"drawbridge.internal/request": "{bad"}},
    ],
    ids=["opted out", "of a record that cannot be read"],
)
def test_a_pod_of_another_project_that_gets_no_claims_says_nothing_about_others(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    """The last pod of equal requests decided for all, and their class got as little as if they used nothing."""
    pods = [workload(name, SHARE, ["hami-0"])[1] for name in ("a", "b", "c")]
    pods[-1]["metadata"] |= metadata
    pods = of_another_project(pods, "kubeflow.org/v1", "Notebook", "own")
    nodes, train = [hami_node("hami-0"), plugin_node("gpu-0")], workload("train", WHOLE, ["gpu-0"])
    others = [*nodes, *train, namespace("team"), resource_quota({KEY: "6"})]

    (beside,) = convert(tmp_path, [*others, *pods])["quotas"]
    pods.pop()
    (alone,) = convert(tmp_path, [*others, *pods])["quotas"]

    assert beside["added"] == alone["added"]


# --- several lines of a key -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["0", "4", "12"])
def test_a_line_of_hamis_scheduler_limits_no_claims_beside_one_of_kubernetes(
    tmp_path: Path, limit: str
) -> None:
    """Kubernetes never counted whole GPUs under `limits.`, and their claims left none to the share that ran."""
    hard = {KEY: "8", f"limits.{GPU}": limit}
    pods = [*workload("web", SHARE, ["hami-0"]), *workload("train", WHOLE, ["gpu-0"] * 6)]
    objects = [hami_node("hami-0"), plugin_node("gpu-0", 8), namespace("team"), *pods]

    (quota,) = convert(tmp_path, [*objects, resource_quota(hard)])["quotas"]

    assert quota["added"] == {NVIDIA: "6", SHARES: "2"}


@pytest.mark.parametrize("limit", ["0", "2"])
def test_a_line_that_kubernetes_does_not_count_holds_nothing(tmp_path: Path, limit: str) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")
    nodes = [plugin_node(f"gpu-{number}", 8) for number in range(3)]
    hard = {KEY: "8", f"limits.{GPU}": limit}
    pods = workload("train", WHOLE, ["gpu-0"] * 4)
    objects = [*nodes, namespace("team"), resource_quota(hard), *pods]

    plan = planned(tmp_path, objects, "--settings", str(settings))

    assert {} == held_objects(plan)


@pytest.mark.parametrize("target", ["device", "kueue", "volcano"])
@pytest.mark.parametrize("limit", ["0", "2", "12"])
def test_other_kinds_have_the_amount_of_the_line_that_kubernetes_counts(
    tmp_path: Path, target: str, limit: str
) -> None:
    """The smaller of both limited whole GPUs, too, uncounted under `limits.` until then."""
    line = f"limits.{GPU}"

    alone = convert(tmp_path, cluster({KEY: "8"}), "--to", target)
    both = convert(tmp_path, cluster({KEY: "8", line: limit}), "--to", target)

    documents = [
        [entry["documents"] for entry in answer["conversions"]] for answer in (alone, both)
    ]
    assert documents[0] == documents[1]
    (entry,) = (entry for entry in both["conversions"] if entry["converted"])
    text = f", by the amount of {KEY}, the line that Kubernetes counts"
    assert {line} == {name for name, became in entry["converted"].items() if text in became}
    assert entry["notConvertible"] == {}


def test_a_smaller_line_of_amounts_that_hamis_scheduler_counts_holds(tmp_path: Path) -> None:
    """All pods with amounts are its own, so both lines count them."""
    name = "nvidia.com/gpumem"
    hard = {f"requests.{name}": "8000", f"limits.{name}": "4000"}

    assert {"memory": "4000Mi"} == limits(
        convert(tmp_path, [resource_quota(hard)], "--to", "device")
    )


# --- pods of one workload with other devices -------------------------------------------------------


def test_a_pod_of_an_older_template_uses_its_claim_beside_those_with_keys(tmp_path: Path) -> None:
    """Two devices of one pod and one of another were two: as many as two pods of the new template have."""
    owner, old, new = workload("share", SHARE, ["hami-0", "hami-0"])
    old["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "own"}]
    exactly = {"deviceClassName": "hami-core-gpu.project-hami.io", "count": 2}
    claim = api_object(
        "ResourceClaim",
        "own",
        "team",
        api_version="resource.k8s.io/v1",
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": old["metadata"]["name"]}],
        spec={"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    )
    whole = workload("whole", {GPU: "1"}, ["gpu-0"])
    nodes = [hami_node("hami-0"), plugin_node("gpu-0"), namespace("team")]
    objects = [*nodes, owner, old, new, claim, *whole]

    (quota,) = convert(tmp_path, [*objects, resource_quota({KEY: "5"})])["quotas"]

    assert quota["added"] == {NVIDIA: "1", SHARES: "4"}
