"""`drawbridge why`: the placement of a pod or claim, or the obstacle to one."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import REQUEST_ANNOTATION
from testing import documents
from testing.builders import gpus, pod
from testing.command import CLUSTER, answer, drawbridge
from testing.documents import Document, api_object, owned
from testing.questions import advice, partition, partitions, run_why
from testing.simulated_cluster import (
    DRIVER,
    STATE,
    claim,
    device_class,
    holding,
    node,
    slice_of,
    using,
)


def explain_as_json(*call: str, state: tuple[Document, ...]) -> Document:
    result = run_why(*call, "-o", "json", state=state)
    assert result.exit_code == 0, result.output
    document: Document = json.loads(result.stdout)
    return document


HELD = holding("held", "gpu-0", "node-a")
BOUND = using("bound", "held", nodeName="node-a")
PENDING = using("pending", "waits")
BIG = claim("waits", 3)


def test_a_pod_that_is_bound_holds_its_claims() -> None:
    result = run_why("pod", "bound", state=(BOUND, HELD))

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Pod team/bound",
        "  status    bound to node node-a",
        "  allocated claim held: gpu-0 of gpu.example.com, pool node-a",
        "",
        "node-a  gpu.example.com  #.",
        "(# allocated, . not in use)",
    ]


def test_a_pod_that_waits_is_tried_everywhere() -> None:
    result = run_why("pod", "pending", state=(PENDING, BIG, HELD))

    assert result.exit_code == 0
    assert "status    pending: no node can take it now" in result.stdout
    assert "3 requested" in result.stdout


@pytest.mark.parametrize(
    "call",
    [("pod", "bound"), ("pod/bound",), ("po", "bound"), ("pods/bound",)],
    ids=" ".join,
)
def test_a_pod_may_be_named_as_for_kubectl(call: tuple[str, ...]) -> None:
    assert "Pod team/bound" in run_why(*call, state=(BOUND, HELD)).stdout


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (
            ("configmap", "x"),
            "only pods, claims and workloads with pods of their own can be explained, not 'configmap'",
        ),
        (("cronjob", "x"), "No pod in namespace team has CronJob x as its owner."),
        (("deploy", "x"), "No pod in namespace team has Deployment x as its owner."),
        (("bound",), "expected pod NAME or claim NAME, found 'bound'"),
        ((), "Which pod or claim? kubectl get pods -A --field-selector=status.phase=Pending"),
        (("pod/",), "expected pod NAME or claim NAME, found 'pod/'"),
        (("pod", "a", "b"), "expected pod NAME or claim NAME, found 'pod a b'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_no_pod_and_no_claim_is_a_wrong_call(call: tuple[str, ...], want: str) -> None:
    result = run_why(*call, state=(BOUND, HELD))

    assert 2 == result.exit_code
    assert want in result.stderr


def test_what_the_scheduler_says_of_a_pending_pod_is_repeated() -> None:
    message = "0/8 nodes are available: 3 Too many pods."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    waiting = PENDING | {"status": {"conditions": [condition]}}

    assert f"scheduler {message}" in run_why("pod", "pending", state=(waiting, BIG)).stdout
    assert message == explain_as_json("pod", "pending", state=(waiting, BIG))["scheduler"]


def test_a_translated_pod_says_what_it_was_written_with() -> None:
    (*_, translated) = answer(pod(gpus(1, mem=3000)))["objects"]
    translated["metadata"]["namespace"] = "team"

    status = explain_as_json("pod", "train", state=(translated,))

    assert status["requested"] == ["main: nvidia.com/gpu 1, nvidia.com/gpumem 3000"]
    assert (
        f"requested {status['requested'][0]}" in run_why("pod", "train", state=(translated,)).stdout
    )


def test_the_closest_fit_of_a_translated_pod_is_in_its_keys() -> None:
    (*templates, translated) = answer(pod(gpus(1, mem=200000)))["objects"]

    result = drawbridge(
        *("why", "pod", translated["metadata"]["name"], "--snapshot", "-", "--snapshot", CLUSTER),
        stdin=dump_yaml((*templates, translated)),
    )

    assert "write nvidia.com/gpumem: 81920 to fit node hami-1" in " ".join(result.stdout.split())


def test_an_annotation_that_cannot_be_read_says_nothing_of_keys() -> None:
    forged = PENDING | {
        "metadata": PENDING["metadata"] | {"annotations": {REQUEST_ANNOTATION: "?"}}
    }

    assert explain_as_json("pod", "pending", state=(forged, BIG))["requested"] == []


def test_a_pod_that_could_go_somewhere_says_so() -> None:
    answer_ = explain_as_json("pod", "pending", state=(PENDING, claim("waits")))

    assert answer_["condition"] == "pending"
    assert answer_["simulation"]["pods"] == [
        {"namespace": "team", "name": "pending", "node": "node-a"}
    ]


def test_what_would_have_to_change_is_reported() -> None:
    simulation = explain_as_json("pod", "pending", state=(PENDING, BIG, HELD))["simulation"]

    assert simulation["closestFit"] == "request 2 devices to fit node node-b"
    assert simulation["closestFitWhenIdle"].startswith("request 2 devices to fit node ")


def test_a_pod_that_lacks_a_claim_says_which() -> None:
    answer_ = explain_as_json("pod", "pending", state=(PENDING,))

    assert [entry["code"] for entry in answer_["missing"]] == ["claimNotFound"]


def test_a_pod_that_requests_devices_of_a_plugin_gets_that_reason() -> None:
    legacy = pod(gpus(1, mem=3000)) | {"metadata": {"name": "legacy", "namespace": "team"}}
    mapping = device_class("all")
    mapping["spec"]["extendedResourceName"] = "nvidia.com/gpu"

    assert (
        "hint: Pod team/legacy: nvidia.com/gpu, nvidia.com/gpumem can only come from a device plugin"
    ) in run_why("pod", "legacy", state=(legacy,)).stderr
    assert "team/legacy: nvidia.com/gpumem can only" in (
        run_why("pod", "legacy", state=(legacy, mapping)).stderr
    )


def test_a_pod_of_a_device_plugin_says_what_it_requests() -> None:
    node = api_object(
        "Node",
        "plugin-1",
        labels={"plugin": "yes"},
        status={"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "8", "nvidia.com/gpu": "8"}},
    )
    pending = pod(gpus(16), nodeSelector={"plugin": "yes"}) | {
        "metadata": {"name": "pending", "namespace": "team"}
    }
    bound = pod(gpus(1), nodeName="plugin-1") | {"metadata": {"name": "bound", "namespace": "team"}}
    mapping = device_class("all")
    mapping["spec"]["extendedResourceName"] = "nvidia.com/gpu"

    told = run_why("pod", "pending", state=(node, pending)).stdout
    assert "requested nvidia.com/gpu 16 of a device plugin" in told
    assert "\nplugin-1        nvidia.com/gpu 8 of a device plugin" in told
    told = run_why("pod", "bound", state=(node, bound, mapping)).stdout
    assert "requested nvidia.com/gpu 1 of a device plugin" in told
    assert "plugin-1  nvidia.com/gpu 8 of a device plugin" in told
    told = run_why("pod", "pending", state=(node, pending, mapping)).stdout
    assert "requested nvidia.com/gpu 16 of DeviceClass all" in told


def test_a_paragraph_without_rows_leaves_no_gap() -> None:
    plain = using("plain")

    assert "\n\n\n" not in run_why("pod", "plain", state=(plain,)).stdout


def test_a_pod_that_ended_needs_nothing() -> None:
    done = {**using("done", "waits"), "status": {"phase": "Succeeded"}}

    assert explain_as_json("pod", "done", state=(done, BIG))["condition"] == "finished"


def test_an_allocated_claim_says_where_and_who_uses_it() -> None:
    answer_ = explain_as_json("claim", "held", state=(BOUND, HELD))

    assert (answer_["condition"], answer_["node"]) == ("allocated", "node-a")
    assert answer_["consumers"] == ["pods/bound"]
    assert answer_["simulation"] is None


def test_a_claim_that_nobody_uses_says_so() -> None:
    assert "used by   no pod" in run_why("claim", "held", state=(HELD,)).stdout


def test_a_claim_that_waits_goes_where_its_pod_can_go() -> None:
    picky = using("pending", "waits", nodeSelector={"kubernetes.io/hostname": "node-b"})

    answer_ = explain_as_json("claim", "waits", state=(picky, claim("waits")))

    assert answer_["simulation"]["claims"][0]["node"] == "node-b"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("pod", "bonud"), "There is no pod bonud in namespace team; there is bound."),
        (("claim", "absent"), "There is no claim absent in namespace team."),
        (("pod", "bound", "-n", "other"), "in namespace other; namespace team has one."),
    ],
)
def test_what_is_not_there(call: tuple[str, ...], words: str) -> None:
    result = drawbridge(
        *("why", "-n", "team", *call, "--snapshot", "-"), stdin=dump_yaml((*STATE, BOUND, HELD))
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_without_a_cluster_there_is_nothing_to_ask() -> None:
    result = drawbridge("why", "pod", "bound")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "No cluster is given: use --snapshot FILE, or --live." in result.stderr


# --- policies and conflicts -----------------------------------------------------------------------

APART: Document = api_object(
    "DeviceCompatibilityPolicy",
    "alone",
    spec={
        "driver": DRIVER,
        "scope": "Pool",
        "rules": [{"name": "alone", "compatibleOnlyWith": {"cel": {"expression": "false"}}}],
    },
)
OTHER_HELD = holding("other-held", "gpu-1", "node-a")
CONFLICT = (
    "Device gpu-0 of pool node-a is in use beside gpu-1 (held by claim other-held), against "
    "DeviceCompatibilityPolicy alone: the rule of device gpu-1 does not accept device gpu-0."
)


@pytest.mark.parametrize("call", [("pod", "bound"), ("claim", "held")], ids=" ".join)
def test_devices_in_use_against_a_policy_are_a_conflict(call: tuple[str, str]) -> None:
    (conflict,) = explain_as_json(*call, state=(BOUND, HELD, OTHER_HELD, APART))["conflicts"]

    assert f"{CONFLICT} The policy is not enforced: kube-scheduler ignores policies." == conflict
    assert "conflict  Device gpu-0" in run_why(*call, state=(BOUND, HELD, OTHER_HELD, APART)).stdout


def test_a_conflict_with_an_enforced_policy_says_only_what_it_is() -> None:
    aware = ("--policy-aware-scheduler", "aware")

    assert [CONFLICT] == explain_as_json(
        "pod", "bound", *aware, state=(BOUND, HELD, OTHER_HELD, APART)
    )["conflicts"]
    assert [] == explain_as_json("pod", "bound", state=(BOUND, HELD, APART))["conflicts"]
    assert [] == explain_as_json("pod", "bound", state=(BOUND, HELD, OTHER_HELD))["conflicts"]


@pytest.mark.parametrize(
    ("scheduler", "is_placed"), [("default-scheduler", True), ("aware", False)]
)
def test_the_scheduler_of_a_pod_decides_whether_policies_count(
    scheduler: str, is_placed: bool
) -> None:
    waiting = using("pending", "waits", schedulerName=scheduler, nodeName="")
    on_every_node = [holding(f"held-{node}", "gpu-0", node) for node in ("node-a", "node-b")]
    state = (waiting, claim("waits"), *on_every_node, APART)

    answer_ = explain_as_json("pod", "pending", "--policy-aware-scheduler", "aware", state=state)

    assert is_placed is (answer_["simulation"]["pods"][0]["node"] is not None)


def test_a_disabled_gate_is_named_for_a_pending_pod() -> None:
    (_, *slices) = partitions(partition("a", "mig", ["mig"]))

    result = run_why("pod", "pending", state=(PENDING, BIG, *renamed(slices)))

    assert (
        f"note: pool grouped of driver {DRIVER} cannot be used: compatibilityGroups need feature gate "
        "DRADeviceCompatibilityGroups, which is off"
    ) in result.stderr


def renamed(slices: Iterable[Document]) -> Iterator[Document]:
    """Yield slices as those of a pool of their own."""
    for slice_ in slices:
        name = slice_["metadata"]["name"]
        pool = {**slice_["spec"]["pool"], "name": "grouped"}
        yield {
            **slice_,
            "metadata": {**slice_["metadata"], "name": f"grouped-{name}"},
            "spec": {**slice_["spec"], "pool": pool},
        }


def test_devices_that_are_kept_for_a_group_are_named_with_the_group() -> None:
    """Of a pod that waits; they may be free in the API."""
    kept = {
        "groupUID": "1",
        "namespace": "team",
        "group": "ring",
        "since": "2026-11-20T23:00:00Z",
        "devices": 8,
        "nodes": [f"node-{letter}" for letter in "abcde"],
    }
    ownership = documents.ownership(owned(name=DRIVER), status={"keptForGroups": [kept]})
    state = (PENDING, BIG, ownership)
    sentence = (
        "8 devices on node-a, node-b, node-c and 2 more for PodGroup team/ring, which has waited "
        "since 2026-11-20T23:00:00Z"
    )

    assert explain_as_json("pod", "pending", state=state)["keptForGroups"] == [sentence]
    printed = " ".join(run_why("pod", "pending", state=state).stdout.split())
    assert f"kept {sentence}" in printed
    assert explain_as_json("pod", "bound", state=(BOUND, HELD, ownership))["keptForGroups"] == []


def test_devices_that_the_bridge_holds_back_are_named() -> None:
    """Of a pod that waits; they are free in the API, and nobody gets them."""
    device = {"driver": DRIVER, "pool": "node-a", "device": "gpu-0"}
    claim_document = {
        "claimUID": "1",
        "namespace": "team",
        "pod": "forced",
        "podUID": "2",
        "node": "node-a",
        "until": "2026-11-21T00:05:00Z",
        "devices": [device],
    }
    ownership = documents.ownership(owned(name=DRIVER), status={"heldBack": [claim_document]})
    sentence = f"{DRIVER}/node-a/gpu-0 until 2026-11-21T00:05:00Z"

    status = explain_as_json("pod", "pending", state=(PENDING, BIG, ownership))

    assert sentence in status["heldBack"][0]
    assert "pod team/forced on node node-a was deleted by force" in status["heldBack"][0]
    assert "held back" in run_why("pod", "pending", state=(PENDING, BIG, ownership)).stdout
    assert explain_as_json("pod", "bound", state=(BOUND, HELD, ownership))["heldBack"] == []


def test_the_limit_of_a_pool_that_keeps_a_pod_of_the_bridge_from_a_node_is_named() -> None:
    pool = {"name": "one", "nodeSelector": {}, "maxConsumersPerNode": 1}
    ownership = documents.ownership({"name": DRIVER, "pools": [pool]})
    pending = using("pending", "waits", schedulerName="drawbridge-scheduler")

    held = (HELD, holding("held-b", "gpu-0", "node-b"))
    printed = run_why("pod", "pending", state=(pending, claim("waits"), *held, ownership)).stdout

    assert f"the limit of {DRIVER} per node in pool one" in " ".join(printed.split())


def test_nodes_with_such_devices_come_before_many_others() -> None:
    foreign = [
        slice_of(
            f"other-{number}",
            *({"name": f"x-{index}"} for index in range(number + 1)),
            driver="other.example",
        )
        for number in range(6)
    ]
    full = (node("full"), slice_of("full", {"name": "gpu-0"}), holding("held", "gpu-0", "full"))
    nodes = (node(f"other-{number}") for number in range(6))

    state = (device_class(), *full, *nodes, *foreign, claim("new"))

    result = drawbridge(
        "why", "claim", "new", "-n", "team", "--snapshot", "-", stdin=dump_yaml(state)
    )

    rows = [line.split() for line in result.stdout.splitlines()]
    first = next(row[1:] for row in rows if row[:1] == ["on"])
    reason = next(row[1:] for row in rows if row[:1] == ["because"])
    assert (first, reason[-5:-1]) == (["full"], ["1/1", "devices", "in", "use"])


def test_a_pod_that_waits_for_cpu_alone_says_so() -> None:
    """A pod without devices that runs on the node counts, too."""
    amounts = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
    state = (
        {**node("node-a"), "status": amounts},
        {**node("node-b"), "status": amounts},
        {**using("other", nodeName="node-a"), "status": {"phase": "Running"}},
        using("pending", "one"),
        claim("one"),
    )
    for document in state[2:4]:
        document["spec"]["containers"] = [
            {"name": "c", "resources": {"requests": {"cpu": "2500m", "memory": "1Gi"}}}
        ]

    placed = explain_as_json("pod", "pending", state=state)["simulation"]
    assert placed["pods"][0]["node"] == "node-b"
    state[3]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    status = explain_as_json("pod", "pending", state=state)
    assert status["simulation"]["failedScheduling"] == [
        {
            "object": "Pod team/pending",
            "message": "0/2 nodes are available: 2 Insufficient cpu.",
        }
    ]
    assert status["cause"] == "InsufficientResource"
    assert status["event"].startswith(
        "Devices are free on node node-a and 1 more, but Insufficient"
    )


# --- advice ---------------------------------------------------------------------------------------

ONE = claim("one")


def affinity(key: str, operator: str, values: Sequence[str] = ()) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


LABELLED = node("a") | {"metadata": {"name": "a", "labels": {"gpu-type": "a100"}}}
TOLERATE = "tolerate taint gpu=yes:NoSchedule to get node a, where devices are free"
TAINTED = node("a") | {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("spec", "own_node", "sentence"),
    [
        (
            {"nodeSelector": {"gpu-type": "A100"}},
            LABELLED,
            "write gpu-type: a100 in nodeSelector to get node a, where devices are free",
        ),
        (
            {"affinity": affinity("gpu-type", "In", ["h100"])},
            LABELLED,
            "allow gpu-type a100 in the required node affinity to get node a, where devices are free",
        ),
        (
            {"affinity": affinity("spot", "Exists")},
            LABELLED,
            "remove spot Exists from the required node affinity to get node a, where devices are free",
        ),
        (
            {"nodeSelector": {"gpu-tpye": "a100"}},
            LABELLED,
            "remove gpu-tpye from nodeSelector to get node a, where devices are free",
        ),
        (
            {},
            TAINTED,
            f"{TOLERATE}; or an administrator removes the taint: kubectl taint node a gpu:NoSchedule-",
        ),
    ],
)
def test_a_pod_that_nodes_with_free_devices_reject_is_told_what_to_change(
    spec: Document, own_node: Document, sentence: str
) -> None:
    slices = slice_of("a", {"name": "gpu-0"})

    assert advice(using("pending", "one", **spec), ONE, nodes=(own_node, slices)) == [sentence]


def with_taints(*keys: str) -> Document:
    return node("a") | {"spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]}}


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        (("a", "b/c"), "removes the taints: kubectl taint node a a:NoSchedule- b/c:NoSchedule-"),
        (("$(x)",), "removes the taint: kubectl taint node a '$(x):NoSchedule-'"),
        (("node.kubernetes.io/not-ready",), ""),
        (("a", "node.kubernetes.io/not-ready"), ""),
        (("a", "b", "c", "d"), ""),
    ],
    ids=["two", "quoted", "set by Kubernetes", "one set by Kubernetes", "many"],
)
def test_an_administrator_may_remove_the_taints_that_people_set(
    keys: tuple[str, ...], command: str
) -> None:
    slices = slice_of("a", {"name": "gpu-0"})

    (sentence,) = advice(using("pending", "one"), ONE, nodes=(with_taints(*keys), slices))

    _, _, removal = sentence.partition("; or an administrator ")
    assert removal == command


def test_a_claim_that_other_pods_use_keeps_the_pod_on_its_node() -> None:
    shared = holding("one", "gpu-0", "a")
    shared["status"]["reservedFor"] = [{"resource": "pods", "name": "runs", "uid": "u"}]
    nodes = (with_taints("a"), node("b"), slice_of("a", {"name": "gpu-0"}))

    sentence, *_ = advice(using("pending", "one"), shared, nodes=nodes)

    assert sentence == (
        "claim one, used by runs, is allocated on node a, and the pod can go to that node only; "
        "a claim of its own (resourceClaimTemplateName) may get devices on another"
    )


def test_a_claim_that_is_not_allocated_keeps_no_pod_on_a_node() -> None:
    (sentence,) = advice(using("pending", "one"), ONE, nodes=(node("a"),))

    assert "is allocated on" not in sentence


def sized(name: str, cpu: str, **more: object) -> Document:
    return node(name) | {"status": {"allocatable": {"cpu": cpu, "pods": "110"}}} | more


def asking_for(cpu: str, **spec: object) -> Document:
    pending = using("pending", "one", **spec)
    pending["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return pending


def test_a_taint_is_no_advice_alone_where_the_node_lacks_cpu_as_well() -> None:
    tainted = sized("a", "128", spec=TAINTED["spec"])
    slices = slice_of("a", {"name": "gpu-0"})

    assert advice(asking_for("160"), ONE, nodes=(tainted, slices)) == [
        "tolerate taint gpu=yes:NoSchedule, request cpu 128 or less to get node a, where devices are free"
    ]


def test_the_node_with_the_fewest_changes_is_the_advice() -> None:
    nodes = (sized("a", "128", spec=TAINTED["spec"]), sized("b", "96"), sized("c", "160"))
    slices = [slice_of(name, {"name": "gpu-0"}) for name in "ab"]

    assert advice(asking_for("160"), ONE, nodes=(*nodes, *slices)) == [
        "request cpu 96 or less to get node b, where devices are free"
    ]


def test_of_nodes_with_as_many_changes_the_one_with_the_least_is_the_advice() -> None:
    nodes = (sized("a", "32"), sized("b", "128"), sized("c", "96"))
    slices = [slice_of(name, {"name": "gpu-0"}) for name in "abc"]

    assert advice(asking_for("160"), ONE, nodes=(*nodes, *slices)) == [
        "request cpu 128 or less to get node b, where devices are free"
    ]


def test_a_node_without_any_cpu_left_is_no_advice() -> None:
    full = sized("a", "0", spec=TAINTED["spec"])
    slices = slice_of("a", {"name": "gpu-0"})

    assert advice(asking_for("1"), ONE, nodes=(full, slices)) == []


def labelled(name: str, **labels: str) -> dict[str, Any]:
    return node(name) | {"metadata": {"name": name, "labels": labels}}


def test_the_advice_keeps_a_product_that_nodes_have_and_names_all_products_otherwise() -> None:
    nodes = (labelled("a", product="small", zone="one"), labelled("b", product="large", zone="two"))
    slices = tuple(slice_of(name, {"name": f"gpu-{name}"}) for name in "ab")

    def sentences(product: str) -> list[str]:
        pending = using(
            *("pending", "one"),
            nodeSelector={"product": product},
            affinity=affinity("zone", "In", ["one"]),
        )
        return advice(*slices, ONE, pending, nodes=nodes)

    zone = "allow zone two in the required node affinity"
    end = "where devices are free"
    assert sentences("large") == [f"{zone} to get node b, {end}"]
    assert sentences("huge") == [
        f"write product: small in nodeSelector to get node a, {end}",
        f"write product: large in nodeSelector, {zone} to get node b, {end}",
    ]


def test_a_node_with_devices_for_a_mapped_key_is_the_advice_where_a_selector_names_another() -> (
    None
):
    mapped = device_class()
    mapped["spec"]["extendedResourceName"] = "example.com/gpu"
    pending = using("pending", nodeSelector={"gpu-type": "h100"})
    pending["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    other = node("b") | {"metadata": {"name": "b", "labels": {"gpu-type": "h100"}}}
    state = (mapped, LABELLED, slice_of("a", {"name": "gpu-0"}), other, pending)

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "-o", "json", "--snapshot", "-"),
        stdin=dump_yaml(state),
    )

    document = json.loads(result.stdout)
    assert document["advice"] == [
        "write gpu-type: a100 in nodeSelector to get node a, where devices are free"
    ]
    assert (
        "Devices are free on node a, but nodeSelector requires gpu-type=h100" in document["event"]
    )


def test_a_node_that_is_cordoned_is_no_advice() -> None:
    cordoned = node("a") | {"spec": {"unschedulable": True}}
    slices = slice_of("a", {"name": "gpu-0"})

    assert advice(using("pending", "one"), ONE, nodes=(cordoned, slices)) == []


def test_without_any_device_the_driver_is_missing() -> None:
    (sentence,) = advice(using("pending", "one"), ONE, nodes=(node("a"), node("b")))

    assert sentence.startswith("no node has devices of class gpu: a DRA driver")


def test_without_any_device_the_class_of_a_resource_name_is_named() -> None:
    """It named no class: `no node has devices of class : a DRA driver ...`."""
    mapping = device_class(name="fpga")
    mapping["spec"]["extendedResourceName"] = "example.com/fpga"
    main = {"name": "main", "image": "a", "resources": {"limits": {"example.com/fpga": "1"}}}
    native = api_object("Pod", "pending", "team", spec={"containers": [main]})

    (sentence,) = advice(native, mapping, nodes=(node("a"),))

    assert sentence.startswith("no node has devices of class fpga: a DRA driver")


def test_devices_that_only_have_to_be_free_are_reported_with_their_users() -> None:
    held = holding("held", "gpu-0", "a")
    held["status"]["reservedFor"] = [{"resource": "pods", "name": "trainer", "uid": "u"}]
    slices = slice_of("a", {"name": "gpu-0"})

    assert advice(using("pending", "one"), ONE, held, nodes=(node("a"), slices)) == [
        "devices of node a are used by pod team/trainer"
    ]


def test_a_claim_that_is_not_created_is_told_though_a_node_has_its_devices() -> None:
    template = {
        **claim("one"),
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": claim("one")["spec"]},
    }
    waiting = using("pending")
    waiting["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]

    (sentence,) = advice(waiting, template, nodes=(node("a"), slice_of("a", {"name": "gpu-0"})))

    assert sentence.startswith("not created yet: 1 claim of the pod; ")
    assert "describe resourcequota" in sentence


def test_the_closest_fit_of_a_key_that_a_class_maps_is_in_the_key() -> None:
    mapped = device_class()
    mapped["spec"]["extendedResourceName"] = "example.com/gpu"
    pending = using("pending")
    pending["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "4"}}
    state = (mapped, node("a"), slice_of("a"), pending)

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "--snapshot", "-"), stdin=dump_yaml(state)
    )

    assert "closest   write example.com/gpu: 2 to fit node a" in result.stdout
    assert "container-0-request-0" not in result.stdout


def test_nodes_with_devices_of_the_class_come_before_those_with_others() -> None:
    wants_h100 = "device.attributes['gpu.example.com'].model == 'H100'"
    waits = claim("one", selectors=[{"cel": {"expression": wants_h100}}])
    tainted = TAINTED | {"metadata": {"name": "c"}}
    a100 = {"name": "gpu-0", "attributes": {"model": {"string": "A100"}}}
    others = [
        slice_of(name, {"name": f"nic-{name}-{number}"} | {"attributes": {"n": {"int": number}}})
        for number, name in enumerate("abcde")
    ]
    for number, other in enumerate(others):
        other["spec"]["driver"] = f"nic-{number}.example.com"
    nodes = (*map(node, "abde"), tainted, node("gpus"), *others, slice_of("gpus", a100))

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "--snapshot", "-"),
        stdin=dump_yaml((device_class(), waits, *nodes, using("pending", "one"))),
    )

    places = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("  on ")]
    assert places[0] == "gpus"
    assert 'have model "A100"' in result.stdout
