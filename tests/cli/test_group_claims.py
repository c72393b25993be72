"""Claims of a PodGroup in `simulate`, `why`, `check` and `replay`."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object
from testing.simulated_cluster import pinned

CLUSTER = EXAMPLES / "groups" / "cluster.yaml"


def documents(*, wanted: int = 2) -> list[Document]:
    """The PodGroup of the example with a claim, its template, and four pods that share it."""
    content = (EXAMPLES / "groups" / "training.yaml").read_bytes()
    group, template, job = (dict(entry.document) for entry in read_objects(content, "training"))
    spec = job["spec"]["template"]["spec"]
    group["spec"]["resourceClaims"] = spec["resourceClaims"]
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = wanted
    pods = [api_object("Pod", f"train-{number}", "default", spec=spec) for number in range(4)]
    return [group, template, *pods]


def called(*arguments: object, manifests: list[Document]) -> Any:
    return json.loads(
        drawbridge(*arguments, "-f", "-", "-o", "json", stdin=dump_yaml(manifests)).stdout
    )


def test_the_pods_of_a_group_share_its_claim() -> None:
    """Each had a claim of its own, and three of four got one."""
    answer = called("simulate", "--snapshot", CLUSTER, manifests=documents())

    assert [group["placed"] for group in answer["groups"]] == [4]
    assert len(answer["claims"]) == 1
    why = drawbridge(
        "why", "pod", "train-3", "-f", "-", "--snapshot", CLUSTER, stdin=dump_yaml(documents())
    )
    assert "4 pods placed; 4 needed" in why.stdout


def test_the_gate_that_sharing_needs_is_told() -> None:
    call = ("simulate", "-f", "-", "--snapshot", CLUSTER)
    note = (
        "the pods of PodGroup default/training share claims, which needs the feature gate "
        "DRAWorkloadResourceClaims; it is off by default"
    )

    assert note in " ".join(drawbridge(*call, stdin=dump_yaml(documents())).stderr.split())
    group, *others = documents()
    del group["spec"]["resourceClaims"]
    result = drawbridge(*call, stdin=dump_yaml([group, *others]))
    assert "DRAWorkloadResourceClaims" not in result.stderr


@pytest.mark.parametrize("is_generated", [False, True])
def test_pods_above_a_quota_count_among_those_of_their_group(
    is_generated: bool, tmp_path: Path
) -> None:
    """Of several pods with one generateName none counted, so that more pods were to be created."""
    group, template, *pods = documents(wanted=1)
    del group["spec"]["resourceClaims"]
    if is_generated:
        for pod in pods:
            pod["metadata"] = {"generateName": "train-", "namespace": "default"}
    hard = {"count/resourceclaims.resource.k8s.io": "2"}
    quota = api_object("ResourceQuota", "claims", "default", spec={"hard": hard})
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER.read_text() + "---\n" + dump_yaml([quota]))

    answer = called("simulate", "--snapshot", cluster, manifests=[group, template, *pods])

    (result,) = answer["groups"]
    assert result["reason"] == (
        "PodGroup default/training needs 4 pods, and a quota leaves too little for 2 of 4; request less, raise the "
        "quota, or write minCount: 2 in the group"
    )


@pytest.mark.parametrize(("is_on", "claims"), [("true", 1), ("false", 4)])
def test_without_the_gate_each_pod_has_a_claim_of_its_own(is_on: str, claims: int) -> None:
    """The API server stores no claims of a PodGroup then."""
    gate = f"DRAWorkloadResourceClaims={is_on}"
    call = ("--snapshot", CLUSTER, "--feature-gates", gate)

    answer = called("simulate", *call, manifests=documents(wanted=1))
    text = drawbridge(
        "why", "pod", "train-3", "-f", "-", *call, stdin=dump_yaml(documents(wanted=1))
    ).stdout

    assert len(answer["claims"]) == claims
    assert ("train-3-" in text, "ring" in text) == (is_on == "false", False)


def test_without_the_gate_a_snapshot_has_no_claims_of_pod_groups(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(CLUSTER.read_text() + "---\n" + dump_yaml(documents()))
    call = ("why", "pod", "train-3", "-o", "json", "--snapshot", snapshot, "--feature-gates")

    placed = {
        is_on: json.loads(drawbridge(*call, f"DRAWorkloadResourceClaims={is_on}").stdout)
        for is_on in ("true", "false")
    }

    assert placed["true"]["simulation"]["groups"][0]["placed"] == 4
    assert placed["false"]["simulation"]["groups"][0]["code"] == "groupDoesNotFit"


def test_a_shared_claim_is_counted_once_for_quotas(tmp_path: Path) -> None:
    hard = {"count/resourceclaims.resource.k8s.io": "1"}
    quota = api_object("ResourceQuota", "claims", "default", spec={"hard": hard})
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER.read_text() + "---\n" + dump_yaml([quota]))

    assert called("check", "--snapshot", cluster, manifests=documents())["findings"] == []
    answer = called("simulate", "--snapshot", cluster, manifests=documents())
    assert [group["placed"] for group in answer["groups"]] == [4]

    twice = documents()
    twice[0]["spec"]["resourceClaims"].append(
        {**twice[0]["spec"]["resourceClaims"][0], "name": "x"}
    )
    (finding,) = called("check", "--snapshot", cluster, manifests=[*twice[:2]])["findings"]
    assert (finding["object"], finding["code"]) == ("PodGroup/default/training", "exceedsQuota")


def test_a_pod_group_of_another_scheduler_is_charged_for_no_claims(tmp_path: Path) -> None:
    """Volcano's PodGroup of the same name was charged for the claims of Kubernetes' own."""
    hard = {"count/resourceclaims.resource.k8s.io": "1"}
    quota = api_object("ResourceQuota", "claims", "default", spec={"hard": hard})
    other = api_object("PodGroup", "training", "default", spec={"minMember": 1})
    other["apiVersion"] = "scheduling.volcano.sh/v1beta1"
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER.read_text() + "---\n" + dump_yaml([quota]))

    answer = called("check", "--snapshot", cluster, manifests=[*documents(), other])

    assert answer["findings"] == []


def test_claims_of_two_groups_are_two() -> None:
    """Both were called `a-b-c-shared`."""
    template = documents()[1]
    objects = [template]
    for name, entry in (("a-b", "c"), ("a", "b-c")):
        group, _, pod, *_ = documents()
        claims = [{**group["spec"]["resourceClaims"][0], "name": entry}]
        group["metadata"]["name"] = name
        group["spec"] = {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": claims}
        pod["metadata"]["name"] = f"pod-of-{name}"
        pod["spec"] = {
            "schedulingGroup": {"podGroupName": name},
            "resourceClaims": claims,
            "containers": [{"name": "main", "resources": {"claims": [{"name": entry}]}}],
        }
        objects += [group, pod]

    assert len(called("simulate", "--snapshot", CLUSTER, manifests=objects)["claims"]) == 2


def test_check_validates_the_claims_of_a_group_as_those_of_a_pod() -> None:
    group, template, *_ = documents(wanted=20)
    group["spec"]["resourceClaims"].append({"name": "other"})

    findings = called("check", "--snapshot", CLUSTER, manifests=[group, template])["findings"]

    assert {
        (entry["code"], entry["path"])
        for entry in findings
        if entry["object"] == "PodGroup/default/training"
    } == {
        ("invalidClaimSource", "spec.resourceClaims[1]"),
        ("exceedsLargestNode", "spec.resourceClaims[0].resourceClaimTemplateName"),
    }


def live_group() -> list[Document]:
    """The PodGroup as a cluster has it, with the claim that its first pod uses, on node-a."""
    group, template, pod, *_ = documents()
    group["spec"]["schedulingPolicy"] = {"gang": {"minCount": 2}}
    status = {
        "resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "training-gpus-x7k2p"}]
    }
    results = [
        {
            "request": "gpus",
            "driver": "gpu.example.com",
            "pool": "node-a",
            "device": f"gpu-{number}",
        }
        for number in range(2)
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    claim = api_object(
        "ResourceClaim", "training-gpus-x7k2p", "default", spec=template["spec"]["spec"]
    )
    claim["status"] = {"allocation": allocation}
    pod["spec"] = {**pod["spec"], "nodeName": "node-a"}
    pod["status"] = {"phase": "Running", **status}
    return [{**group, "status": status}, template, claim, pod]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_group_that_is_applied_again_keeps_its_claim(tmp_path: Path, suffix: str) -> None:
    """A second claim was made for it, with further devices."""
    cluster = tmp_path / f"cluster.{suffix}"
    objects = [dict(entry.document) for entry in read_objects(CLUSTER.read_bytes(), "cluster")]
    objects += live_group()
    items = {"apiVersion": "v1", "kind": "List", "items": objects}
    cluster.write_text(json.dumps(items) if suffix == "json" else dump_yaml(objects))
    group, template, _, pod, *_ = documents()
    group["spec"]["schedulingPolicy"] = {"gang": {"minCount": 2}}

    for applied in ([pod], [group, template, pod]):
        answer = called("simulate", "--snapshot", cluster, manifests=applied)
        assert [(entry["placed"], entry["running"]) for entry in answer["groups"]] == [(1, 1)]
        assert answer["claims"] == []
        assert [entry["node"] for entry in answer["pods"]] == ["node-a"]


def test_a_claim_with_a_generated_name_is_counted_once_for_quotas(tmp_path: Path) -> None:
    _, template, pod, *_ = documents()
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGroup"}
    claim = api_object("ResourceClaim", "", "default", spec=template["spec"]["spec"])
    claim["metadata"] = {"generateName": "fabric-", "namespace": "default"}
    hard = {"count/resourceclaims.resource.k8s.io": "2"}
    quota = api_object("ResourceQuota", "claims", "default", spec={"hard": hard})

    answer = called(
        *("simulate", "--snapshot", CLUSTER),
        manifests=[claim, template, {**pod, "spec": spec}, quota],
    )

    assert [bool(entry.get("node")) for entry in answer["pods"]] == [True]


def replayed(*arguments: object) -> Any:
    result = drawbridge("replay", *arguments, "--placements", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_the_pods_of_a_replay_share_the_claim_of_their_group(tmp_path: Path) -> None:
    """Each had a claim of its own, so that the group did not fit."""
    file = tmp_path / "pods.yaml"
    file.write_text(dump_yaml(documents()))

    answer = replayed("-f", file, "--snapshot", CLUSTER, "--strategy", "stock,CompactFirst")

    assert answer["demand"]["requestedDevices"] == 2
    for result in answer["strategies"]:
        assert (result["pods"], result["devices"]["inUse"]) == ({"placed": 4, "failed": 0}, 2)


def test_a_shared_claim_is_charged_once_in_a_replay(tmp_path: Path) -> None:
    file, quota = tmp_path / "pods.yaml", tmp_path / "quota.yaml"
    file.write_text(dump_yaml(documents()))
    hard = {"count/resourceclaims.resource.k8s.io": "1", "pods": "3"}
    quota.write_text(
        dump_yaml([api_object("ResourceQuota", "few", "default", spec={"hard": hard})])
    )
    call = ("-f", file, "--snapshot", CLUSTER, "--strategy", "stock", "--quota", quota)

    (result,) = replayed(*call)["strategies"]

    assert result["failedBy"] == {"groupIncomplete": 3, "resourceQuota": 1}
    (held,) = result["heldBack"]
    assert held["quota"] == "ResourceQuota few, pods"


def running(group: list[Document], folder: Path) -> Path:
    """Return a snapshot with running pods of the group and its claim of two devices of node-a."""
    _, template, *pods = group
    held = api_object("ResourceClaim", "training-gpus-abcde", "default")
    held["spec"] = template["spec"]["spec"]
    request = held["spec"]["devices"]["requests"][0]["name"]
    results = [
        {"request": request, "driver": "gpu.example.com", "pool": "node-a", "device": device}
        for device in ("gpu-0", "gpu-1")
    ]
    held["status"] = {"allocation": {"devices": {"results": results}, **pinned("node-a")}}
    for pod in pods:
        (entry,) = pod["spec"]["resourceClaims"]
        pod["spec"] = {**pod["spec"], "nodeName": "node-a"}
        statuses = [{"name": entry["name"], "resourceClaimName": "training-gpus-abcde"}]
        pod["status"] = {"phase": "Running", "resourceClaimStatuses": statuses}
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(CLUSTER.read_text() + "---\n" + dump_yaml([*group, held]))
    return snapshot


def test_each_copy_of_a_group_has_a_copy_of_its_claim(tmp_path: Path) -> None:
    """Pods were drawn one by one, each with a claim of two devices."""
    snapshot = running(documents(), tmp_path)

    answer = replayed(
        *("--snapshot", snapshot, "--pods", "from-snapshot", "--demand", "100%"),
        *("--strategy", "stock,CompactFirst"),
    )

    assert (answer["demand"]["requestedDevices"], answer["input"]["arriving"]) == (8, 16)
    for result in answer["strategies"]:
        assert (result["pods"], result["devices"]["inUse"]) == ({"placed": 12, "failed": 4}, 6)
        assert result["failedBy"] == {"groupDoesNotFit": 4}


def test_a_claim_above_a_resource_quota_is_not_created_so_that_its_group_waits(
    tmp_path: Path,
) -> None:
    """The claim was placed all the same, beside the warning."""
    hard = {"count/resourceclaims.resource.k8s.io": "0"}
    quota = api_object("ResourceQuota", "claims", "default", spec={"hard": hard})
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER.read_text() + "---\n" + dump_yaml([quota]))

    answer = called("simulate", "--snapshot", cluster, manifests=documents())

    assert [pod.get("node") for pod in answer["pods"]] == [None] * 4
    (reason,) = {pod["reason"] for pod in answer["pods"]}
    assert reason == (
        "claim training.gpus-shared is not created: spec.devices: exceeds ResourceQuota claims: "
        "count/resourceclaims.resource.k8s.io: requested 1, used 0, hard 0; request less, delete what is not in use, "
        "or raise the quota [exceedsQuota]"
    )

    text = drawbridge(
        "why", "pod", "train-3", "-f", "-", "--snapshot", cluster, stdin=dump_yaml(documents())
    ).stdout
    assert "claim training.gpus-shared is not created: it exceeds ResourceQuota claims" in " ".join(
        text.split()
    )
    assert "a ResourceQuota refuses the" in text
