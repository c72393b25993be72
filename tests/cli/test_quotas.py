"""`drawbridge check` and `simulate` with the ResourceQuotas of a namespace."""

from typing import Any, NamedTuple

import msgspec
import pytest

from answers.model.kinds import API_VERSION
from kube.manifests.dump import dump_yaml
from testing import documents
from testing import rule_cases as cases
from testing.command import CLUSTER, drawbridge, finding_lines
from testing.documents import Document, api_object, resource_quota

DRIVER = documents.EXAMPLE
RESOURCE = "example.com/gpu"
DEVICES = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
CLASS: Document = {
    **documents.device_class(f'device.driver == "{DRIVER}"', extendedResourceName=RESOURCE),
    "metadata": {"name": DRIVER},
}
SLICE = documents.resource_slice(*(documents.device(f"gpu-{number}") for number in range(8)))
TEMPLATE: Document = {
    **documents.template(documents.exactly(deviceClassName=DRIVER, count=2)),
    "metadata": {"name": "two"},
}
_CLAIM = "error exceedsQuota ResourceClaim/default/{} spec.devices"
_WAITS = "warning exceedsQuota Pod/default/{} spec.resourceClaims[0].resourceClaimTemplateName"


def quota(hard: int, used: int | None = None, *, scopes: tuple[str, ...] = ()) -> Document:
    names = (DEVICES, f"requests.{RESOURCE}")
    spec: Document = {"hard": dict.fromkeys(names, str(hard))}
    if scopes:
        spec["scopes"] = list(scopes)
    status = {} if used is None else {"status": {"used": dict.fromkeys(names, str(used))}}
    head = api_object("ResourceQuota", "devices")
    return {**head, "spec": spec, **status}


def claim(name: str, count: int) -> Document:
    claim_ = documents.claim(documents.exactly(deviceClassName=DRIVER, count=count))
    return {**claim_, "metadata": {"name": name}}


def pod(name: str, *claims: Document, limits: Any = None, labels: Any = None) -> Document:
    pod_ = cases.pod(
        *claims, uses=tuple({"name": claim_["name"]} for claim_ in claims), limits=limits
    )
    return {**pod_, "metadata": {"name": name, **({"labels": labels} if labels else {})}}


TWO = {"name": "gpu", "resourceClaimTemplateName": "two"}


def job_set(replicas: int, pod_document: Document) -> Document:
    template = {"parallelism": 2, "template": {"spec": pod_document["spec"]}}
    return api_object(
        "JobSet",
        "set",
        api_version="jobset.x-k8s.io/v1alpha2",
        spec={
            "replicatedJobs": [{"name": "a", "replicas": replicas, "template": {"spec": template}}]
        },
    )


def deployment(replicas: int, pod_document: Document) -> Document:
    template = {"metadata": {"labels": {"app": "many"}}, "spec": pod_document["spec"]}
    return api_object("Deployment", "many", spec={"replicas": replicas, "template": template})


class Case(NamedTuple):
    name: str
    state: tuple[Document, ...]
    documents: tuple[Document, ...]
    expected_lines: tuple[str, ...] = ()


CASES = (
    Case("a claim within the quota", (quota(4, 2),), (claim("a", 2),)),
    Case("a claim above what is left", (quota(4, 3),), (claim("a", 2),), (_CLAIM.format("a"),)),
    Case(
        "the second of two claims that are applied together",
        (quota(4, 0),),
        (claim("a", 3), claim("b", 2), claim("c", 1)),
        (_CLAIM.format("b"),),
    ),
    Case("a claim that the cluster has", (quota(4, 4), claim("a", 4)), (claim("a", 4),)),
    Case(
        "a claim that the cluster has, with a larger count",
        (quota(4, 4), claim("a", 4)),
        (claim("a", 5),),
        (_CLAIM.format("a"),),
    ),
    Case(
        "a quota without a status counts the claims of the namespace",
        (quota(4), claim("a", 3)),
        (claim("b", 2),),
        (_CLAIM.format("b"),),
    ),
    Case("a quota with a scope counts no claims", (quota(1, 0, scopes=("BestEffort",)),), (claim("a", 4),)),
    Case(
        "a pod whose claim would not be created",
        (quota(4, 3), TEMPLATE),
        (pod("waits", TWO),),
        (_WAITS.format("waits"),),
    ),
    Case("a template counts nothing by itself", (quota(1, 0),), (TEMPLATE,)),
    Case(
        "an extended resource above the quota",
        (quota(4, 0),),
        (pod("denied", limits={RESOURCE: "5"}),),
        (
            ("error exceedsQuota Pod/default/denied"
            f" spec.containers[0].resources.limits[{RESOURCE}]"),
        ),
    ),
    Case("a workload of another project within the quota", (quota(8, 0), TEMPLATE), (job_set(2, pod("", TWO)),)),
    Case(
        "a workload of another project whose last pods wait for their claims",
        (quota(8, 0), TEMPLATE),
        (job_set(3, pod("", TWO)),),
        ("warning exceedsQuota JobSet/default/set spec.replicatedJobs[0].replicas",),
    ),
    Case(
        "a workload that can only start some of its pods",
        (quota(4, 0),),
        (deployment(5, pod("", limits={RESOURCE: "1"})),),
        ("warning exceedsQuota Deployment/default/many spec.replicas",) * 2,
    ),
    Case(
        "a workload whose pods the cluster has",
        (quota(4, 4), pod("many-1", limits={RESOURCE: "1"}, labels={"app": "many", "x": "y"})),
        (deployment(4, pod("", limits={RESOURCE: "1"})),),
    ),
    Case("a workload without pods", (quota(1, 1),), (deployment(0, pod("", limits={RESOURCE: "1"})),)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check(case: Case, tmp_path: Any) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, *case.state)))

    result = drawbridge(
        "check",
        "-f",
        "-",
        "-o",
        "json",
        "--snapshot",
        str(snapshot),
        stdin=dump_yaml(case.documents),
    )

    findings = finding_lines(msgspec.json.decode(result.stdout))
    assert list(case.expected_lines) == sorted(line for line in findings if "exceedsQuota" in line)


EXTENDED_QUOTA: Document = resource_quota(
    {f"requests.{RESOURCE}": "1"}, name="extended", namespace=""
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.34", [_CLAIM.format("many")]),
        ("1.35", [_CLAIM.format("few"), _CLAIM.format("many")]),
        ("1.37", [_CLAIM.format("few"), _CLAIM.format("many")]),
        (None, [_CLAIM.format("few"), _CLAIM.format("many")]),
    ],
)
def test_claims_count_as_extended_resources_from_1_35_on(
    version: str | None, expected: list[str], tmp_path: Any
) -> None:
    """The quota of the class counts in every version, and the claim with five devices exceeds it."""
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, quota(4, 0), EXTENDED_QUOTA)))
    documents = (claim("few", 2), claim("many", 5))

    result = drawbridge(
        *("check", "-f", "-", "-o", "json", "--snapshot", snapshot),
        *(() if version is None else ("--kubernetes", version)),
        stdin=dump_yaml(documents),
    )

    findings = finding_lines(msgspec.json.decode(result.stdout))
    assert expected == sorted({line for line in findings if "exceedsQuota" in line})


def test_pods_count_their_extended_resources_in_every_version(tmp_path: Any) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, EXTENDED_QUOTA)))

    result = drawbridge(
        *("check", "-f", "-", "--snapshot", snapshot, "--kubernetes", "1.34"),
        stdin=dump_yaml([pod("denied", limits={RESOURCE: "5"})]),
    )

    assert f"requests.{RESOURCE}: requested 5, used 0, hard 1" in result.stdout


@pytest.mark.parametrize(("version", "placed"), [("v1.34.4", {"two"}), ("v1.35.4", set())])
def test_simulate_counts_as_the_version_of_the_snapshot(
    version: str, placed: set[str], tmp_path: Any
) -> None:
    origin = api_object("Snapshot", "cluster", api_version=API_VERSION, kubernetesVersion=version)
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((origin, CLASS, SLICE, EXTENDED_QUOTA)))

    result = drawbridge(
        *("simulate", "-f", "-", "-o", "json", "--snapshot", snapshot),
        stdin=dump_yaml([claim("two", 2)]),
    )

    answer = msgspec.json.decode(result.stdout)
    assert placed == {
        claim_["name"] for claim_ in answer["claims"] if claim_["allocation"] is not None
    }


def test_the_message_has_what_is_requested_used_and_allowed(tmp_path: Any) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, quota(4, 3))))

    result = drawbridge(
        "check", "-f", "-", "--snapshot", str(snapshot), stdin=dump_yaml([claim("a", 2)])
    )

    assert f"exceeds ResourceQuota devices: {DEVICES}: requested 2, used 3, hard 4" in result.stdout


def test_simulate_places_nothing_that_would_not_be_created(tmp_path: Any) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, TEMPLATE, quota(4, 0))))
    documents = (claim("a", 3), claim("b", 2), pod("waits", TWO))

    result = drawbridge(
        "simulate", "-f", "-", "-o", "json", "--snapshot", str(snapshot), stdin=dump_yaml(documents)
    )

    answer = msgspec.json.decode(result.stdout)
    placed = {claim_["name"] for claim_ in answer["claims"] if claim_["allocation"] is not None}
    assert {"a"} == placed
    assert [None] == [pod_["node"] for pod_ in answer["pods"]]
    assert "exceeds ResourceQuota devices" in result.stderr
    assert result.exit_code == 1


def _gpu_job(number: int) -> Document:
    limits = {"nvidia.com/gpu": number, "nvidia.com/gpumem": 9000}
    spec = {"containers": [{"name": "main", "image": "a", "resources": {"limits": limits}}]}
    return api_object("Job", "tts", spec={"template": {"spec": {**spec, "restartPolicy": "Never"}}})


_HAMI_DEVICES = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
_ONE_GPU: Document = resource_quota({_HAMI_DEVICES: "1"}, name="one-gpu", namespace="")


@pytest.mark.parametrize("verb", ["check", "simulate"])
def test_the_fix_for_a_quota_of_devices_is_in_the_key_of_the_job(verb: str) -> None:
    documents = dump_yaml((_ONE_GPU, _gpu_job(2)))

    result = drawbridge(verb, "-f", "-", "--snapshot", CLUSTER, stdin=documents, COLUMNS="400")

    fix = "write nvidia.com/gpu: 1 to fit what is left of ResourceQuota one-gpu"
    assert fix in result.stdout, result.stdout
    if verb == "simulate":
        assert "Pod default/tts-0  not placed" in result.stdout
        assert result.exit_code == 1


def test_the_fix_for_a_quota_of_devices_lets_the_job_start() -> None:
    documents = dump_yaml((_ONE_GPU, _gpu_job(1)))

    result = drawbridge("simulate", "-f", "-", "--snapshot", CLUSTER, stdin=documents)

    assert result.exit_code == 0, result.stdout
    assert "Quota" not in result.stderr


def test_pods_of_a_workload_are_charged_to_a_resource_quota_one_by_one(tmp_path: Any) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml((CLASS, SLICE, TEMPLATE, quota(5, 0))))
    documents = dump_yaml([deployment(3, pod("many", TWO))])

    result = drawbridge(
        "simulate", "-f", "-", "-o", "json", "--snapshot", snapshot, stdin=documents
    )

    pods = msgspec.json.decode(result.stdout)["pods"]
    assert [bool(pod_["node"]) for pod_ in pods] == [True, True, False]
    assert pods[2]["waits"] is True


def test_no_number_is_offered_where_a_quota_has_nothing_left() -> None:
    documents = dump_yaml(
        ({**_ONE_GPU, "status": {"used": {_HAMI_DEVICES: "1"}}}, _gpu_job(2)),
    )

    result = drawbridge("check", "-f", "-", "--snapshot", CLUSTER, stdin=documents)

    assert "request less, delete what is not in use, or raise the quota" in result.stdout
