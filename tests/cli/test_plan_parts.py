"""`drawbridge plan`: namespaces that move in parts, nodes in vain, and nodes to spare."""

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from migration.plan.planning.prepared import prepare_cluster
from migration.plan.search.usable_nodes import EligibleNodes, without_node
from testing.command import ROOT, drawbridge
from testing.counting import counted_calls
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, hami_node, plugin_node, running_job, workload
from testing.plan import (
    Objects,
    call,
    changes,
    document,
    held_objects,
    planned,
    question_of,
    script,
    waves,
)

WHOLE: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}
"""A share that nothing fits beside."""
LABEL: Final = "drawbridge.internal/translate"


def one_namespace(nodes: int, gpus: int, workloads: int, kind: str = "Deployment") -> Objects:
    """HAMi's nodes; the first ones are full of the workloads of one namespace."""
    return [
        *(hami_node(f"h{number:02}", gpus) for number in range(nodes)),
        *itertools.chain.from_iterable(
            workload(
                f"web-{number:02}", WHOLE, [f"h{number // gpus:02}"], namespace="ml", kind=kind
            )
            for number in range(workloads)
        ),
    ]


def moved_workloads(wave: Mapping[str, Any]) -> list[str]:
    return [entry["object"] for entry in wave["workloads"]]


# --- nodes in vain --------------------------------------------------------------------------------


def test_one_namespace_with_sixty_percent_of_the_devices_moves_in_parts(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4)

    assert {} == held_objects(plan)
    assert 16 == sum(len(wave["nodes"]) for wave in plan["waves"])
    moved = [moved_workloads(wave) for wave in plan["waves"]]
    assert 38 == len(set().union(*moved)) == sum(map(len, moved))
    # The devices of the first wave are of use at once.
    assert moved[0]
    assert ["ml"] == [name for wave in plan["waves"] for name in wave["namespaces"]]


@pytest.mark.parametrize(
    "options", [(), ("--spare-nodes", 1)], ids=["by default", "a node to spare"]
)
def test_a_note_says_why_no_more_of_a_namespace_moves(
    tmp_path: Path, options: tuple[object, ...]
) -> None:
    """A reader found 19 workloads of 24 in a wave, and no reason."""
    reason = "with Deployment/ml/web-12 as well, 1 pod has no devices: 1 of Deployment/ml/web-03, once h10 is lost"
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4, *options)

    notes = [
        [note for note in wave["notes"] if note.startswith("namespace ml: ")]
        for wave in plan["waves"]
    ]
    text = "namespace ml: {} of its 38 workloads get claims with this wave, and no more: {}"
    shared = "each wave moves its share of the pods that get claims, by the number of its nodes"
    assert [[text.format(12, reason)], [text.format(13, shared)], [], []] == notes
    assert notes[0][0] in script(tmp_path, "preflight")


def test_a_note_says_that_no_node_serves_more_of_a_namespace(tmp_path: Path) -> None:
    """Each workload has a pool of its own, and one selects a label that the switch takes from its node."""
    nodes = [in_pool(hami_node(f"{pool}-{number}"), pool) for pool in "ab" for number in range(2)]
    objects = [*nodes, hami_node("held"), namespace("ml")]
    objects += workload("old", SHARE, ["held"], namespace="ml", nodeSelector={"gpu": "on"})
    for pool in "ab":
        spec: dict[str, Any] = {"nodeSelector": {"pool": pool}}
        objects += workload(f"web-{pool}", SHARE, [f"{pool}-0"], namespace="ml", **spec)

    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)

    reason = "no node that Deployment/ml/web-b may use is switched by then"
    text = f"namespace ml: 1 of its 3 workloads gets claims with this wave, and no more: {reason}"
    assert [1] == [wave["wave"] for wave in plan["waves"] if text in wave["notes"]]


def test_a_namespace_that_cannot_be_divided_converts_no_node(tmp_path: Path) -> None:
    nodes = [hami_node(f"h{number:02}", 4) for number in range(16)]
    on_nodes = [f"h{number // 4:02}" for number in range(38)]

    result = call(tmp_path, [*nodes, *workload("web", WHOLE, on_nodes)], "--wave-nodes", 4)

    held = held_objects(document(tmp_path))
    assert (1, []) == (result.exit_code, waves(document(tmp_path)))
    assert {*(f"Node//h{number:02}" for number in range(16)), "Namespace//team"} == held.keys()
    assert "no pod with claims would use its devices" in held["Node//h15"]


def test_a_node_in_vain_beside_one_that_a_namespace_waits_for_is_left_out(tmp_path: Path) -> None:
    """A reader's plan switched a MIG node with a namespace for pods that used other nodes."""
    nodes = [hami_node(f"h{number}") for number in range(5)]
    nodes[3]["metadata"]["labels"]["pool"] = "b"
    (owner, _) = workload("nightly", SHARE, ["h3"], nodeSelector={"pool": "b"})
    job = {"spec": {"template": owner["spec"]["template"]}}
    spec = {"schedule": "0 3 * * *", "jobTemplate": job}
    nightly = api_object("CronJob", "nightly", "night", spec=spec) | {"apiVersion": "batch/v1"}
    full = workload("api", WHOLE, [f"h{number // 2}" for number in range(6)])
    objects = [*nodes, namespace("team"), namespace("night"), *full, nightly]

    plan = planned(tmp_path, objects, "--wave-nodes", 2, "--spare-nodes", 0)

    assert [(["h3"], ["night"])] == waves(plan)
    assert "no pod with claims would use its devices" in held_objects(plan)["Node//h4"]


def test_a_namespace_whose_nodes_are_in_vain_says_how_many_pods_are_too_many(
    tmp_path: Path,
) -> None:
    """Its nodes were held for it, and it for its nodes, with no way out."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    places = ["gpu-0"] * 3 + ["gpu-1"] * 3
    pods = workload("train", {GPU: "1"}, places, schedulerName="volcano")
    fewer = workload("train", {GPU: "1"}, places[1:-1], schedulerName="volcano")

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods])
    without_two = planned(tmp_path, [*nodes, namespace("team"), *fewer])

    held = {entry["object"]: entry for entry in plan["held"]}
    assert {"Node//gpu-0", "Node//gpu-1", "Node//gpu-2", "Namespace//team"} == held.keys()
    assert (
        "once it is opted in with gpu-2 switched (no more nodes can be before that), 2 pods have no devices: "
        "2 of Deployment/team/train"
    ) == held["Namespace//team"]["reason"]
    assert held["Namespace//team"]["fix"].startswith("free devices for these pods first")
    assert {} == held_objects(without_two)


def test_nodes_of_another_system_are_not_in_vain(tmp_path: Path) -> None:
    """No pod of HAMi could use them, and those of the plugin find them before and after."""
    full = [hami_node("hami-0"), *workload("web", WHOLE, ["hami-0", "hami-0"])]

    plan = planned(tmp_path, [plugin_node("gpu-0"), *full])

    assert [(["gpu-0"], [])] == waves(plan)
    assert "Node//hami-0" in held_objects(plan)


POOL_A: Final[dict[str, Any]] = {"nodeSelector": {"pool": "a"}}
_IN_A: Final = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
IN_POOL_A: Final[dict[str, Any]] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_IN_A]}
        }
    }
}
TAINT: Final = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "taints", "cause"),
    [
        (POOL_A, (), "nodeSelector requires pool=a"),
        (IN_POOL_A, (), "required node affinity needs pool In [a]"),
        ({}, (TAINT,), "untolerated taint team=x:NoSchedule"),
    ],
    ids=["node selector", "node affinity", "taint"],
)
@pytest.mark.parametrize("limits", [SHARE, {GPU: "1"}], ids=["claims", "native"])
def test_a_node_that_takes_no_pod_is_not_switched(
    tmp_path: Path,
    limits: dict[str, str],
    spec: dict[str, Any],
    taints: tuple[dict[str, str], ...],
    cause: str,
) -> None:
    """Nothing runs there, so it was the first of all waves."""
    make_node = hami_node if limits is SHARE else plugin_node
    nodes = [in_pool(make_node(name), name[0]) for name in ("a-0", "a-1", "b-0")]
    nodes[2]["spec"] = {"taints": list(taints)}

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("web", limits, ["a-0"], **spec)])

    assert ["a-0", "a-1"] == sorted(name for names, _ in waves(plan) for name in names)
    assert f"no workload that moves may use it: {cause}" == held_objects(plan)["Node//b-0"]


def test_a_node_that_only_running_pods_may_use_is_held_for_their_template(tmp_path: Path) -> None:
    """The reason was that no workload may use it, though another webhook had let running pods in."""
    nodes = [plugin_node(name) for name in ("a-0", "a-1", "b-0")]
    nodes[2]["spec"] = {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}
    owner, pod = workload("web", {GPU: "1"}, ["a-0"])
    pod["spec"] = {**pod["spec"], "tolerations": [{"key": GPU, "operator": "Exists"}]}

    plan = planned(tmp_path, [*nodes, namespace("team"), owner, pod])

    (held,) = (entry for entry in plan["held"] if entry["object"] == "Node//b-0")
    assert held["reason"] == (
        f"no workload that moves may use it by its template: untolerated taint {GPU}=present:NoSchedule; "
        "running pods of Deployment/team/web may, with what something adds to them"
    )
    assert held["fix"].startswith("plan goes by templates: write into them what is added ")

    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {tolerations: always}\n")
    after = planned(tmp_path, [*nodes, namespace("team"), owner, pod], "--settings", settings)
    assert "Node//b-0" in held_objects(after), "the webhook adds nothing to native pods"


def test_the_pods_of_a_workload_are_compared_with_all_closed_nodes_at_once(tmp_path: Path) -> None:
    """Each of 2,000 closed nodes was compared with each of 100,000 pods, for five minutes."""
    names, number = [f"b-{index}" for index in range(5)], 20
    nodes = [plugin_node(name) for name in ("a-0", *names)]
    for entry in nodes[1:]:
        entry["spec"] = {"taints": [TAINT]}
    objects = [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["a-0"] * number)]
    cluster = prepare_cluster(question_of(tmp_path, objects)).cluster
    eligible, (web,) = EligibleNodes(cluster), cluster.workloads

    with counted_calls() as calls:
        answers = {(eligible.takes_running(web, n), eligible.rejection(web, n)) for n in names}

    assert {(False, "untolerated taint team=x:NoSchedule")} == answers
    assert 1 == calls[EligibleNodes.pod_of.__code__]
    assert calls[without_node.__code__] <= number + 1


def test_a_node_that_a_tolerating_pod_may_use_is_switched(tmp_path: Path) -> None:
    nodes = [hami_node("h-0"), hami_node("h-1"), hami_node("h-2")]
    nodes[2]["spec"] = {"taints": [TAINT]}
    tolerations = [{"key": "team", "operator": "Exists"}]
    web = workload("web", SHARE, ["h-0"], tolerations=tolerations)

    plan = planned(tmp_path, [*nodes, namespace("team"), *web])

    assert {} == held_objects(plan)


def test_a_pod_that_would_be_rejected_keeps_only_nodes_that_take_it(tmp_path: Path) -> None:
    """Its namespace stays behind, and the free node of the other pool was kept for it."""
    nodes = [in_pool(hami_node(name), name[0]) for name in ("a-0", "a-1", "b-0", "b-1")]
    rejected = workload("old", {GPU: "1.5"}, ["b-0"], namespace="old", nodeSelector={"pool": "b"})
    web = workload("web", SHARE, ["a-0"], **POOL_A)

    plan = planned(tmp_path, [*nodes, namespace("team"), *web, *rejected])

    assert ["a-0", "a-1"] == sorted(name for names, _ in waves(plan) for name in names)
    assert {"Node//b-0", "Node//b-1", "Namespace//old"} == held_objects(plan).keys()


def test_a_namespace_that_fits_nowhere_yet_keeps_no_other_from_its_nodes(tmp_path: Path) -> None:
    """The smaller namespace is first in the order, and needs one of two nodes that are in use."""
    zone = {"zone": "a"}
    nodes = [hami_node(f"h{number}", 1) for number in range(4)]
    for entry in nodes[1:3]:
        entry["metadata"]["labels"] |= zone
    share = {GPU: "1", "nvidia.com/gpumem": "30000", "nvidia.com/gpucores": "80"}
    objects = [
        *nodes,
        *workload("web", SHARE, ["h0"], namespace="free"),
        *running_job("train", WHOLE, ["h1"], namespace="free"),
        *workload("big", share, ["h2"], namespace="bound", nodeSelector=zone),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert (["h3"], ["free"]) == waves(plan)[0]
    assert {} == held_objects(plan)


def test_a_namespace_without_a_wave_has_a_reason_of_its_own(tmp_path: Path) -> None:
    """It had that of the node that was tried last, and of pods of others."""
    zone = {"zone": "a"}
    nodes = [hami_node(f"h{number}", 1) for number in range(4)]
    for entry in nodes[1:3]:
        entry["metadata"]["labels"] |= zone
    objects = [
        *nodes,
        *workload("web", SHARE, ["h0"], namespace="free"),
        *workload("big", WHOLE, ["h1", "h2"], namespace="bound", nodeSelector=zone),
    ]

    held = held_objects(planned(tmp_path, objects, "--wave-nodes", 1))

    reason = "once it is opted in, no node that its pods may use is switched: h1, h2"
    assert reason == held["Namespace//bound"]
    assert "1 of Deployment/bound/big" in held["Node//h1"]


@pytest.mark.parametrize("kind", ["Job", "DaemonSet"])
def test_what_has_no_rollout_moves_with_the_rest(tmp_path: Path, kind: str) -> None:
    objects = [*one_namespace(6, 2, 6), *workload("other", SHARE, ["h03"], namespace="ml")]
    objects[-2]["kind"] = kind  # type: ignore[index]
    for entry in objects:
        for owner in entry.get("metadata", {}).get("ownerReferences", ()):
            owner["kind"] = kind if owner["name"] == "other" else owner["kind"]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    for wave in plan["waves"]:
        for part in wave["partialNamespaces"]:
            assert not [name for name in part["workloads"] if name.startswith(kind)]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Deployment", {"paused": True}),
        ("StatefulSet", {"updateStrategy": {"rollingUpdate": {"partition": 1}}}),
    ],
    ids=["paused", "partition"],
)
def test_what_keeps_its_former_template_moves_with_the_rest(
    tmp_path: Path, kind: str, spec: Mapping[str, Any]
) -> None:
    """Its new pods would not have the label, so `switch.sh` deleted them in vain."""
    objects = one_namespace(16, 4, 38, kind)
    for entry in objects[16:18]:
        entry["spec"] = {**entry.get("spec", {}), **spec}  # type: ignore[index]
    fixed = {
        f"{kind}/ml/{entry['metadata']['name']}"
        for entry in objects
        if entry["kind"] == kind and spec.keys() <= entry["spec"].keys()
    }
    assert fixed

    plan = planned(tmp_path, objects, "--wave-nodes", 4)

    parts = [part for wave in plan["waves"] for part in wave["partialNamespaces"]]
    selected = {name for part in parts for name in part["workloads"]}
    assert selected
    assert not fixed & selected


# --- namespaces that move in parts ----------------------------------------------------------------


def test_the_scripts_of_a_part_label_templates_and_take_the_labels_back(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4)
    first, second, *_ = plan["waves"]
    (part,) = first["partialNamespaces"]
    name = part["workloads"][0].split("/")[2]

    switch, rollback = script(tmp_path, "switch"), script(tmp_path, "rollback")

    label = ("namespace/ml", {LABEL: (None, "selected")})
    template = (f"ml/deployment/{name}", {LABEL: (None, "true")})
    assert [label, template] == changes(switch)[:2]
    # The patch is the rollout.
    assert "rollout restart" not in switch
    assert ("namespace/ml", {LABEL: ("selected", None)}) == changes(rollback)[0]
    assert (f"ml/deployment/{name}", {LABEL: ("true", None)}) in changes(rollback)
    assert rollback.rindex("change_object ") < rollback.index("kubectl drain")
    # The second part leaves the label of the first one.
    assert ["ml"] == second["formerlySelective"]
    unchanged = ("namespace/ml", {LABEL: ("selected", "selected")})
    assert unchanged == changes(script(tmp_path, "rollback", 2))[0]


def test_a_repository_gets_the_labels_of_parts(tmp_path: Path) -> None:
    objects = one_namespace(16, 4, 38)
    plan = planned(tmp_path, objects, "--wave-nodes", 4, "--format", "kustomize")

    (part,) = plan["waves"][0]["partialNamespaces"]
    _, namespace_name, name = part["workloads"][0].split("/")
    step = tmp_path / "plan" / "kustomize" / "wave-1"
    path = ".metadata.labels.drawbridge\\.internal/translate"
    switch, rollback = script(tmp_path, "switch", 1), script(tmp_path, "rollback", 1)
    assert f"{LABEL}: selected" in (step / f"namespace.{namespace_name}.yaml").read_text()
    templates = step.with_name("wave-1-templates")
    template = (templates / f"deployment.{namespace_name}.{name}.yaml").read_text()
    assert f'{LABEL}: "true"' in template
    assert f"'--for=jsonpath={{{path}}}=selected'" in switch
    assert f"'--for=jsonpath={{.spec.template{path}}}=true'" in switch
    assert f"'--output=jsonpath={{.spec.template{path}}}'" in rollback
    assert [] == changes(switch + rollback)
    assert "take kustomize/wave-1-templates out of your repository" in rollback


def test_a_repository_changes_templates_after_the_check_of_the_webhook(tmp_path: Path) -> None:
    """One commit had both, so pods were created again before the check, or before their namespace had its label."""
    objects = one_namespace(16, 4, 38)
    plan = planned(tmp_path, objects, "--wave-nodes", 4, "--format", "kustomize")

    (part,) = plan["waves"][0]["partialNamespaces"]
    kind, namespace_name, name = part["workloads"][0].split("/")
    switch = script(tmp_path, "switch", 1)
    order = [
        switch.index(text)
        for text in (
            "commit kustomize/wave-1 of the plan",
            f"kubectl wait namespace/{namespace_name} ",
            " --webhook --wave ",
            "commit kustomize/wave-1-templates of the plan",
            f"kubectl wait {kind.lower()}/{name} ",
        )
    ]
    assert sorted(order) == order
    folder = tmp_path / "plan" / "kustomize"
    assert {f"namespace.{namespace_name}.yaml", "kustomization.yaml"} == {
        path.name for path in (folder / "wave-1").iterdir()
    }


def test_a_repository_is_not_asked_for_the_label_that_a_namespace_has(tmp_path: Path) -> None:
    """The second part asked for a commit of the same label again."""
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4, "--format", "kustomize")

    second = plan["waves"][1]
    last = next(wave for wave in plan["waves"] if wave["namespaces"] == ["ml"])
    assert (["ml"], "selected") == (second["formerlySelective"], second["formerLabels"]["ml"])
    folder, switch = tmp_path / "plan" / "kustomize", script(tmp_path, "switch", 2)
    assert not (folder / "wave-2").exists()
    assert "commit kustomize/wave-2 " not in switch
    assert "kubectl wait namespace/ml " in switch
    assert "take kustomize/wave-2 out" not in script(tmp_path, "rollback", 2)
    assert f'{LABEL}: "true"' in (folder / f"wave-{last['wave']}" / "namespace.ml.yaml").read_text()
    rollback = script(tmp_path, "rollback", last["wave"])
    assert f"take kustomize/wave-{last['wave']} out" in rollback


def test_the_last_part_opts_the_namespace_in(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4)
    number, last = next(
        (wave["wave"], wave) for wave in plan["waves"] if wave["namespaces"] == ["ml"]
    )

    switch, rollback = script(tmp_path, "switch", number), script(tmp_path, "rollback", number)

    assert ("namespace/ml", {LABEL: ("selected", "true")}) in changes(switch)
    assert "kubectl rollout restart --namespace=ml" in switch
    assert ("namespace/ml", {LABEL: ("true", "selected")}) in changes(rollback)
    earlier = {
        name
        for wave in plan["waves"][: number - 1]
        for part in wave["partialNamespaces"]
        for name in part["workloads"]
    }
    assert not earlier & set(moved_workloads(last))


def test_a_plan_goes_on_where_a_namespace_has_moved_in_part(tmp_path: Path) -> None:
    """The first half has claims already, on nodes that are switched."""
    objects = [*one_namespace(4, 2, 4), namespace("ml", {LABEL: "selected"})]
    for entry in objects:
        if entry["kind"] == "Deployment" and entry["metadata"]["name"] in {"web-00", "web-01"}:
            entry["spec"]["template"]["metadata"]["labels"][LABEL] = "true"

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    assert {} == held_objects(plan)
    moved = {name for wave in plan["waves"] for name in moved_workloads(wave)}
    assert {"Deployment/ml/web-02", "Deployment/ml/web-03"} == moved


def test_the_table_says_who_may_use_what_is_free(tmp_path: Path) -> None:
    result = call(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4, "--spare-nodes", 0)

    head, first, *_ = result.stdout.splitlines()
    (*_, free_keys, free_claims) = head.partition("EVICTED OF THEM  ")[2].split("  ")
    assert ["FREE FOR KEYS", "FREE FOR CLAIMS"] == [free_keys, free_claims]
    assert "ml (13 workloads)" in first
    assert "26 -> 23" in first
    assert "0 -> 3" in first


# --- nodes to spare -------------------------------------------------------------------------------


def test_each_side_can_lose_its_largest_node(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4, "--spare-nodes", 1)

    assert {} == held_objects(plan)
    assert 1 == plan["spareNodes"]
    switched, moved = 0, 0
    for wave in plan["waves"]:
        switched += len(wave["nodes"])
        moved += len(wave["workloads"])
        # All nodes are equal, and a pod has a whole device.
        for nodes, pods in ((switched, moved), (16 - switched, 38 - moved)):
            assert not pods or pods <= (nodes - 1) * 4, wave["wave"]


@pytest.mark.parametrize(
    ("options", "numbers", "text"),
    [
        (
            (),
            (0, 1),
            "a note of the wave says so, and the wave stays (spareNodes: 0 in plan.yaml); --spare-nodes 1 holds",
        ),
        (("--spare-nodes", 0), (0, 0), "No loss of a node was tried (--spare-nodes 0)"),
        (("--spare-nodes", 2), (2, 2), "what cannot have that has no wave (--spare-nodes 2)"),
    ],
    ids=["by default", "none", "two"],
)
def test_the_setting_for_nodes_to_spare_is_told_with_what_was_tried(
    tmp_path: Path, options: tuple[object, ...], numbers: tuple[int, int], text: str
) -> None:
    """A reader found spareNodes 0 in plan.yaml, and a note on losses that were tried."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(6)]
    plan = planned(tmp_path, [*nodes, *workload("web", {GPU: "1"}, ["gpu-0"])], *options)

    assert numbers == (plan["spareNodes"], plan["triedLosses"])
    for name in ("README.md", "plan.html"):
        assert text in (tmp_path / "plan" / name).read_text()


def test_without_a_node_to_spare_it_is_held_and_says_how_to_do_without(tmp_path: Path) -> None:
    tight = [hami_node("h00"), hami_node("h01"), *workload("web", WHOLE, ["h00", "h00"])]

    plan = planned(tmp_path, tight, "--wave-nodes", 1, "--spare-nodes", 1)

    assert [] == plan["waves"]
    assert all("--spare-nodes 0" in entry["fix"] for entry in plan["held"])
    assert [2] == [len(planned(tmp_path, tight, "--wave-nodes", 1, "--spare-nodes", 0)["waves"])]


def test_a_node_to_spare_is_one_that_its_pods_may_use(tmp_path: Path) -> None:
    """Elsewhere enough devices are free, and the node selector of the pods does not take them there."""
    nodes = [in_pool(hami_node(name), name[0]) for name in ("a-0", "a-1", "b-0", "b-1", "b-2")]
    web = workload("web", SHARE, ["a-0"], nodeSelector={"pool": "a"})

    held = held_objects(planned(tmp_path, [*nodes, *web], "--wave-nodes", 1, "--spare-nodes", 1))

    assert {"Node//a-0", "Node//a-1"} <= held.keys()
    assert "1 of Deployment/team/web, once a-" in held["Node//a-0"]


def in_pool(node: dict[str, Any], pool: str) -> dict[str, Any]:
    node["metadata"]["labels"]["pool"] = pool
    return node


def test_a_loss_that_leaves_pods_without_devices_today_holds_nothing(tmp_path: Path) -> None:
    """The migration makes it no worse, and every other node was held for it."""
    nodes = [in_pool(hami_node(name), name[0]) for name in ("a-0", "b-0", "b-1", "b-2")]
    full = workload("full", WHOLE, ["a-0", "a-0"], namespace="full", nodeSelector={"pool": "a"})
    web = workload("web", SHARE, ["b-0"], nodeSelector={"pool": "b"})

    plan = planned(tmp_path, [*nodes, *full, *web], "--spare-nodes", 1)

    assert {"Node//a-0", "Namespace//full"} <= held_objects(plan).keys()
    # No pod that is left behind may use them, so none of them waits for it.
    assert ["b-0", "b-1", "b-2"] == sorted(name for names, _ in waves(plan) for name in names)
    first, *_ = plan["waves"]
    (note,) = (note for note in first["notes"] if "no node to spare today" in note)
    assert "that of a-0 leaves pods without devices before the first wave already" in note
    assert "losses that were tried" in note


def test_the_losses_of_today_are_named_in_order(tmp_path: Path) -> None:
    """A reader found fifteen nodes in no order."""
    nodes = [in_pool(plugin_node(name, 2), name[0]) for name in ("a-0", "b-0", "c-0", "c-1")]
    one = workload("one", {GPU: "2"}, ["a-0"], nodeSelector={"pool": "a"})
    two = workload("two", {GPU: "1"}, ["b-0", "b-0"], nodeSelector={"pool": "b"})
    web = workload("web", {GPU: "1"}, ["c-0"], nodeSelector={"pool": "c"})

    plan = planned(tmp_path, [*nodes, namespace("team"), *one, *two, *web])

    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if "spare today" in note}
    assert "that of a-0 or b-0 leaves pods without devices" in note


def test_every_node_with_other_pods_is_tried_for_the_losses_of_today(tmp_path: Path) -> None:
    """Of equal nodes only that with the most pods was tried, and the loss of the other was called harmless."""
    nodes = [plugin_node(f"gpu-{number}", 4) for number in range(3)]
    small = workload("small", {GPU: "1"}, ["gpu-0", "gpu-0", "gpu-2"])
    large = workload("large", {GPU: "4"}, ["gpu-1"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *small, *large])

    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if "spare today" in note}
    assert "that of gpu-1 leaves pods without devices before the first wave" in note


@pytest.mark.parametrize("pool", ["", "b"])
def test_evicted_pods_that_may_take_the_devices_of_a_later_wave_are_told(
    tmp_path: Path, pool: str
) -> None:
    """The plan placed them elsewhere, and kube-scheduler does not know of the later wave."""
    names = ("z-0", "z-1", "b-0", "b-1", "b-2")
    nodes = [in_pool(plugin_node(name, 2), name[0]) for name in names]
    pinned = workload("pinned", {GPU: "1"}, ["z-0", "z-0"], nodeSelector={"pool": "z"})
    guard = workload("guard", {GPU: "1"}, ["b-0"], nodeSelector={"pool": pool} if pool else {})

    plan = planned(
        tmp_path,
        [*nodes, namespace("team"), *pinned, *guard],
        "--wave-nodes",
        1,
        "--spare-nodes",
        0,
    )

    found = {
        wave["nodes"][0]["name"]: note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "may also get" in note
    }
    assert ([] if pool else ["b-0"]) == list(found)
    for note in found.values():
        assert note.startswith(
            "evicted pods of Deployment/team/guard may also get z-0, z-1, where wave "
        )
        assert "needs devices for Deployment/team/pinned and leaves 0 devices free" in note


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({GPU: "1"}, True),
        ({GPU: "4"}, False),
        ({GPU: "1", "cpu": "32"}, False),
        ({GPU: "1", "memory": "64Gi"}, False),
        ({GPU: "1", "rdma/hca": "1"}, False),
    ],
    ids=["a small pod", "its devices", "its CPU", "its memory", "a kept resource"],
)
def test_evicted_pods_that_no_node_of_a_need_has_room_for_are_not_told(
    tmp_path: Path, limits: dict[str, str], *, expected: bool
) -> None:
    """A pod of 8 GPUs and 120 CPUs was said to get nodes of 4 GPUs and 46 CPUs."""
    small = [in_pool(plugin_node(name, 2), "z") for name in ("z-0", "z-1")]
    large = [in_pool(plugin_node(name, 4), "b") for name in ("b-0", "b-1", "b-2")]
    for node in (*small, *large):
        cpu, memory = ("8", "32Gi") if node in small else ("128", "512Gi")
        node["status"]["allocatable"] |= {"cpu": cpu, "memory": memory, "pods": "110"}
    for node in large:
        node["status"]["allocatable"]["rdma/hca"] = "8"
    pinned = workload("pinned", {GPU: "1"}, ["z-0", "z-0"], nodeSelector={"pool": "z"})
    guard = workload("guard", limits, ["b-0"])
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {keep: [rdma]}\n")

    notes = notes_on_rivals(tmp_path, [*small, *large, *pinned, *guard], "--settings", settings)

    text = "evicted pods of Deployment/team/guard may also get z-0, z-1, where wave "
    assert expected is any(text in note for note in notes)
    assert expected is bool(notes)


def test_an_evicted_pod_that_may_break_the_last_room_of_a_larger_one_is_told(
    tmp_path: Path,
) -> None:
    """Free devices of all nodes were added up: one on another node hid that the last free node could be taken."""
    nodes = [in_pool(plugin_node(name, 4), name[0]) for name in ("z-0", "z-1", "z-2", "b-0", "b-1")]
    chat = workload("chat", {GPU: "4"}, ["z-0"], nodeSelector={"pool": "z"})
    small = workload("small", {GPU: "1"}, ["z-2"] * 3, nodeSelector={"pool": "z"})
    guard = workload("guard", {GPU: "1"}, ["b-0"])

    notes = notes_on_rivals(tmp_path, [*nodes, *chat, *small, *guard])

    assert any(
        "evicted pods of Deployment/team/guard may also get " in note
        and "needs devices for Deployment/team/chat and leaves room for 0 more pods of 4 devices on one node"
        in note
        for note in notes
    )


def test_evicted_pods_that_may_only_together_take_too_many_devices_are_told(tmp_path: Path) -> None:
    nodes = [in_pool(plugin_node(name, 4), name[0]) for name in ("z-0", "z-1", "b-0", "b-1")]
    chat = workload("chat", {GPU: "1"}, ["z-0"] * 3, nodeSelector={"pool": "z"})
    guards = [workload(name, {GPU: "1"}, ["b-0"]) for name in ("guard-a", "guard-b")]

    alone = notes_on_rivals(tmp_path, [*nodes, *chat, *guards[0]])
    together = notes_on_rivals(tmp_path, [*nodes, *chat, *guards[0], *guards[1]])

    assert [] == alone
    (note,) = together
    assert (
        "evicted pods of Deployment/team/guard-a, Deployment/team/guard-b may also get z-0" in note
    )
    assert "needs devices for Deployment/team/chat and leaves 1 device free" in note


def notes_on_rivals(tmp_path: Path, objects: Objects, *options: object) -> list[str]:
    own = ("--wave-nodes", 1, "--spare-nodes", 0, *options)
    plan = planned(tmp_path, [*objects, namespace("team")], *own)
    return [note for wave in plan["waves"] for note in wave["notes"] if "may also get" in note]


def test_by_default_waves_have_a_node_to_spare_where_nothing_is_held_for_it(tmp_path: Path) -> None:
    """A namespace that could move as a whole moves in parts, so that each side can lose a node."""
    roomy = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4)
    same = planned(tmp_path, one_namespace(16, 4, 38), "--wave-nodes", 4, "--spare-nodes", 1)
    tight = planned(tmp_path, one_namespace(3, 2, 3), "--wave-nodes", 2)

    assert roomy["waves"] == same["waves"]
    assert not any("no node to spare" in note for wave in roomy["waves"] for note in wave["notes"])
    assert {} == held_objects(tight)
    assert any("no node to spare" in note for wave in tight["waves"] for note in wave["notes"])


def test_a_node_without_which_none_can_be_spared_makes_no_wave_of_others_small(
    tmp_path: Path,
) -> None:
    """It has no pods, so it is the first that is tried with others: all waves were single nodes."""
    nodes = [hami_node("a-0"), hami_node("a-1"), *(plugin_node(f"p-{n}") for n in range(8))]
    share = workload("share", WHOLE, ["a-1"], namespace="team")
    busy = workload("busy", {GPU: "1"}, [f"p-{n}" for n in range(8)], namespace="web")

    plan = planned(tmp_path, [*nodes, *share, *busy], "--wave-nodes", 4)

    assert {} == held_objects(plan)
    sizes = [len(names) for names, _ in waves(plan)]
    assert [4, 4, 1, 1] == sizes


def limited(team: str) -> list[dict[str, Any]]:
    """A namespace with pods that would be rejected, since no quota counts the memory of claims."""
    quota = resource_quota({"requests.nvidia.com/gpumem": "100000"}, name="memory", namespace=team)
    return [namespace(team), quota]


def test_a_rejected_share_holds_no_node_that_has_no_shares(tmp_path: Path) -> None:
    """Whole GPUs have the resource name of a share, too, and were held for it."""
    shared = workload("share", SHARE, ["hami-0"], namespace="limited")
    web = workload("web", SHARE, ["hami-1"])
    nodes = [*(hami_node(f"hami-{number}") for number in range(3)), plugin_node("gpu-0")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *limited("limited"), *shared, *web])

    switched = {name for names, _ in waves(plan) for name in names}
    assert "gpu-0" in switched
    assert "Node//hami-0" in held_objects(plan)


def test_devices_beside_those_of_a_rejected_pod_are_not_free(tmp_path: Path) -> None:
    """Nobody knows the devices that it uses, so no pod is planned there."""
    shared = workload("share", SHARE, ["hami-0"], namespace="limited")
    web = workload("web", SHARE, ["hami-1"])
    nodes = [hami_node(f"hami-{number}", gpus=2) for number in range(4)]

    plan = planned(tmp_path, [*nodes, namespace("team"), *limited("limited"), *shared, *web])

    assert plan["waves"][0]["freeForKeys"]["before"] == 2 * 3 - 1


def test_a_script_names_what_its_wave_moves(tmp_path: Path) -> None:
    """It said `then 0 namespaces`, and the table called evicted pods moved."""
    fleet = ROOT / "examples" / "migration" / "fleet.yaml"
    options = (
        "--wave-nodes",
        2,
        "--keep-free",
        10,
        "--gpu-operator",
        "v26.3.1",
        "--spare-nodes",
        0,
    )

    result = drawbridge("plan", "--snapshot", fleet, *options, "-o", tmp_path / "plan")

    assert result.exit_code == 0, result.stderr
    heads = [
        (tmp_path / "plan" / f"wave-{number}" / "switch.sh").read_text().splitlines()
        for number in (1, 3)
    ]
    assert "# Wave 1 of 3: 2 nodes to DRA, then 1 namespace." in heads[0]
    assert "# Wave 3 of 3: 2 nodes to DRA." in heads[1]
    assert "LEAVING PODS" in result.stdout
    assert "| leaving pods | evicted of them |" in (tmp_path / "plan" / "README.md").read_text()


def crowded(seed: int) -> Objects:
    """Return three nodes of HAMi with two of three shares in use, by pods of three namespaces."""
    chance = random.Random(seed)
    nodes = [f"h{number}" for number in range(3)]
    free = {name: [4] * 4 for name in nodes}
    objects: list[dict[str, Any]] = [hami_node(name, 4) for name in nodes]
    left, number = 31, 0
    while left > 0:
        size, places = chance.choice((1, 1, 2)), []
        for _ in range(min(chance.choice((1, 2, 3)), max(1, left // size))):
            node = chance.choice([name for name in nodes if max(free[name]) >= size])
            card = next(index for index, amount in enumerate(free[node]) if amount >= size)
            free[node][card] -= size
            left -= size
            places.append(node)
        amount = {GPU: "1", "nvidia.com/gpumem": str(10000 * size)}
        objects += workload(f"s{number}", amount, places, namespace=f"team-{number % 3}")
        number += 1
    return [*objects, *(namespace(f"team-{team}") for team in range(3))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_held_for_a_node_to_spare_by_default(tmp_path: Path, seed: int) -> None:
    """Namespaces that move as a whole without a node to spare were divided, and did not fit then."""
    objects = crowded(seed)

    without = held_objects(planned(tmp_path, objects, "--spare-nodes", 0))

    assert without.keys() == held_objects(planned(tmp_path, objects)).keys()
