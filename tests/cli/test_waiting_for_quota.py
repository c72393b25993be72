"""Pods that wait for a DeviceQuota: their placement is a condition, and not the next step."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from kube.names import QUOTA_GATE
from testing.budgets import CLUSTER, OWNERSHIP, QUOTA, of_bridge, pending, share, simulate
from testing.command import drawbridge
from testing.documents import Document


def gated(memory: str) -> tuple[Document, Document]:
    """A claim, and its pod behind the gate."""
    claim, pod = pending(memory)
    pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]
    return claim, pod


def explained(tmp_path: Path, kind: str, *documents: Document) -> str:
    """Return the answer of `why` about it, in one line."""
    file = tmp_path / "pending.yaml"
    file.write_text(dump_yaml(documents))
    result = drawbridge("why", kind, "next", "-n", "vision", *CLUSTER, "--snapshot", file)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("kind", ["pod", "claim"])
def test_the_wait_comes_first_and_the_placement_is_a_condition(kind: str, tmp_path: Path) -> None:
    text = explained(tmp_path, kind, *gated("28Gi"))

    assert "status waits for a DeviceQuota, behind its" in text
    assert "4Gi of memory missing; in use: vision 48Gi, vision-lab 8Gi" in text
    assert text.index("4Gi of memory missing") < text.index("once let through it would be placed")
    assert "once let through it would be placed on node hami-0, as the cluster is now" in text
    assert "allocated" not in text


def test_a_pod_of_the_bridge_waits_likewise(tmp_path: Path) -> None:
    text = explained(tmp_path, "pod", *of_bridge(*pending("28Gi")))

    assert "status waits for a DeviceQuota: a node has the devices" in text
    assert "once let through it would be placed on node hami-0" in text
    assert "allocated" not in text


@pytest.mark.parametrize("is_gated", [True, False])
def test_one_device_too_many_is_advised_to_wait(tmp_path: Path, *, is_gated: bool) -> None:
    claim, pod = gated("1Gi") if is_gated else of_bridge(*pending("1Gi"))[:2]
    others = [claim]
    for number in range(2):
        other = {**claim, "metadata": {**claim["metadata"], "name": f"claim-{number}"}}
        others.append(other)
    pod["spec"]["resourceClaims"] = [
        {"name": f"gpu-{number}", "resourceClaimName": other["metadata"]["name"]}
        for number, other in enumerate(others)
    ]

    text = explained(tmp_path, "pod", pod, *others, *([] if is_gated else [OWNERSHIP]))

    assert "3 devices needed, 1 of 4 devices left, 2 devices missing" in text
    assert "advice wait until other pods of the tenant end, request less" in text


OLD_KEY = "example.com/old-gpu"


def of_bridge_with_key(tmp_path: Path, count: int, **spec: Any) -> str:
    """Return the answer about a pod of the bridge with devices of a device plugin beside its claim."""
    (quota,) = (
        document
        for document in yaml.safe_load_all((QUOTA / "cluster.yaml").read_text())
        if document["kind"] == "DeviceQuota"
    )
    limit = {"name": "old", "driver": "old.example.com", "devices": {}, "max": 1}
    quota["spec"]["limits"].append(limit | {"legacyKeys": [{"name": OLD_KEY}]})
    documents = of_bridge(*pending("1Gi"))
    documents[1]["spec"] |= spec
    (container,) = documents[1]["spec"]["containers"]
    container["resources"] = {"limits": {OLD_KEY: str(count)}}
    return explained(tmp_path, "pod", quota, *documents)


def test_a_pod_of_the_bridge_waits_behind_the_gate_for_its_keys(tmp_path: Path) -> None:
    text = of_bridge_with_key(tmp_path, 2, schedulingGates=[{"name": QUOTA_GATE}])

    assert "status waits for a DeviceQuota, behind its scheduling gate" in text
    assert "limit old: 2 devices needed, 1 of 1 device left" in text
    assert "in use" not in text, "it waits, and has nothing"


def test_a_pod_of_the_bridge_that_was_let_through_has_its_keys_promised(tmp_path: Path) -> None:
    """Nothing told of the promise, nor that the deletion of the pod frees it."""
    text = of_bridge_with_key(tmp_path, 1)

    assert "limit old: 1 device promised to it until it is placed; delete it to free that" in text
    assert "limit gpus" not in text


def test_the_keys_of_a_pod_of_the_bridge_without_the_gate_are_no_reason_to_wait(
    tmp_path: Path,
) -> None:
    """It came before the quota, or the limit was lowered since: the bridge decides about its claims alone."""
    text = of_bridge_with_key(tmp_path, 2)

    assert "status pending, although a node has the devices" in text
    assert "limit old: 2 devices promised to it until it is placed" in text


def test_a_pod_with_room_is_placed_once_the_gate_is_gone(tmp_path: Path) -> None:
    text = explained(tmp_path, "pod", *gated("16Gi"))

    assert "the DeviceQuotas have room for it, and the controllers remove the gate" in text
    assert "once let through it would be placed on node hami-0" in text
    assert "allocated" not in text


def test_a_pod_that_never_gets_through_has_no_placement(tmp_path: Path) -> None:
    text = explained(tmp_path, "pod", *gated("50Gi"))

    assert "it gets through only if the quota is raised" in text
    assert "once let through" not in text
    assert "allocated" not in text


def test_a_pod_that_fits_nowhere_is_told_that_too(tmp_path: Path) -> None:
    claim, pod = gated("28Gi")
    pod["spec"]["nodeSelector"] = {"zone": "elsewhere"}

    text = explained(tmp_path, "pod", claim, pod)

    assert "4Gi of memory missing" in text
    assert "Pod vision/next not placed" in text


def test_the_claim_of_a_pod_that_waits_is_not_placed_alone() -> None:
    claim, pod = gated("28Gi")
    call = ("simulate", "-f", "-", *CLUSTER, "-o", "json")

    result = drawbridge(*call, stdin=dump_yaml((claim, pod)))

    answer = json.loads(result.stdout)
    assert [(entry["name"], entry["allocation"]) for entry in answer["claims"]] == [("next", None)]
    assert "scheduling gates" not in result.stderr


def test_a_claim_that_another_pod_gets_is_placed_with_that() -> None:
    claim, pod = pending("16Gi")
    other = {**pod, "metadata": {**pod["metadata"], "name": "other"}}
    other_claim = {**claim, "metadata": {**claim["metadata"], "name": "large"}}
    other_claim["spec"] = pending("28Gi")[0]["spec"]
    other["spec"] = {
        **pod["spec"],
        "resourceClaims": [
            *pod["spec"]["resourceClaims"],
            {"name": "large", "resourceClaimName": "large"},
        ],
    }

    placed, _ = simulate(claim, other_claim, pod, other)

    assert placed == {"next": True, "other": False}


def test_reasons_of_one_that_waits_are_no_errors() -> None:
    pods = (share("first", 1024), share("second", 28 * 1024))

    result = drawbridge("simulate", "-f", "-", *CLUSTER, stdin=dump_yaml(pods))

    text = " ".join(result.stdout.split())
    assert "Pod vision/second not placed" in text
    assert "more error" not in text
    assert "[deviceQuotaFull] and 1 more reason" in text


_UNENFORCED = (
    "note: DeviceQuota vision, limits gpus, memory: Enforced=False, nobody holds pods back"
)


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("check", "-f", QUOTA / "pods.yaml"),
        ("simulate", "-f", QUOTA / "pods.yaml"),
        ("why", "pod", "next", "-n", "vision"),
        ("assess",),
    ],
    ids=lambda words: words[0],
)
def test_commands_say_that_nobody_enforces_a_quota(
    words: tuple[str | Path, ...], *, owned: bool, tmp_path: Path
) -> None:
    file = tmp_path / "state.yaml"
    file.write_text(dump_yaml((*gated("28Gi"), *([OWNERSHIP] if owned else []))))

    result = drawbridge(*words, *CLUSTER, "--snapshot", file)

    assert (_UNENFORCED in result.stderr) != owned


def test_a_quota_of_other_namespaces_is_not_named(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml((share("a", 1024, "audio"),)))

    result = drawbridge("check", "-f", file, *CLUSTER)

    assert _UNENFORCED not in result.stderr
