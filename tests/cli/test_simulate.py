"""The contract of `drawbridge simulate`, sentence by sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from answers.model.kinds import API_VERSION
from cli.output import progress
from cli.verbs.simulate import command
from kube.manifests.dump import dump_yaml
from kube.names import STRATEGY_ANNOTATION
from testing.builders import gpus, pod
from testing.command import CLUSTER, drawbridge
from testing.documents import Document, api_object, ownership
from testing.simulated_cluster import (
    DRIVER,
    STATE,
    claim,
    device_class,
    holding,
    node,
    pinned,
    simulate,
    slice_of,
    using,
)

HEAD = {"apiVersion": API_VERSION, "kind": "SimulateReport"}
DRA = "resource.k8s.io/v1"


def answer(*documents: Document, exits: int = 0, **how: Any) -> dict[str, Any]:
    how["options"] = [*how.get("options", ()), "-o", "json"]
    result = simulate(*documents, **how)
    assert exits == result.exit_code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    # It has tests of its own.
    del document["trace"]
    return document


def placements(answer_document: dict[str, Any]) -> list[str]:
    return [
        f"{placement['name']} {placement['node']}"
        for placement in (*answer_document["pods"], *answer_document["claims"])
    ]


def gets(answer_document: dict[str, Any]) -> dict[str, list[str]]:
    return {
        claim_["name"]: [
            result["device"] for result in claim_["allocation"]["devices"].get("results", ())
        ]
        for claim_ in answer_document["claims"]
        if claim_["allocation"] is not None
    }


# --- the document ---------------------------------------------------------------------------------


def test_the_document_of_a_success() -> None:
    answer_ = answer(using("trainer", "two"), claim("two", 2), claim("one"))

    assert answer_ == {
        **HEAD,
        "claims": [
            {
                "namespace": "team",
                "name": "two",
                "node": "node-a",
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-0"},
                            {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-1"},
                        ]
                    },
                    **pinned("node-a"),
                },
            },
            {
                "namespace": "team",
                "name": "one",
                "node": "node-b",
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "gpu", "driver": DRIVER, "pool": "node-b", "device": "gpu-0"}
                        ]
                    },
                    **pinned("node-b"),
                },
            },
        ],
        "pods": [{"namespace": "team", "name": "trainer", "node": "node-a"}],
        "nodes": [],
        "error": None,
    }  # fmt: skip


def test_the_document_of_a_failure() -> None:
    answer_ = answer(claim("three", 3), exits=1)

    reason = {
        "code": "tooFewDevices",
        "message": "claim team/three, request gpu: only 2 suitable devices, 3 requested",
        "count": 0,
        "claim": "team/three",
        "request": "gpu",
    }
    assert answer_ == {
        **HEAD,
        "claims": [{"namespace": "team", "name": "three", "node": None, "allocation": None}],
        "pods": [],
        "nodes": [
            {"name": name, "fits": False, "score": 0, "reasons": [reason]}
            for name in ("node-a", "node-b")
        ],
        "error": None,
        "denials": answer_["denials"],
    }
    assert ["ResourceClaim/team/three"] == [denial["object"] for denial in answer_["denials"]]


def test_of_many_reasons_what_is_lacking_is_among_those_shown() -> None:
    ill = [
        {"name": f"ill-{key}", "taints": [{"key": key, "effect": "NoSchedule"}]} for key in "abcde"
    ]
    others = [{"name": f"m-{word}", "attributes": {word: {"int": 1}}} for word in "abcde"]
    ours = [f'!("{word}" in device.attributes["{DRIVER}"])' for word in "abcde"]

    stdout = simulate(
        claim("three", 3, selectors=[{"cel": {"expression": our}} for our in ours]),
        snapshot=[device_class(), node("n"), slice_of("n", {"name": "free"}, *ill, *others)],
    ).stdout

    stdout = " ".join(stdout.split())
    assert "only 1 suitable device, 3 requested [tooFewDevices]" in stdout
    assert all(f"untolerated taint {key}:NoSchedule" in stdout for key in "abcde")
    assert "3 more reasons" in stdout


def test_what_upstream_raises_as_fatal_is_the_error() -> None:
    answer_ = answer(claim("lost", deviceClassName="lost"), exits=1)

    assert "could not retrieve device class lost" in answer_["error"]
    assert placements(answer_) == ["lost None"]


def test_a_slice_whose_nodes_cannot_be_told_is_the_error() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}
    place = {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [term]}}
    answer_ = answer(claim("one"), snapshot=[*STATE, slice_of("zone-a", **place)], exits=1)

    assert answer_["error"].startswith("ResourceSlice zone-a-slice: failed to parse node selector")
    assert [False, False] == [node_["fits"] for node_ in answer_["nodes"]]


def test_a_claim_for_nothing_is_allocated_nothing() -> None:
    empty = claim("empty")
    empty["spec"] = {}

    (only,) = answer(empty)["claims"]

    assert only == {
        "namespace": "team", "name": "empty", "node": None, "allocation": {"devices": {}}
    }  # fmt: skip


def test_nothing_to_place() -> None:
    nothing: dict[str, Any] = {"claims": [], "pods": [], "nodes": [], "error": None}
    assert answer(device_class("other")) == {**HEAD, **nothing}


# --- what is placed -------------------------------------------------------------------------------


def test_the_snapshot_is_state_only() -> None:
    answer_ = answer(
        claim("mine"), snapshot=(*STATE, claim("waiting"), using("pending", "waiting"))
    )

    assert placements(answer_) == ["mine node-a"]


def test_what_is_bound_or_allocated_is_state() -> None:
    bound = using("bound", "waits", nodeName="node-b")

    answer_ = answer(bound, holding("held", "gpu-0", "node-a"), claim("mine"))

    assert placements(answer_) == ["mine node-a"]
    assert gets(answer_) == {"mine": ["gpu-1"]}


def test_an_object_of_f_replaces_its_namesake() -> None:
    answer_ = answer(claim("a", 2), snapshot=(*STATE, holding("a", "gpu-0", "node-a")))

    assert gets(answer_) == {"a": ["gpu-0", "gpu-1"]}
    assert placements(answer_) == ["a node-a"]


def test_pods_come_first_then_claims_in_input_order() -> None:
    answer_ = answer(claim("z"), using("second", "b"), claim("b"), using("first"), claim("a"))

    assert placements(answer_) == [
        "second node-a", "first node-a", "b node-a", "z node-a", "a node-b"
    ]  # fmt: skip


def test_claims_of_templates_are_called_after_the_pod() -> None:
    template = api_object(
        "ResourceClaimTemplate", "one", "team", spec={"spec": claim("ignored")["spec"]}
    )
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    trainer = using("trainer", resourceClaims=[entry])
    recorded = {
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "trainer-gpu-abcde"}]
    }
    known = {**using("known", resourceClaims=[entry]), "status": recorded}

    answer_ = answer(trainer, known, snapshot=(*STATE, template))

    assert placements(answer_) == [
        "trainer node-a", "known node-a", "trainer-gpu node-a", "trainer-gpu-abcde node-a"
    ]  # fmt: skip


def test_objects_whose_names_are_to_be_generated_are_told_apart() -> None:
    nameless = claim("x")
    nameless["metadata"] = {"generateName": "run-", "namespace": "team"}
    trainer = using("x")
    trainer["metadata"] = {"generateName": "train-", "namespace": "team"}

    answer_ = answer(nameless, nameless, trainer, trainer)

    assert placements(answer_) == [
        "train- node-a", "train-2 node-a", "run- node-a", "run-2 node-a"
    ]  # fmt: skip


def test_defaults_of_the_api_server_are_filled_in() -> None:
    bare = claim("bare")
    bare["spec"]["devices"]["requests"] = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]

    assert gets(answer(bare)) == {"bare": ["gpu-0"]}


def test_legacy_pods_are_translated_first() -> None:
    state = [str(CLUSTER)]
    share = pod(gpus(1, mem=3000, cores=30))

    result = drawbridge(
        *("simulate", "-f", "-", "--snapshot", *state, "-o", "json"), stdin=dump_yaml([share])
    )

    document = json.loads(result.stdout)
    (only,) = document["claims"]
    (device,) = only["allocation"]["devices"]["results"]
    assert result.exit_code == 0
    assert only["name"] == f"{share['metadata']['name']}-gpu-main"
    assert device["driver"] == "hami-core-gpu.project-hami.io"
    assert device["consumedCapacity"] == {"cores": "30", "memory": "3145728k"}
    assert device["shareID"]


def test_a_pod_that_cannot_be_translated_is_not_placed_and_the_others_are() -> None:
    broken = pod(gpus("500m"))

    result = simulate(broken, claim("mine"), options=["-o", "json"])

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert placements(document) == [f"{broken['metadata']['name']} None", "mine node-a"]
    assert "notAnInteger" in result.stderr


def test_a_rejected_pod_has_its_reason_in_the_answer() -> None:
    broken = pod(gpus(1, mem="8Gi"))

    text = simulate(broken)
    (placed,) = answer(broken, exits=1)["pods"]

    assert "rejected" in text.stdout
    assert "because" in text.stdout
    assert "[wrongUnit]" in text.stdout
    assert placed["node"] is None
    assert placed["reason"].endswith("write 8192 for 8Gi [wrongUnit]")


@pytest.mark.parametrize(
    ("amount", "fix"),
    [
        ("24GB", "write a whole number without a unit: 24576 where the key counts MiB"),
        ("50%", "write 50, without the percent sign"),
        ("much", "write a whole number"),
    ],
)
def test_the_fix_of_what_is_no_quantity_is_an_amount_that_is_taken(amount: str, fix: str) -> None:
    (placed,) = answer(pod(gpus(1, mem=amount)), exits=1)["pods"]

    assert f"not a quantity; {fix} [invalidQuantity]" in placed["reason"]


def test_a_rejected_workload_is_told_as_rejected() -> None:
    broken = workload("Deployment", "apps/v1")
    broken["spec"]["template"]["spec"] = pod(gpus(1, mem="8Gi"))["spec"]

    result = simulate(broken)

    assert result.exit_code == 1
    assert "their number is not known" not in result.stderr
    assert "note: no pods of Deployment/team/web are placed, for the errors above" in result.stderr
    assert "Nothing to place" not in result.stdout
    assert "Deployment team/web  rejected" in result.stdout
    assert "[wrongUnit]" in result.stdout
    assert "1 workload rejected" in result.stdout


def test_a_claim_with_a_wrong_value_is_not_placed() -> None:
    broken = claim("broken")
    broken["spec"]["devices"]["requests"] = "gpu"

    result = simulate(broken, claim("mine"), options=["-o", "json"])

    assert result.exit_code == 1
    assert placements(json.loads(result.stdout)) == ["mine node-a", "broken None"]
    assert "[invalidObject]" in result.stderr


def test_a_wrong_value_in_the_snapshot_is_reported_and_counts_as_an_error() -> None:
    broken = api_object("Node", "bad", labels=3)

    result = simulate(claim("mine"), snapshot=(*STATE, broken))

    assert result.exit_code == 1
    assert "error: Node/bad: metadata.labels: Invalid value: 3" in result.stderr


def test_mapped_extended_resources_get_the_claim_that_the_scheduler_makes() -> None:
    mapping = device_class()
    mapping["spec"]["extendedResourceName"] = "example.com/gpu"
    asks = {"name": "main", "resources": {"limits": {"example.com/gpu": 2}}}

    answer_ = answer(using("whole", containers=[asks]), snapshot=(mapping, *STATE[1:]))

    assert placements(answer_) == ["whole node-a", "whole-extended-resources node-a"]


def workload(kind: str = "Deployment", api_version: str = "apps/v1", **spec: Any) -> Document:
    """Return a workload called web; each of its pods takes a device by a template."""
    containers = [{"name": "c", "image": "c"}]
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    template = {"spec": {"containers": containers, "resourceClaims": claims}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"template": template, **spec},
    }


def pod_of_web(name: str, owner_kind: str, owner: str, **labels: str) -> Document:
    reference = {
        "apiVersion": "v1",
        "kind": owner_kind,
        "name": owner,
        "uid": "u",
        "controller": True,
    }
    return api_object(
        "Pod",
        name,
        "team",
        labels=labels,
        ownerReferences=[reference],
        spec={"containers": [{"name": "c"}], "nodeName": "node-a"},
        status={"phase": "Running"},
    )


ONE_EACH = api_object("ResourceClaimTemplate", "one", "team", spec={"spec": claim("one")["spec"]})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (workload(), ["web-0"]),
        (workload(replicas=3), ["web-0", "web-1", "web-2"]),
        (workload(replicas=0), []),
        (workload("StatefulSet", replicas=2), ["web-0", "web-1"]),
        (workload("Job", "batch/v1", parallelism=2, completions=9), ["web-0", "web-1"]),
        (workload("Job", "batch/v1", parallelism=2, completions=1), ["web-0"]),
        (workload("Job", "batch/v1", parallelism=2, completions="many"), ["web-0", "web-1"]),
        (workload("Job", "batch/v1", completions=2), ["web-0"]),
    ],
    ids=[
        "no number",
        "three",
        "none",
        "a set",
        "a job",
        "one completion",
        "a text",
        "one at a time",
    ],
)
def test_a_workload_stands_for_its_pods(document: Document, expected: list[str]) -> None:
    answer_ = answer(ONE_EACH, document)

    assert expected == [pod["name"] for pod in answer_["pods"]]
    assert [f"{name}-gpu" for name in expected] == [claim["name"] for claim in answer_["claims"]]
    assert all(claim["node"] for claim in answer_["claims"])


def test_pods_that_do_not_fit_end_with_one() -> None:
    result = simulate(ONE_EACH, workload(replicas=40), options=("-o", "json"))
    pods = json.loads(result.stdout)["pods"]

    assert (1, 40) == (result.exit_code, len(pods))
    assert {None} < {pod["node"] for pod in pods}


@pytest.mark.parametrize(
    ("kind", "pods", "expected"),
    [
        ("Deployment", (pod_of_web("web-h-x", "ReplicaSet", "web-h", **{"pod-template-hash": "h"}),),
         ["web-1", "web-2"]),
        ("Deployment", (pod_of_web("web-b-h-x", "ReplicaSet", "web-b-h", **{"pod-template-hash": "h"}),),
         ["web-0", "web-1", "web-2"]),
        ("StatefulSet", (pod_of_web("web-0", "StatefulSet", "web"),
                         pod_of_web("web-1", "StatefulSet", "web")), ["web-2"]),
    ],
    ids=["one of its own", "of another Deployment", "two of a set"],
)  # fmt: skip
def test_pods_that_a_workload_has_already_are_not_placed_again(
    kind: str, pods: tuple[Document, ...], expected: list[str]
) -> None:
    document = workload(kind, replicas=3)

    assert expected == [
        pod["name"] for pod in answer(ONE_EACH, document, snapshot=(*STATE, *pods))["pods"]
    ]


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [("DaemonSet", "apps/v1"), ("PodTemplate", "v1")],
)
def test_workloads_without_a_number_are_reported(kind: str, api_version: str) -> None:
    document = workload(kind, api_version)
    if kind == "PodTemplate":
        document = {**document, "template": document["spec"]["template"]}

    result = simulate(ONE_EACH, document)

    assert result.exit_code == 0
    assert f"note: no pods of {kind}/team/web are placed" in result.stderr


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [({"parallelism": 2}, ["web-0", "web-1"]), ({"parallelism": 2, "completions": 1}, ["web-0"])],
)
def test_a_cron_job_is_one_run_of_it(numbers: Document, expected: list[str]) -> None:
    job = workload("Job", "batch/v1")["spec"] | numbers
    document = {**workload("CronJob", "batch/v1"), "spec": {"jobTemplate": {"spec": job}}}

    assert [pod["name"] for pod in answer(ONE_EACH, document)["pods"]] == expected


V1BETA1 = {"apiVersion": "resource.k8s.io/v1beta1"}


def old_claim(name: str) -> Document:
    document = claim(name) | V1BETA1
    (request,) = document["spec"]["devices"]["requests"]
    document["spec"]["devices"]["requests"] = [request | request.pop("exactly")]
    return document


OLD_STATE = (
    device_class() | V1BETA1,
    node("node-a"),
    slice_of("node-a", {"name": "gpu-0", "basic": {"attributes": {}}}) | V1BETA1,
    holding("held", "gpu-9", "node-a") | {"apiVersion": "resource.k8s.io/v1beta2"},
)


def test_old_versions_are_read() -> None:
    answer_ = answer(old_claim("old"), snapshot=OLD_STATE)

    assert placements(answer_) == ["old node-a"]
    assert gets(answer_) == {"old": ["gpu-0"]}


def test_old_versions_in_a_json_list_are_read(tmp_path: Path) -> None:
    state = tmp_path / "cluster.json"
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OLD_STATE}))

    result = drawbridge(
        *("simulate", "-f", "-", "--snapshot", state, "-o", "json"), stdin=dump_yaml([claim("a")])
    )

    assert placements(json.loads(result.stdout)) == ["a node-a"]


def test_without_a_snapshot_the_given_objects_are_the_cluster() -> None:
    result = drawbridge(
        *("simulate", "-f", "-", "-o", "json"), stdin=dump_yaml([*STATE, claim("mine")])
    )

    assert placements(json.loads(result.stdout)) == ["mine node-a"]


def test_without_nodes_those_that_slices_name_stand_in() -> None:
    result = simulate(
        claim("mine"), snapshot=(device_class(), slice_of("node-z")), options=["-o", "json"]
    )

    assert placements(json.loads(result.stdout)) == ["mine node-z"]
    assert "no Node objects are given" in result.stderr


def test_policies_count_wherever_they_are_given() -> None:
    policy = api_object(
        "DeviceCompatibilityPolicy",
        "alone",
        spec={
            "driver": DRIVER,
            "scope": "Pool",
            "rules": [{"name": "alone", "compatibleOnlyWith": {"cel": {"expression": "false"}}}],
        },
    )

    in_snapshot = answer(claim("a"), claim("b"), snapshot=(*STATE, policy))
    in_files = answer(claim("a"), claim("b"), policy)

    assert placements(in_snapshot) == placements(in_files) == ["a node-a", "b node-b"]


def test_of_two_policies_of_a_driver_the_older_counts() -> None:
    def policy(name: str, day: int, expression: str) -> Document:
        return api_object(
            "DeviceCompatibilityPolicy",
            name,
            creationTimestamp=f"2026-11-{day:02d}T00:00:00Z",
            spec={
                "driver": DRIVER,
                "scope": "Pool",
                "rules": [{"name": "a", "compatibleOnlyWith": {"cel": {"expression": expression}}}],
            },
        )

    alone, together = policy("alone", 2, "false"), policy("together", 1, "true")

    answer_ = answer(claim("a"), claim("b"), snapshot=(*STATE, alone, together))

    assert placements(answer_) == ["a node-a", "b node-a"]


def test_taint_rules_count() -> None:
    rule = api_object(
        "DeviceTaintRule",
        "out",
        spec={
            "deviceSelector": {"driver": DRIVER, "pool": "node-a"},
            "taint": {"key": "out", "effect": "NoSchedule"},
        },
    )

    assert placements(answer(claim("a"), rule)) == ["a node-b"]
    off = ["--feature-gates", "DRADeviceTaintRules=false"]
    assert placements(answer(claim("a"), rule, options=off)) == ["a node-a"]


# --- --node ---------------------------------------------------------------------------------------


def test_node_places_all_claims_together() -> None:
    answer_ = answer(claim("a"), claim("b"), options=["--node", "node-b"])

    assert placements(answer_) == ["a node-b", "b node-b"]
    assert [(node_["name"], node_["fits"]) for node_ in answer_["nodes"]] == [("node-b", True)]


def test_node_is_all_or_nothing() -> None:
    answer_ = answer(claim("a"), claim("b", 2), options=["--node", "node-b"], exits=1)

    assert placements(answer_) == ["a None", "b None"]
    assert [(node_["name"], node_["fits"]) for node_ in answer_["nodes"]] == [("node-b", False)]


def test_a_node_that_is_not_there() -> None:
    result = simulate(claim("a"), options=["--node", "node-c"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown node 'node-c'; known are: node-a, node-b" in result.stderr


# --- --strategy, --feature-gates ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "annotation", "options"),
    [
        ("a node-a", None, []),
        ("a node-b", None, ["--strategy", "CompactFirst"]),
        ("a node-b", "CompactFirst", []),
        ("a node-a", "CompactFirst", ["--strategy", "FirstFit"]),
    ],
)
def test_strategies(want: str, annotation: str | None, options: list[str]) -> None:
    annotations = {STRATEGY_ANNOTATION: annotation} if annotation else {}
    state = (
        device_class(annotations=annotations),
        *STATE[1:],
        holding("held", "gpu-0", "node-b"),
    )

    assert [want] == placements(answer(claim("a"), snapshot=state, options=options))


def owning(**settings: Any) -> Document:
    return ownership({"name": DRIVER, **settings})


def shared(**capacity: str) -> Document:
    return {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "capacity": {name: {"value": value} for name, value in capacity.items()},
    }


def using_share(name: str, node_name: str, **consumed: str) -> Document:
    held_claim = holding(name, "gpu-0", node_name)
    (result,) = held_claim["status"]["allocation"]["devices"]["results"]
    result |= {
        "shareID": "6f3b2e5e-8f3f-4c3b-9d0e-0a1b2c3d4e5f",
        "consumedCapacity": consumed,
    }
    return held_claim


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({}, ["a node-a", "b node-a", "c node-a"]),
        ({"maxConsumersPerDevice": 2}, ["a node-a", "b node-a", "c node-b"]),
        ({"maxConsumersPerNode": 1}, ["a node-a", "b node-b", "c None"]),
    ],
)
def test_consumers_are_limited_as_the_bridge_limits_them(
    settings: dict[str, int], want: list[str]
) -> None:
    state = (*STATE[:-2], slice_of("node-a", shared()), slice_of("node-b", shared()))

    result = answer(
        *map(claim, "abc"),
        snapshot=(*state, owning(**settings)),
        exits=int("c None" in want),
    )

    assert want == placements(result)
    if "c None" in want:
        (reason, *_) = result["nodes"][0]["reasons"]
        assert "consumerLimit" == reason["code"]


@pytest.mark.parametrize(
    ("weights", "want"),
    [(None, "a node-b"), ({"memory": 1}, "a node-a"), ({"memory": 1, "cores": 3}, "a node-b")],
)
def test_capacities_weigh_as_they_do_for_the_bridge(
    weights: dict[str, int] | None, want: str
) -> None:
    """The GPU of node-a has the fuller memory, that of node-b the busier cores."""
    settings = {} if weights is None else {"capacityWeights": weights}
    state = (
        *STATE[:-2],
        slice_of("node-a", shared(memory="80Gi", cores="100")),
        slice_of("node-b", shared(memory="80Gi", cores="100")),
        using_share("held-a", "node-a", memory="40Gi", cores="10"),
        using_share("held-b", "node-b", memory="8Gi", cores="80"),
        owning(**settings),
    )
    wanted = claim("a", capacity={"requests": {"memory": "4Gi", "cores": "5"}})

    assert [want] == placements(
        answer(wanted, snapshot=state, options=["--strategy", "CompactFirst"])
    )


GROUPS = [
    {
        "name": f"gpu-{number}",
        "consumesCounters": [
            {
                "counterSet": "all",
                "counters": {"memory": {"value": "1"}},
                "compatibilityGroups": [f"group-{number}"],
            }
        ],
    }
    for number in range(2)
]


@pytest.mark.parametrize(
    ("exits", "gates"),
    [
        (1, "DRADeviceCompatibilityGroups=true"),
        (1, "DRADeviceCompatibilityGroups=T, DRADeviceTaints=0"),
        (1, ""),
    ],
)
def test_feature_gates(exits: int, gates: str) -> None:
    counters = {"name": "all", "counters": {"memory": {"value": "2"}}}
    devices = slice_of("node-a", *GROUPS)
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 2}
    devices["spec"]["pool"] = pool
    sets = slice_of("node-a", sharedCounters=[counters])
    sets["metadata"]["name"] = "sets"
    sets["spec"] |= {"pool": pool, "devices": []}
    state = (device_class(), node("node-a"), devices, sets)

    answer_ = answer(
        *(claim("a", 2), claim("b")),
        snapshot=state,
        options=["--feature-gates", gates],
        exits=exits,
    )

    # One of two devices can be had with the gate; without it the whole pool is ignored.
    assert (["a None", "b node-a"] if gates else ["a None", "b None"]) == placements(answer_)


def test_feature_gates_add_up_and_the_later_counts() -> None:
    admin = claim("a", adminAccess=True)
    off, on, other = (
        f"DRA{placement}"
        for placement in ("AdminAccess=false", "AdminAccess=true", "DeviceTaints=0")
    )

    for exits, texts in ((1, (off, other)), (0, (off, on)), (1, (f"{on},{off}",))):
        options = [part for text in texts for part in ("--feature-gates", text)]
        assert exits == simulate(admin, options=options).exit_code


def test_gates_that_allocation_does_not_depend_on_are_taken() -> None:
    result = simulate(claim("a"), options=["--feature-gates", "DRAResourcePoolStatus=true"])

    assert result.exit_code == 0
    assert "note: feature gate DRAResourcePoolStatus has no effect here" in result.stderr


@pytest.mark.parametrize(
    ("gates", "why"),
    [
        ("DRAMagic=true", "unknown feature gate 'DRAMagic'; known are: DRAAdminAccess, "),
        ("DRADeviceTaints=maybe", "DRADeviceTaints must be true or false, not 'maybe'"),
        ("DRADeviceTaints", "DRADeviceTaints must be true or false, not ''"),
    ],
)
def test_gates_that_make_no_sense(gates: str, why: str) -> None:
    result = simulate(claim("a"), options=["--feature-gates", gates])

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in " ".join(result.stderr.split())


def test_a_strategy_that_does_not_exist() -> None:
    result = simulate(claim("a"), options=["--strategy", "Best"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "'BestFit'" in result.stderr


# --- wrong calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "Missing option '-f'"),
        (("-f", "absent.yaml"), "absent.yaml: No such file or directory"),
        (("-f", "-", "--live", "--snapshot", "-"), "mutually exclusive"),
        (("-f", "-", "-o", "toml"), "'toml' is not one of 'text', 'json', 'yaml'"),
    ],
)
def test_wrong_calls(arguments: tuple[str, ...], why: str) -> None:
    result = drawbridge("simulate", *arguments, stdin="")

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_snapshot_that_is_not_yaml(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text('{"kind": ')

    result = drawbridge("simulate", "-f", "-", "--snapshot", file, stdin=dump_yaml([claim("a")]))

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}:" in result.stderr


# --- text -----------------------------------------------------------------------------------------


def test_text_says_who_goes_where_why_not_and_what_is_not_modelled() -> None:
    result = simulate(using("trainer", "a"), claim("a"), claim("three", 3))

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Pod team/trainer  node-a",
        "  allocated claim a: gpu-0 of gpu.example.com, pool node-a",
        "",
        "ResourceClaim team/three  not placed",
        "  closest   request 2 devices to fit node node-b",
        "  on        node-a",
        "  because   1/2 devices in use [allocated]",
        "            only 1 suitable device, 3 requested [tooFewDevices]",
        "  on        node-b",
        "  because   only 2 suitable devices, 3 requested [tooFewDevices]",
        "",
        "node-a  gpu.example.com  +.",
        "node-b  gpu.example.com  ..",
        "(+ allocated now, . not in use)",
        "",
        "1 of 1 pod placed, 1 of 2 claims placed",
        "Not modelled: host ports, volumes, affinity between pods, preferred node",
        "affinity, topology spread, scheduling gates.",
    ]


def test_a_request_is_named_where_a_pod_has_several_and_the_claim_where_it_has_several() -> None:
    two = claim("two", 3)
    (request,) = two["spec"]["devices"]["requests"]
    two["spec"]["devices"]["requests"].append({**request, "name": "more"})

    of_one_claim = simulate(two).stdout
    of_two = simulate(using("trainer", "three", "more"), claim("three", 3), claim("more", 3)).stdout

    assert "because   gpu: " in of_one_claim
    assert "more: " in of_one_claim
    assert "claim team/two" not in of_one_claim
    assert "claim team/three, request gpu: " in of_two


def test_devices_of_device_plugins_are_reported_where_no_driver_publishes_any() -> None:
    plugin_node = node("a") | {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}

    alone = simulate(claim("a"), snapshot=[device_class(), plugin_node])
    published = simulate(claim("a"), snapshot=[*STATE, plugin_node])

    note = "device plugins offer nvidia.com/gpu (8 on 1 node): `drawbridge assess`"
    assert note in alone.stdout
    assert "device plugins offer" not in published.output


def test_a_state_without_any_node_places_nothing() -> None:
    result = simulate(claim("a"), snapshot=[device_class()])

    assert (
        "ResourceClaim team/a  not placed\n  because   the cluster has no nodes\n" in result.stdout
    )
    assert "note: the given state of the cluster has neither nodes nor" in result.stderr


def test_without_a_cluster_there_is_nowhere_to_place_anything() -> None:
    result = drawbridge("simulate", "-f", "-", stdin=dump_yaml([claim("a")]))

    assert (2, "") == (result.exit_code, result.stdout)
    assert "No cluster is given: use --snapshot FILE, or --live." in result.stderr


@pytest.mark.parametrize(
    ("note", "options"),
    [
        ("", ("--closest-fits", "3")),
        ("first 2 failures; --closest-fits N.", ("--closest-fits", "2")),
        ("", ("--closest-fits", "0")),
    ],
    ids=["of all failures", "of two out of three", "of none, as asked"],
)
def test_text_says_for_how_many_failures_the_closest_fit_was_computed(
    note: str, options: tuple[str, ...]
) -> None:
    text = simulate(*(claim(name, 3) for name in "abc"), options=options).stdout

    assert note in text
    assert bool(note) == ("not computed" in text)


@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        (gpus(1, mem=200000), "write nvidia.com/gpumem: 81920 to fit node hami-1"),
        (gpus(3, mem=3000), "write nvidia.com/gpu: 2 to fit node hami-0"),
    ],
)
def test_the_closest_fit_of_a_translated_pod_is_in_its_keys(limits: Document, fix: str) -> None:
    share = pod(limits)

    result = drawbridge("simulate", "-f", "-", "--snapshot", CLUSTER, stdin=dump_yaml([share]))

    assert fix in " ".join(result.stdout.split())
    assert "request memory" not in result.stdout


def test_the_closest_fit_of_mode_all_names_the_other_mode() -> None:
    everything = claim("all", allocationMode="All")
    del everything["spec"]["devices"]["requests"][0]["exactly"]["count"]
    held = [holding("held", "gpu-0", "node-a"), holding("other", "gpu-0", "node-b")]

    result = simulate(using("all", "all"), everything, snapshot=(*STATE, *held))

    words = " ".join(result.stdout.split())
    assert "closest request 1 device with allocationMode ExactCount to fit node node-a" in words


def test_text_tells_an_error_once() -> None:
    text = " ".join(simulate(claim("a", deviceClassName="absent")).stdout.split())

    assert 1 == text.count("could not retrieve device class absent")


def test_text_tells_once_why_claims_do_not_fit_together() -> None:
    text = simulate(claim("a", 2), claim("b"), options=["--node", "node-a"]).stdout

    assert text.startswith("Together  not placed\n  claims    team/a, team/b\n  on        node-a\n")
    assert "\n\n\n" not in text


def test_text_says_what_would_fit_if_nothing_were_in_use() -> None:
    state = (*STATE, holding("a", "gpu-0", "node-a"), holding("b", "gpu-0", "node-b"))

    result = simulate(claim("two", 2), snapshot=state)

    assert "  closest   request 1 device to fit node node-a" in result.stdout.splitlines()
    assert "fits node node-a unchanged once its devices are free" in result.stdout


def test_text_looks_for_what_would_fit_only_where_the_node_takes_the_pod() -> None:
    picky = using("picky", "three", nodeSelector={"kubernetes.io/hostname": "node-b"})

    result = simulate(picky, claim("three", 3))

    assert "  closest   request 2 devices to fit node node-b" in result.stdout.splitlines()


def test_text_explains_only_so_many_failures_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EXPLAINED", 1)

    result = simulate(*(claim(name, 3) for name in "abc"))

    lines = result.stdout.splitlines()
    assert "not explained" in lines[lines.index("ResourceClaim team/b  not placed") + 1]
    assert lines.count("  on        node-a, node-b") == 2


def test_text_without_pods_does_not_speak_of_what_pods_need() -> None:
    result = simulate(claim("a"))

    assert result.stdout.endswith("1 of 1 claim placed\n")


def test_text_never_moves_the_cursor() -> None:
    state = (*STATE[:-1], slice_of("node-b", {"name": "gpu-\x1b[2J"}))

    result = simulate(claim("\x1b[2J"), snapshot=state, options=["--strategy", "LowLoadFirst"])

    assert "\x1b" not in result.output


def test_hints_where_something_is_copied_wrongly() -> None:
    wrong = device_class()
    wrong["spec"]["selectors"][0]["cel"]["expression"] = f'attributes["{DRIVER}"].model == "A"'

    result = simulate(claim("a"), snapshot=(wrong, *STATE[1:]))

    assert result.exit_code == 1
    assert "hint: DeviceClass gpu: write device.attributes[...]" in result.stderr


def test_a_long_run_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.0)

    result = simulate(claim("a"), claim("b"), options=["-o", "json"])

    lines = [line.split(",")[0] for line in result.stderr.splitlines()]
    assert lines == ["tried: 1 of 2", "tried: 2 of 2"]


# --- sharing configurations of co-tenants ---------------------------------------------------------

NVIDIA = "gpu.nvidia.com"


def shared_gpu(driver: str = NVIDIA) -> tuple[Document, ...]:
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    gpu = {"name": "gpu-0", "allowMultipleAllocations": True}
    return (
        {**device_class(), "spec": {"selectors": [selector]}},
        node("node-a"),
        slice_of("node-a", gpu, driver=driver),
    )


def time_sliced(name: str, interval: str, driver: str = NVIDIA) -> Document:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": sharing,
    }
    claim_ = claim(name)
    claim_["spec"]["devices"]["config"] = [{"opaque": {"driver": driver, "parameters": parameters}}]
    return claim_


SLICED = (time_sliced("a", "Short"), time_sliced("b", "Long"), time_sliced("c", "Short"))


def test_contradicting_time_slices_are_not_placed_on_one_device() -> None:
    answer_ = answer(*SLICED, snapshot=shared_gpu(), exits=1)

    assert ["a node-a", "b None", "c node-a"] == placements(answer_)
    (reason,) = answer_["nodes"][0]["reasons"]
    assert reason["code"] == "conflictingSharingConfig"
    assert reason["message"].endswith("have a co-tenant with a conflicting GpuConfig")


def test_configurations_of_other_drivers_are_not_compared() -> None:
    driver = "gpu.example.org"
    documents = [
        time_sliced(name, placement, driver) for name, placement in (("a", "Short"), ("b", "Long"))
    ]

    answer_ = answer(*documents, snapshot=shared_gpu(driver))

    assert ["a node-a", "b node-a"] == placements(answer_)


def test_one_call_of_upstream_s_allocator_places_them_with_a_note() -> None:
    result = simulate(*SLICED, snapshot=shared_gpu(), options=["--node", "node-a", "-o", "json"])

    assert result.exit_code == 0, result.output
    assert ["a node-a", "b node-a", "c node-a"] == placements(json.loads(result.stdout))
    assert (
        "note: device gpu-0 of pool node-a is in use with contradicting GpuConfigs by claims "
        "team/a, team/b, team/c; driver gpu.nvidia.com rejects a pod whose configuration differs "
        "from the first that it prepared" in result.stderr
    )


def test_a_pod_that_no_node_takes_is_told_what_to_change() -> None:
    """CPU and nodeSelector are no part of claims, so no closest fit names them."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    resources = {"limits": limits, "requests": {"cpu": "1000"}}
    busy = api_object(
        "Pod",
        "busy",
        "team",
        spec={"containers": [{"name": "main", "image": "a", "resources": resources}]},
    )
    elsewhere = {**busy, "metadata": {"name": "elsewhere", "namespace": "team"}}
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    elsewhere["spec"] = {"containers": [container], "nodeSelector": {"a/b": "c"}}

    result = drawbridge(
        *("simulate", "-f", "-", "--snapshot", CLUSTER),
        stdin=dump_yaml([busy, elsewhere]),
        COLUMNS="300",
    )

    assert "advice    request cpu 128 or less to get node hami-0" in result.stdout
    assert "advice    remove a/b from nodeSelector to get node hami-0" in result.stdout


def oversized(name: str) -> Document:
    container = {
        "name": "main",
        "image": "a",
        "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 200_000}},
    }
    return api_object("Pod", name, spec={"containers": [container]})


def test_what_check_denies_is_told_before_all_else() -> None:
    """It was called not placed, or placed, though no pod would be created."""
    call = ("simulate", "-f", "-", "--snapshot", CLUSTER)
    manifests = dump_yaml([oversized("big")])

    first = drawbridge(*call, stdin=manifests).stderr.splitlines()[0]

    assert first.startswith("denied: Pod/default/big: spec.containers[0]")
    assert first.endswith("[exceedsLargestDevice]")
    document = json.loads(drawbridge(*call, "-o", "json", stdin=manifests).stdout)
    (denial,) = document["denials"]
    assert first == f"denied: {denial['object']}: {denial['reason']}"


def test_of_many_denied_objects_the_first_are_told_and_none_that_runs() -> None:
    large = [oversized(f"big-{number}") for number in range(12)]
    large[0]["spec"]["nodeName"] = "hami-1"

    result = drawbridge("simulate", "-f", "-", "--snapshot", CLUSTER, stdin=dump_yaml(large))

    lines = [line for line in result.stderr.splitlines() if line.startswith("denied: ")]
    assert lines[0].startswith("denied: Pod/default/big-1: ")
    assert lines[10:] == ["denied: 1 more; drawbridge check tells them all"]
