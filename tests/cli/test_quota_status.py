"""`drawbridge quota status`: amounts used, promised and left of DeviceQuotas, from a snapshot."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object, owned, ownership

CLUSTER: Final = EXAMPLES / "quota" / "cluster.yaml"
GATES: Final = [{"name": QUOTA_GATE}]
HAMI: Final = "hami-core-gpu.project-hami.io"


def cluster(*, without: str = "") -> list[Document]:
    documents = list(yaml.load_all(CLUSTER.read_text(), Loader=yaml.CSafeLoader))
    return [document for document in documents if document["kind"] != without]


def status(tmp_path: Path, documents: Iterable[Mapping[str, Any]]) -> Any:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(documents))
    result = drawbridge("quota", "status", "--snapshot", file, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def status_text(tmp_path: Path, documents: Iterable[Mapping[str, Any]]) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(documents))
    result = drawbridge("quota", "status", "--snapshot", file)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def amounts(answer: Any, limit: str = "memory") -> tuple[str, str, str, str]:
    (quota,) = answer["quotas"]
    (usage,) = (entry for entry in quota["limits"] if entry["name"] == limit)
    return usage["used"], usage["promised"], usage["waiting"], usage["available"]


def waiting_claim(namespace: str = "vision", pod: str = "", group: str = "") -> Document:
    claim: Document = next(d for d in cluster() if d["kind"] == "ResourceClaim")
    metadata: Document = {"name": "next", "namespace": namespace}
    if pod:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "1", "controller": True}
        ]
    if group:
        kind = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
        metadata["ownerReferences"] = [{**kind, "name": group, "uid": "2", "controller": True}]
    return {**claim, "metadata": metadata, "status": {}}


def pod(names: str = "", **spec: Any) -> Document:
    claims = [{"name": "gpu", "resourceClaimName": names}] if names else []
    return api_object(
        "Pod", "later", "vision", uid="1", spec={"containers": [], "resourceClaims": claims, **spec}
    )


def gated_pod(names: str = "") -> Document:
    return pod(names, schedulingGates=GATES)


def bridge_pod() -> Document:
    return pod(schedulerName=SCHEDULER_NAME)


OWNERSHIP: Final[Document] = ownership(owned(name=HAMI))


def test_what_is_allocated_is_used_by_the_tenant_only(tmp_path: Path) -> None:
    answer = status(tmp_path, cluster())

    assert answer["kind"] == "QuotaStatusReport"
    assert amounts(answer) == ("56Gi", "0", "0", "24Gi")
    assert amounts(answer, "gpus") == ("3", "0", "0", "1")
    (quota,) = answer["quotas"]
    assert quota["namespaces"] == ["vision", "vision-lab"]
    assert [(p["namespace"], p["used"]) for p in quota["limits"][1]["namespaces"]] == [
        ("vision", "48Gi"),
        ("vision-lab", "8Gi"),
    ]


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ((waiting_claim(),), ("56Gi", "24Gi", "0", "0")),
        ((waiting_claim(pod="later"), gated_pod()), ("56Gi", "0", "24Gi", "24Gi")),
        ((waiting_claim(), gated_pod(names="next")), ("56Gi", "0", "24Gi", "24Gi")),
        ((waiting_claim(pod="later"), bridge_pod()), ("56Gi", "0", "24Gi", "24Gi")),
        (
            (
                waiting_claim(group="ring"),
                pod(schedulingGroup={"podGroupName": "ring"}, schedulingGates=GATES),
            ),
            ("56Gi", "0", "24Gi", "24Gi"),
        ),
        ((waiting_claim(), OWNERSHIP), ("56Gi", "0", "24Gi", "24Gi")),
        ((waiting_claim("audio"),), ("56Gi", "0", "0", "24Gi")),
    ],
    ids=[
        "let through",
        "at its gate",
        "by name",
        "of a bridge pod",
        "of a group at its gate",
        "of the bridge",
        "another tenant",
    ],
)
def test_what_is_not_allocated_is_promised_or_waits(
    added: tuple[Document, ...], expected: tuple[str, ...], tmp_path: Path
) -> None:
    assert amounts(status(tmp_path, (*cluster(), *added))) == expected


def test_pods_that_were_let_through_are_named(tmp_path: Path) -> None:
    """One that fits nowhere holds its part until somebody deletes it."""
    (quota,) = status(tmp_path, (*cluster(), waiting_claim(), pod(names="next")))["quotas"]
    (gated,) = status(tmp_path, (*cluster(), waiting_claim(), gated_pod(names="next")))["quotas"]

    assert (quota["promisedPods"], gated["promisedPods"]) == (["vision/later"], [])
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml((*cluster(), waiting_claim(), pod(names="next"))))
    text = drawbridge("quota", "status", "--snapshot", file).stdout
    assert "promised to vision/later: deleting a pod that fits nowhere frees its part" in text


def held_back_by(answer: Any) -> set[str]:
    return {limit["heldBackBy"] for quota in answer["quotas"] for limit in quota["limits"]}


def test_who_holds_pods_back_is_said(tmp_path: Path) -> None:
    assert held_back_by(status(tmp_path, cluster())) == {"nobody"}
    assert held_back_by(status(tmp_path, (*cluster(), OWNERSHIP))) == {"bridge"}

    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    condition = {
        "type": "Enforced",
        "status": "True",
        "reason": "Enforced",
        "message": "",
        "lastTransitionTime": "2026-11-24T00:00:00Z",
    }
    quota["status"] = {"conditions": [condition]}
    assert held_back_by(status(tmp_path, documents)) == {"gates"}


def test_a_limit_of_each_namespace_says_what_the_fullest_has_left(tmp_path: Path) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    quota["spec"]["budget"] = "PerNamespace"

    assert amounts(status(tmp_path, documents)) == ("56Gi", "0", "0", "32Gi")


def test_each_namespace_with_an_amount_of_its_own_says_what_it_has_left(tmp_path: Path) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    quota["spec"]["budget"] = "PerNamespace"

    text = status_text(tmp_path, documents)

    assert "memory of vision: used 48Gi, promised 0, waiting 0, left 32Gi\n" in text
    assert "memory of vision-lab: used 8Gi, promised 0, waiting 0, left 72Gi\n" in text


def test_use_above_a_limit_is_reported_with_its_amount(tmp_path: Path) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    quota["spec"]["limits"][1]["max"] = "40G"

    text = status_text(tmp_path, documents)

    assert "  memory: 20129542144 above its max, until as much is released\n" in text
    assert "memory  56Gi  0         0        0     40G" in text, "in the units of the devices"


@pytest.mark.parametrize(
    "limit",
    [
        {"driver": HAMI, "capacity": "memori"},
        {"driver": "gpu.example.com", "devices": {}},
        {
            "driver": HAMI,
            "devices": {},
            "selectors": [{"cel": {"expression": "device.driver == 'other'"}}],
        },
    ],
    ids=["capacity", "driver", "selector"],
)
def test_a_limit_that_counts_no_published_device_is_reported(
    tmp_path: Path, limit: Mapping[str, Any]
) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    quota["spec"]["limits"] = [{"name": "wrong", "max": 4, **limit}]

    text = status_text(tmp_path, documents)

    assert "  wrong: no published device counts: drawbridge check of the quota says why\n" in text
    assert "no published device" not in status_text(tmp_path, cluster())


def test_a_quota_of_no_namespace_says_so(tmp_path: Path) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    quota["spec"]["namespaceSelector"] = {"matchLabels": {"team": "visoin"}}

    text = status_text(tmp_path, documents)

    assert text.startswith("DeviceQuota vision: it selects no namespace, so it limits nobody\n")


def test_a_limit_that_cannot_be_evaluated_and_an_alert_are_reported(tmp_path: Path) -> None:
    documents = cluster()
    (quota,) = (document for document in documents if document["kind"] == "DeviceQuota")
    gpus, memory = quota["spec"]["limits"]
    gpus["selectors"] = [{"cel": {"expression": "nonsense"}}]
    memory["alertThresholdPercent"] = 50

    (usage,) = status(tmp_path, documents)["quotas"]

    assert "spec.limits[0].selectors[0].cel.expression" in usage["limits"][0]["fault"]
    assert usage["limits"][0]["available"] == "0"
    assert usage["limits"][1]["isAlerting"] is True


def test_devices_that_are_gone_make_the_usage_incomplete(tmp_path: Path) -> None:
    documents = cluster()
    claim = next(document for document in documents if document["kind"] == "ResourceClaim")
    claim["status"]["allocation"]["devices"]["results"] = [
        {"request": "gpu", "driver": HAMI, "pool": "hami-0", "device": "gone"}
    ]

    (usage,) = status(tmp_path, documents)["quotas"]

    assert [limit["isComplete"] for limit in usage["limits"]] == [False, False]


def test_as_text_it_fits_a_screen() -> None:
    result = drawbridge("quota", "status", "--snapshot", CLUSTER)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "DeviceQuota vision: 2 namespaces (vision, vision-lab)"
    assert "nobody holds pods back" in result.stdout
    assert len(result.stdout.splitlines()) < 25


def test_a_cluster_without_quotas_has_none(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster(without="DeviceQuota")))

    result = drawbridge("quota", "status", "--snapshot", file)

    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no DeviceQuota" in result.stderr


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        ((), "the snapshot has no Namespaces"),
        (
            (api_object("Snapshot", "cluster", unreadable=["namespaces"]),),
            "as somebody who may list namespaces",
        ),
    ],
    ids=["none", "unreadable"],
)
@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_without_namespaces_no_usage_is_printed(
    form: str, origin: tuple[Document, ...], reason: str, tmp_path: Path
) -> None:
    """Nothing was used and all was left, as if the quota counted no claim."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml((*origin, *cluster(without="Namespace"))))

    result = drawbridge("quota", "status", "--snapshot", file, "-o", form)

    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in " ".join(result.stderr.split())


def test_namespaces_can_be_added_to_a_snapshot(tmp_path: Path) -> None:
    """`kubectl get namespaces -o yaml` writes a List."""
    names = [document for document in cluster() if document["kind"] == "Namespace"]
    namespaces, others = tmp_path / "namespaces.yaml", tmp_path / "cluster.yaml"
    namespaces.write_text(dump_yaml([{"apiVersion": "v1", "kind": "List", "items": names}]))
    others.write_text(dump_yaml(cluster(without="Namespace")))

    result = drawbridge(
        *("quota", "status", "-o", "json"), "--snapshot", others, "--snapshot", namespaces
    )

    assert amounts(json.loads(result.stdout)) == ("56Gi", "0", "0", "24Gi")


def test_claims_whose_namespace_is_missing_are_named(tmp_path: Path) -> None:
    documents = [d for d in cluster() if d["metadata"]["name"] != "vision-lab"]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(documents))

    result = drawbridge("quota", "status", "--snapshot", file)

    assert result.exit_code == 0
    assert "note: claims of vision-lab are counted by no quota" in result.stderr
    assert "note" not in drawbridge("quota", "status", "--snapshot", CLUSTER).stderr


@pytest.mark.parametrize(
    ("gates", "expected"),
    [([], ("3", "2", "0", "0")), ([{"name": QUOTA_GATE}], ("3", "0", "2", "1"))],
)
def test_keys_that_a_class_maps_count_as_the_controllers_count_them(
    gates: list[Document], expected: tuple[str, ...], tmp_path: Path
) -> None:
    """The scheduler makes their claim only when it places the pod."""
    documents = cluster()
    (device_class,) = (entry for entry in documents if entry["kind"] == "DeviceClass")
    device_class["spec"]["extendedResourceName"] = "example.com/share"
    container = {"name": "main", "resources": {"requests": {"example.com/share": "2"}}}

    answer = status(tmp_path, (*documents, pod(containers=[container], schedulingGates=gates)))

    assert amounts(answer, "gpus") == expected
