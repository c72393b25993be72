"""DeviceQuotas in `drawbridge simulate` and `drawbridge why`: pods that fit a node, and no budget."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from testing.budgets import (
    CLUSTER,
    HAMI,
    OWNERSHIP,
    QUOTA,
    of_bridge,
    pending,
    share,
    simulate,
)
from testing.command import drawbridge
from testing.documents import Document, api_object

ALLOCATED: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: moved, namespace: vision}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: hami-core-gpu.project-hami.io}
status:
  allocation:
    devices:
      results:
      - request: gpu
        driver: hami-core-gpu.project-hami.io
        pool: hami-0
        device: hami-gpu-3
        shareID: 11111111-1111-4111-8111-111111111111
        consumedCapacity: {memory: 1Gi, cores: "0"}
"""


def test_a_pod_above_the_budget_of_its_tenant_is_not_placed() -> None:
    placed, findings = simulate(share("fits", 1024), share("never", 50 * 1024))

    assert placed == {"fits": True, "never": False}
    assert findings == [("Pod/vision/never", "exceedsPerRequestQuota")]


def test_pods_are_charged_one_after_another() -> None:
    """One device is left of four."""
    placed, findings = simulate(share("first", 1024), share("second", 1024, "vision-lab"))

    assert placed == {"first": True, "second": False}
    assert findings == [("Pod/vision-lab/second", "deviceQuotaFull")]


def test_another_tenant_has_no_budget() -> None:
    placed, findings = simulate(*(share(f"pod-{number}", 1024, "audio") for number in range(4)))

    assert all(placed.values())
    assert findings == []


def test_pods_of_a_workload_are_charged_each() -> None:
    pod = share("web", 1024)
    deployment = api_object(
        "Deployment",
        "web",
        "vision",
        spec={
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]},
        },
    )

    placed, _ = simulate(deployment)

    assert sorted(placed.values()) == [False, True]


def test_a_pod_that_waits_for_a_device_quota_is_not_called_rejected() -> None:
    """Its fix is in its own keys."""
    two = share("two", 8000, "vision-lab")
    two["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2

    result = drawbridge("simulate", "-f", "-", *CLUSTER, stdin=dump_yaml([two]), COLUMNS="400")

    assert "Pod vision-lab/two  not placed" in result.stdout
    assert "write nvidia.com/gpu: 1 to fit what is left of DeviceQuota vision" in result.stdout


# --- why ------------------------------------------------------------------------------------------


def why(tmp_path: Path, *documents: Document, form: str = "json") -> str:
    file = tmp_path / "pending.yaml"
    file.write_text(dump_yaml(documents))
    namespace = documents[0]["metadata"]["namespace"]
    result = drawbridge(
        "why", "pod", "next", "-n", namespace, *CLUSTER, "--snapshot", file, "-o", form
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("memory", "namespace", "number"),
    [("16Gi", "vision", 0), ("28Gi", "vision", 1), ("28Gi", "audio", 0)],
)
def test_a_pending_pod_is_told_which_budget_it_exceeds(
    memory: str, namespace: str, number: int, tmp_path: Path
) -> None:
    quotas = json.loads(why(tmp_path, *of_bridge(*pending(memory, namespace))))["quotas"]

    assert len(quotas) == number
    for sentence in quotas:
        assert sentence == (
            "DeviceQuota vision, limit memory: 28Gi of memory needed, 24Gi of 80Gi of memory left, "
            "4Gi of memory missing; in use: vision 48Gi, vision-lab 8Gi"
        )


def test_the_text_does_not_blame_the_scheduler_for_a_budget(tmp_path: Path) -> None:
    text = why(tmp_path, *of_bridge(*pending("28Gi")), form="text")

    assert "waits for a DeviceQuota: a node has the devices, but too little is" in text
    assert "has not come to it yet" not in text


def test_what_is_left_is_advised_in_the_unit_of_the_claim(tmp_path: Path) -> None:
    advice = json.loads(why(tmp_path, *of_bridge(*pending("28Gi"))))["advice"]

    assert "request at most 24Gi of memory, wait, or raise the DeviceQuota" in advice


def test_what_is_left_is_advised_in_the_key_of_the_pod(tmp_path: Path) -> None:
    translated = drawbridge(
        "translate", "-f", "-", *CLUSTER, "-o", "yaml", stdin=dump_yaml([share("next", 28 * 1024)])
    )
    documents = [
        entry for entry in yaml.load_all(translated.stdout, Loader=yaml.CSafeLoader) if entry
    ]
    for document in documents:
        if document["kind"] == "Pod":
            document["spec"]["schedulerName"] = SCHEDULER_NAME

    advice = json.loads(why(tmp_path, *documents, OWNERSHIP))["advice"]

    fix = "write nvidia.com/gpumem: 24576 to fit what is left of DeviceQuota vision, wait, or raise the quota"
    assert fix in advice


# --- let through, without devices yet --------------------------------------------------------------


def let_through() -> tuple[Document, ...]:
    """A claim and its pod after its gate, with a promise of all the memory that is left."""
    claim, pod = pending("24Gi")
    claim["metadata"]["name"] = pod["metadata"]["name"] = "promised"
    pod["spec"]["resourceClaims"][0]["resourceClaimName"] = "promised"
    return claim, pod


def beside(tmp_path: Path, *call: str, manifests: tuple[Document, ...]) -> Any:
    """Run a command on manifests beside a pod that was let through."""
    file = tmp_path / "promised.yaml"
    file.write_text(dump_yaml(let_through()))
    result = drawbridge(
        *call, "-f", "-", *CLUSTER, "--snapshot", file, "-o", "json", stdin=dump_yaml(manifests)
    )
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


def quota_findings(answer: Any) -> list[tuple[str, str, str]]:
    return [
        (finding["object"], finding["severity"], finding["code"])
        for finding in answer["findings"]
        if "Quota" in finding["code"]
    ]


def test_what_is_promised_is_not_given_to_others_by_a_simulation(tmp_path: Path) -> None:
    answer = beside(tmp_path, "simulate", manifests=(share("next", 1024),))

    (pod,) = answer["pods"]
    assert pod.get("node") is None
    assert "0 of 80Gi of memory left" in pod["reason"]


@pytest.mark.parametrize("when_full", ["Wait", "Deny"])
def test_what_is_promised_counts_in_a_check(when_full: str, tmp_path: Path) -> None:
    """The webhook denies pods above the allocated amounts only; others are created, and wait."""
    (quota,) = migrating()
    quota["spec"] = {**quota["spec"], "whenFull": when_full}

    answer = beside(tmp_path, "check", manifests=(quota, share("next", 1024)))

    assert quota_findings(answer) == [("Pod/vision/next", "warning", "deviceQuotaFull")]
    (message,) = [entry["message"] for entry in answer["findings"] if "Full" in entry["code"]]
    assert message.endswith("; where the quota is enforced, the pod waits")


@pytest.mark.parametrize("label", ["kueue.x-k8s.io/queue-name", "app"])
def test_a_queue_that_evicts_pods_that_wait_is_named(label: str, tmp_path: Path) -> None:
    queued = share("next", 1024)
    queued["metadata"]["labels"] = {label: "gpus"}

    answer = beside(tmp_path, "check", manifests=(queued,))

    messages = [entry["message"] for entry in answer["findings"] if "Full" in entry["code"]]
    assert ["waitForPodsReady" in message for message in messages] == [label.startswith("kueue")]


def quota_rows(tmp_path: Path, rows: str, *documents: Document) -> dict[str, list[str]]:
    """Return code to objects of the blockers or notes of an assessment that are about quotas."""
    file = tmp_path / "assessed.yaml"
    file.write_text((QUOTA / "cluster.yaml").read_text() + "---\n" + dump_yaml(documents))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return {
        blocker["code"]: blocker["objects"]
        for blocker in answer[rows]
        if "Quota" in blocker["code"]
    }


def test_an_assessment_names_pods_that_quotas_do_not_let_through(tmp_path: Path) -> None:
    """One device of four is left; pods that exceed a limit by themselves use nothing up.

    Pods that find it full do so without a migration, too, and were blockers, while a plan held nothing.
    """
    first, second = share("b-first", 1024), share("c-second", 1024, "vision-lab")
    never = share("a-never", 50 * 1024)

    assert quota_rows(tmp_path, "notes", first) == {}
    all_pods = (never, first, second)
    full = {"deviceQuotaFull": ["Pod/vision-lab/c-second"]}
    assert quota_rows(tmp_path, "notes", *all_pods) == full
    stopped = {"exceedsPerRequestQuota": ["Pod/vision/a-never"]}
    assert quota_rows(tmp_path, "blockers", *all_pods) == stopped


def test_each_namespace_has_the_amounts_of_its_own_quota(tmp_path: Path) -> None:
    """One row told of all, with no amounts; one of pods that never get through had those of the first quota."""
    limit = {"name": "own", "driver": HAMI, "devices": {}, "max": 2}
    spec = {"namespaceSelector": {"matchLabels": {"team": "audio"}}, "limits": [limit]}
    pods = [share(name, 1024, place) for place in ("audio", "vision") for name in ("a", "b")]
    file = tmp_path / "assessed.yaml"
    objects = [api_object("DeviceQuota", "audio", spec=spec), *pods]
    file.write_text((QUOTA / "cluster.yaml").read_text() + "---\n" + dump_yaml(objects))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    text = "a DeviceQuota does not let 1 pod through yet: DeviceQuota {}; where the quota is enforced, the pod waits"
    rows = {tuple(entry["objects"]): entry["message"] for entry in answer["notes"]}
    own = "audio, limit own: 1 device needed, 0 of 2 devices left"
    other = "vision, limit gpus: 1 device needed, 0 of 4 devices left"
    assert rows["Pod/audio/b",] == text.format(own)
    assert rows["Pod/vision/b",] == text.format(other)


def test_a_pod_that_has_moved_is_assessed_once(tmp_path: Path) -> None:
    """Its devices are not charged beside it."""
    moved = share("moved", 1024)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "moved", "uid": "moved"}
    claim = yaml.load(ALLOCATED, Loader=yaml.CSafeLoader)
    claim["metadata"]["ownerReferences"] = [owner]

    assert quota_rows(tmp_path, "notes", moved, claim) == {}
    other = {**claim, "metadata": {"name": "moved", "namespace": "vision"}}
    full = {"deviceQuotaFull": ["Pod/vision/moved"]}
    assert quota_rows(tmp_path, "notes", moved, other) == full


@pytest.mark.parametrize("label", ["kueue.x-k8s.io/queue-name", "app"])
def test_an_assessment_warns_of_a_queue_that_evicts_pods_that_wait(
    label: str, tmp_path: Path
) -> None:
    file = tmp_path / "assessed.yaml"
    pods = [share("first", 1024), share("second", 1024)]
    pods[1]["metadata"]["labels"] = {label: "gpus"}
    file.write_text((QUOTA / "cluster.yaml").read_text() + "---\n" + dump_yaml(pods))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (note,) = [entry for entry in answer["notes"] if entry["code"] == "deviceQuotaFull"]
    text = "a DeviceQuota does not let 1 pod through yet: DeviceQuota vision, limit gpus: 1 device needed, 0 of 4 devices left"
    assert note["message"].startswith(text)
    assert ("waitForPodsReady" in note["message"]) == label.startswith("kueue")


def test_a_pod_does_not_count_against_itself(tmp_path: Path) -> None:
    answer = beside(tmp_path, "check", manifests=let_through())
    placed = beside(tmp_path, "simulate", manifests=let_through())

    assert quota_findings(answer) == []
    assert [bool(pod.get("node")) for pod in placed["pods"]] == [True]


def test_a_claim_is_promised_once_to_all_its_pods(tmp_path: Path) -> None:
    _, second = let_through()
    second["metadata"]["name"] = "second"

    assert quota_findings(beside(tmp_path, "check", manifests=(second,))) == []
    placed = beside(tmp_path, "simulate", manifests=(*let_through(), second))
    assert [bool(pod.get("node")) for pod in placed["pods"]] == [True, True]


def test_a_pod_that_was_let_through_is_told_what_it_holds(tmp_path: Path) -> None:
    answer = json.loads(why(tmp_path, *pending("24Gi")))

    assert (answer["quotas"], answer["gate"]) == ([], None)
    assert answer["promised"] == [
        (
            f"DeviceQuota vision, limit {limit}: {amount} promised to it until it is placed; "
            "delete it to free that"
        )
        for limit, amount in (("gpus", "1 device"), ("memory", "24Gi of memory"))
    ]
    gated_claim, gated_pod = pending("24Gi")
    gated_pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]
    assert json.loads(why(tmp_path, gated_claim, gated_pod))["promised"] == []


# --- behind the gate ------------------------------------------------------------------------------

KEY: Final = "example.com/share"


def mapped() -> Document:
    """The DeviceClass of the cluster, for pods with a key instead of a claim."""
    (device_class,) = (
        document
        for document in yaml.load_all((QUOTA / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader)
        if document["kind"] == "DeviceClass"
    )
    return {**device_class, "spec": {**device_class["spec"], "extendedResourceName": KEY}}


def gated(number: int = 0, claim: str = "") -> Document:
    """A pod behind the gate with a number of devices by a key, or with a claim by its name."""
    resources = {"limits": {KEY: str(number)}, "requests": {KEY: str(number)}} if number else {}
    claims = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
    return api_object(
        "Pod",
        "next",
        "vision",
        uid="next",
        spec={
            "containers": [{"name": "main", "image": "a", "resources": resources}],
            "resourceClaims": claims,
            "schedulingGates": [{"name": QUOTA_GATE}],
        },
    )


def explained(tmp_path: Path, *documents: Document) -> tuple[list[str], str | None]:
    answer = json.loads(why(tmp_path, *documents))
    return answer["quotas"], answer["gate"]


def test_a_gated_pod_with_a_mapped_key_is_told_its_quota(tmp_path: Path) -> None:
    quotas, gate = explained(tmp_path, gated(2), mapped())

    gpus, _, memory = sorted(quotas)
    assert gpus == (
        "DeviceQuota vision, limit gpus: 2 devices needed, 1 of 4 devices left, "
        "1 device missing; in use: vision 2, vision-lab 1"
    )
    assert memory == (
        "DeviceQuota vision, limit memory: 160Gi of memory needed, 24Gi of 80Gi of memory left; "
        "in use: vision 48Gi, vision-lab 8Gi"
    )
    assert gate == (
        "it needs more than a DeviceQuota ever allows, so it gets through only if the quota is raised"
    )


def of_replica_set(document: Document, name: str, hash_: str, **spec: str) -> Document:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "1", "controller": True}
    metadata = {
        **document["metadata"],
        "name": name,
        "uid": name,
        "labels": {"pod-template-hash": hash_},
        "ownerReferences": [{**owner, "name": f"llm-{hash_}"}],
    }
    return {**document, "metadata": metadata, "spec": {**document["spec"], **spec}}


def test_a_rollout_needs_room_for_one_more_pod(tmp_path: Path) -> None:
    old = of_replica_set(gated(1), "old", "aaa", nodeName="somewhere")
    del old["spec"]["schedulingGates"]
    new = of_replica_set(gated(2), "next", "bbb")

    advice = json.loads(why(tmp_path, new, old, mapped()))["advice"]
    alone = json.loads(why(tmp_path, new, mapped()))["advice"]

    rollout = "a rollout of Deployment llm needs room for one more pod"
    assert not [sentence for sentence in alone if rollout in sentence]
    assert advice[-1] == (
        f"{rollout} while old runs: write maxSurge: 0 and maxUnavailable: 1 in spec.strategy.rollingUpdate"
    )


def test_a_gated_pod_is_reported_once_to_request_less(tmp_path: Path) -> None:
    claim, pod = pending("28Gi")
    pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]

    advice = json.loads(why(tmp_path, claim, pod))["advice"]

    assert advice == ["request at most 24Gi of memory, wait, or raise the DeviceQuota"]


def test_top_names_the_quota_that_a_gated_pod_waits_for(tmp_path: Path) -> None:
    file = tmp_path / "pending.yaml"
    claim, pod = pending("28Gi")
    pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]
    file.write_text(dump_yaml((claim, pod)))

    result = drawbridge("top", "waiting", *CLUSTER, "--snapshot", file, "-o", "json")

    (reason,) = [
        group["reason"]
        for group in json.loads(result.stdout)["waiting"]
        if group["pods"] == ["vision/next"]
    ]
    assert reason.startswith(
        "behind its scheduling gate: too little is left of a DeviceQuota; DeviceQuota vision, limit"
    )


def test_a_gated_pod_is_charged_with_the_most_that_it_may_get(tmp_path: Path) -> None:
    claim, pod = pending("28Gi")
    pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]

    quotas, _ = explained(tmp_path, pod, claim)

    assert len(quotas) == 1
    assert "28Gi of memory needed, 24Gi of 80Gi of memory" in quotas[0]


def test_a_gated_pod_without_its_claim_is_told_which(tmp_path: Path) -> None:
    quotas, gate = explained(tmp_path, gated(claim="absent"))

    assert quotas == []
    assert gate is not None
    assert gate.startswith("claim absent does not exist")


def test_a_gated_pod_for_which_there_is_room_waits_for_the_controllers(tmp_path: Path) -> None:
    claim, pod = pending("16Gi")
    pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]

    quotas, gate = explained(tmp_path, pod, claim)

    assert (quotas, gate) == (
        [],
        "the DeviceQuotas have room for it, and the controllers remove the gate",
    )


def test_a_gated_pod_that_names_another_scheduler_is_told_that_the_bridge_decides(
    tmp_path: Path,
) -> None:
    claim, pod = pending("16Gi")
    pod["spec"] |= {"schedulerName": "theirs", "schedulingGates": [{"name": QUOTA_GATE}]}
    owned = api_object("AllocatorOwnership", "default", spec={"drivers": [{"name": HAMI}]})

    _, gate = explained(tmp_path, pod, claim, owned)

    assert gate == (
        f"the bridge allocates the devices of {HAMI}, and this pod names another scheduler; create it again, so "
        "that the bridge places it"
    )


def test_the_text_names_the_gate(tmp_path: Path) -> None:
    text = why(tmp_path, gated(claim="absent"), form="text")

    assert "pending, behind its scheduling gate: claim absent does not exist" in text


def test_keys_that_a_class_maps_are_placed_within_the_budget_only() -> None:
    pod = gated(2)
    del pod["spec"]["schedulingGates"]
    node = next(
        document
        for document in yaml.load_all((QUOTA / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader)
        if document["kind"] == "Node"
    )
    # Whether a device plugin offers the key is known of nodes with a status only.
    node["status"] = {"allocatable": {"cpu": "64", "memory": "256Gi"}}

    placed, findings = simulate(pod, mapped(), node)

    assert placed == {"next": False}
    assert ("Pod/vision/next", "exceedsDeviceQuota") in findings


# --- pods that still have the keys of another scheduler -------------------------------------------


def migrating(*others: Document) -> tuple[Document, ...]:
    """The cluster with a quota that counts pods with HAMi's keys, too."""
    documents = list(yaml.load_all((QUOTA / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader))
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    gpus, memory = quota["spec"]["limits"]
    gpus["legacyKeys"] = [{"name": "nvidia.com/gpu"}]
    memory["legacyKeys"] = [
        {"name": "nvidia.com/gpumem", "perUnit": "1Mi", "multipliedBy": "nvidia.com/gpu"}
    ]
    return (quota, *others)


def old_pod(name: str, mebibytes: int, **spec: Any) -> Document:
    """A pod that is not translated."""
    pod = share(name, mebibytes)
    pod["metadata"]["labels"] = {"drawbridge.internal/translate": "false"}
    pod["spec"] |= spec
    return pod


def test_pods_with_legacy_keys_use_up_the_budget_of_claims() -> None:
    placed, findings = simulate(
        *migrating(old_pod("old", 1024, nodeName="hami-0"), share("new", 1024))
    )

    assert placed["new"] is False
    assert ("Pod/vision/new", "deviceQuotaFull") in findings


def test_a_gated_pod_with_legacy_keys_is_told_its_quota(tmp_path: Path) -> None:
    pod = old_pod("next", 28 * 1024, schedulingGates=[{"name": QUOTA_GATE}])

    quotas, _ = explained(tmp_path, pod, *migrating())

    assert quotas == [
        (
            "DeviceQuota vision, limit memory: 28Gi of memory needed, 24Gi of 80Gi of memory left, "
            "4Gi of memory missing; in use: vision 48Gi, vision-lab 8Gi"
        )
    ]


@pytest.mark.parametrize(
    ("mebibytes", "expected"),
    [
        (8 * 1024, set()),
        (28 * 1024, {"deviceQuotaFull"}),
        (60 * 1024, {"exceedsPerRequestQuota", "deviceQuotaFull"}),
        (90 * 1024, {"exceedsPerRequestQuota", "exceedsDeviceQuota"}),
    ],
)
def test_check_charges_pods_that_keep_their_keys(mebibytes: int, expected: set[str]) -> None:
    result = drawbridge(
        *("check", "-f", "-", *CLUSTER, "-o", "json"),
        stdin=dump_yaml(migrating(old_pod("old", mebibytes))),
    )

    codes = {finding["code"] for finding in json.loads(result.stdout)["findings"]}
    assert {found for found in codes if "Quota" in found} == expected


@pytest.mark.parametrize(("replicas", "is_told"), [(1, False), (12, True)])
def test_all_pods_of_a_workload_count_in_a_budget(replicas: int, is_told: bool) -> None:
    pod = share("web", 6000)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]},
    }
    deployment = api_object("Deployment", "web", "vision", spec=spec)

    result = drawbridge(
        "check", "-f", "-", *CLUSTER, "-f", QUOTA / "vision.yaml", stdin=dump_yaml([deployment])
    )

    assert (
        "for 12 pods; where the quota is enforced, some of them wait" in result.stdout
    ) == is_told
