"""`drawbridge plan`: pods of DaemonSets that a drain leaves on their node, with their devices."""

import copy
import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from allocator.model.outcome import RejectionReason
from allocator.pods.node_eligibility import node_rejection
from kube.api.core import Node, Pod
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.owners import OwnerKey
from migration.cluster.workloads import Workload
from migration.plan.planning.daemon_sets import daemon_sets_by_node
from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import namespace, node, resource_slice
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import held_objects, planned, script, waves

NODES = [plugin_node(f"gpu-{number}") for number in range(2)]


def daemon_set(**selector: Any) -> list[dict[str, Any]]:
    """A DaemonSet with a GPU on gpu-0."""
    objects = workload("monitor", {GPU: "1"}, ["gpu-0"], kind="DaemonSet")
    objects[0]["spec"]["selector"] = selector
    del objects[0]["spec"]["replicas"]
    return objects


class CountedPods(tuple[SourceObject, ...]):
    """Pods with a count of the walks through them."""

    __slots__ = ()
    walks: ClassVar[int] = 0

    def __iter__(self) -> Iterator[SourceObject]:
        CountedPods.walks += 1
        return super().__iter__()


def test_the_pods_of_a_daemon_set_are_walked_through_as_often_for_any_number_of_nodes() -> None:
    """A DaemonSet of 5,000 nodes took 17 seconds."""
    walks = set()
    for number in (2, 40):
        names = [f"gpu-{node:02}" for node in range(number)]
        owner, *members = workload("monitor", {GPU: "1"}, names, kind="DaemonSet")
        members[0]["status"] = {"phase": "Pending"}
        pods = CountedPods(SourceObject(document=pod, source="t", line=1) for pod in members)
        key = OwnerKey(kind="DaemonSet", namespace="team", name="monitor")
        group = Workload(key=key, owner=SourceObject(document=owner, source="t", line=1), pods=pods)
        outcome = Outcome.TRANSLATED
        assessed = AssessedWorkload(
            key=key, pods=number, outcome=outcome, findings=(), keys=frozenset({GPU})
        )

        CountedPods.walks = 0
        by_node = daemon_sets_by_node([assessed], {key.reference: group})

        assert names == [*by_node]
        assert [False, *[True] * (number - 1)] == [entry.ready for (entry,) in by_node.values()]
        walks.add(CountedPods.walks)
    assert 1 == len(walks)


def test_pods_with_devices_are_deleted_when_their_node_has_changed_hands(tmp_path: Path) -> None:
    selector = {"matchLabels": {"app": "monitor", "tier": "a b; $(reboot)"}}
    planned(tmp_path, [*NODES, namespace("team"), *daemon_set(**selector)], "--wave-nodes", 1)

    scripts = {
        f"{phase}-{wave}": script(tmp_path, phase, wave)
        for phase in ("switch", "rollback")
        for wave in (1, 2)
    }

    expected = (
        "kubectl delete pods --namespace=team '--selector=app=monitor,tier=a b; $(reboot)' "
        "--field-selector=spec.nodeName=gpu-0 --timeout=10m"
    )
    deleting = [name for name, text in scripts.items() if "kubectl delete pods" in text]
    assert len(deleting) == 2
    assert len({name.partition("-")[2] for name in deleting}) == 1
    for name in deleting:
        lines = [line.strip() for line in scripts[name].splitlines()]
        place = lines.index(expected)
        verb = "kubectl uncordon" if name.startswith("switch") else "uncordon_own"
        assert place < lines.index(f"{verb} gpu-0")
        verified = [number for number, line in enumerate(lines) if "--expect-devices" in line]
        assert not verified or verified[-1] < place


def waiting_daemon_set(nodes: Collection[str]) -> list[dict[str, Any]]:
    """A DaemonSet with a pod for each of these nodes, waiting for a GPU there."""
    owner, *pods = workload("monitor", {GPU: "1"}, [*nodes], kind="DaemonSet")
    owner["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    del owner["spec"]["replicas"]
    for pod in pods:
        field = {"key": "metadata.name", "operator": "In", "values": [pod["spec"].pop("nodeName")]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        pod["spec"]["affinity"] = {"nodeAffinity": affinity}
        pod["status"] = {"phase": "Pending"}
    return [owner, *pods]


def test_a_pod_that_waits_for_its_node_takes_no_device_of_another(tmp_path: Path) -> None:
    """It was placed on gpu-1, and gpu-0 was held: the pod of 4 GPUs there had no other node."""
    objects = [
        *NODES,
        namespace("team"),
        *workload("web", {GPU: "4"}, ["gpu-0"]),
        *waiting_daemon_set(["gpu-0"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert {} == held_objects(plan)
    assert 2 == len(waves(plan))


def test_a_waiting_pod_of_an_older_template_is_placed_by_the_present_one(tmp_path: Path) -> None:
    """Its affinity has labels, and names no node: its controller creates the next one without it."""
    owner, pod = workload("web", {GPU: "1"}, ["gpu-0"])
    del pod["spec"]["nodeName"]
    pod["status"] = {"phase": "Pending"}
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gone"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}

    plan = planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1"), owner, pod])

    assert 7 == plan["waves"][0]["freeForKeys"]["before"]


def test_a_pod_that_waits_for_a_node_that_is_gone_is_on_no_other(tmp_path: Path) -> None:
    """The controller deletes it a little later than the node."""
    objects = [*NODES, namespace("team"), *waiting_daemon_set(["gpu-0", "gone"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert {"gpu-0", "gpu-1"} == {node["name"] for wave in plan["waves"] for node in wave["nodes"]}


@pytest.mark.parametrize("place", ["waiting", "running"])
def test_pods_that_name_their_nodes_are_tried_on_these_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The work was that of all pods times all nodes."""
    tried = Counter[int]()

    def counted(pod: Pod, node: Node) -> RejectionReason | None:
        tried[number] += 1
        return node_rejection(pod, node)

    monkeypatch.setattr("allocator.simulation.node_filter.node_rejection", counted)
    for number in (6, 24):
        names = [f"gpu-{index:02}" for index in range(number)]
        nodes = [plugin_node(name) for name in names]
        running = workload("web", {GPU: "1"}, names, kind="DaemonSet")
        pods = waiting_daemon_set(names) if place == "waiting" else running
        planned(tmp_path, [*nodes, namespace("team"), *pods], "--wave-nodes", number // 3)

    assert tried[6]
    assert tried[24] <= 4 * tried[6]


def drained(text: str, node: str) -> list[str]:
    """Return the first words of the commands that drain a node and wait for its devices."""
    _, _, after = text.partition(f"if step drain/{node}; then\n")
    block = after.partition("\nfi\n")[0].replace(" \\\n   ", "")
    lines = [line.strip() for line in block.splitlines()]
    return [line for line in lines if not line.startswith("#")]


def test_pods_end_before_their_driver_leaves_a_node_that_is_given_back(tmp_path: Path) -> None:
    """The kubelet ends no pod with devices of a driver that is not there, so kubectl waited for ever."""
    objects = daemon_set(matchLabels={"app": "monitor"})
    planned(tmp_path, [*NODES, namespace("team"), *objects], "--wave-nodes", 2)

    note, drain, taint, delete, label, left, untaint, offered = drained(
        script(tmp_path, "rollback", 1), "gpu-0"
    )

    assert note == "note_evicted gpu-0"
    assert "evicted_before \\\n  DaemonSet/team/monitor\n" in script(tmp_path, "rollback", 1)
    assert drain.startswith("kubectl drain gpu-0 ")
    assert taint == (
        "kubectl taint node gpu-0 --overwrite drawbridge.internal/given-back=:NoSchedule"
    )
    assert delete == f"{DELETE}spec.nodeName=gpu-0 --timeout=10m"
    mark = "drawbridge.internal/given-back=true"
    assert label == f"kubectl label node gpu-0 --overwrite {mark} nvidia.com/dra-kubelet-plugin-"
    assert left == "wait_for_slices gpu-0 gpu.nvidia.com"
    # The plugin keeps away from nodes with the driver's label, so it comes when that is gone; it need not tolerate
    # the taint.
    assert untaint == "kubectl taint node gpu-0 drawbridge.internal/given-back:NoSchedule-"
    assert offered == "wait_for_offer gpu-0 nvidia.com/gpu 4"
    assert not any("taint" in line for line in drained(script(tmp_path, "rollback", 1), "gpu-1"))


def test_a_plugin_with_a_label_of_its_own_is_back_before_the_driver_leaves(tmp_path: Path) -> None:
    """A DaemonSet that tolerates every taint creates its pods again at once, and they get devices of the plugin."""
    planned(tmp_path, shared_nodes(), "--wave-nodes", 2)

    note, *lines = drained(script(tmp_path, "rollback", 1), "hami-0")

    assert note == "note_evicted hami-0"
    assert [" ".join(line.split()[1:3]) for line in lines] == [
        "drain hami-0",
        "label node",
        "hami-0 nvidia.com/gpu",
        "taint node",
        "delete pods",
        "label node",
        "hami-0 hami-core-gpu.project-hami.io",
        "taint node",
    ]
    mark = "drawbridge.internal/given-back=true"
    assert lines[1] == f"kubectl label node hami-0 --overwrite {mark} gpu=on"
    assert lines[5] == "kubectl label node hami-0 --overwrite drawbridge.internal/dra-driver-"


def test_what_its_pods_lose_is_reported_with_the_wave_of_their_node(tmp_path: Path) -> None:
    objects = daemon_set(matchLabels={"app": "monitor"})
    objects[1]["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]

    plan = planned(tmp_path, [*NODES, namespace("team"), *objects], "--wave-nodes", 1)

    (wave,) = (
        wave for wave in plan["waves"] if "gpu-0" in [node["name"] for node in wave["nodes"]]
    )
    assert (
        "pods of DaemonSet/team/monitor are deleted on gpu-0 when the node has changed hands: what is in its "
        "emptyDir cache is lost"
    ) in wave["notes"]


def test_a_node_is_held_whose_daemon_set_has_no_selector_that_is_known(tmp_path: Path) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Like"}]}

    plan = planned(tmp_path, [*NODES, namespace("team"), *daemon_set(**selector)])

    assert "DaemonSet/team/monitor" in held_objects(plan)["Node//gpu-0"]


def test_a_daemon_set_without_devices_is_left_alone(tmp_path: Path) -> None:
    owner, pod = workload("agent", {}, ["gpu-0"], kind="DaemonSet")

    planned(tmp_path, [*NODES, namespace("team"), owner, pod])

    assert "kubectl delete pods" not in script(tmp_path, "switch")


# --- DaemonSets whose pods get claims -------------------------------------------------------------

DELETE = "kubectl delete pods --namespace=team --selector=app=monitor --field-selector="


def shared_nodes() -> list[dict[str, Any]]:
    """Two nodes with HAMi, each with a pod of the same DaemonSet with a share."""
    objects = workload("monitor", SHARE, ["hami-0", "hami-1"], kind="DaemonSet")
    objects[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    objects[0]["status"] = {"desiredNumberScheduled": 2}
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *objects]


def test_a_daemon_set_is_opted_in_with_its_first_node_and_not_restarted_on_others(
    tmp_path: Path,
) -> None:
    """A restarted pod had claims on a node without a DRA driver, and waited for ever."""
    plan = planned(tmp_path, shared_nodes(), "--wave-nodes", 1)

    assert waves(plan) == [(["hami-0"], ["team"]), (["hami-1"], [])]
    (monitor,) = plan["waves"][0]["workloads"]
    assert monitor["waiting"] == ["hami-1"]
    assert any("hami-1" in note and "not restarted" in note for note in plan["waves"][0]["notes"])
    first, second = script(tmp_path, "switch", 1), script(tmp_path, "switch", 2)
    assert "rollout restart" not in first + second
    # Created again with device keys when the node had changed hands: a pod that finds no node.
    without_node = f"{DELETE}spec.nodeName= --timeout=10m\n"
    assert first.index(f"{DELETE}spec.nodeName=hami-0 --timeout=10m\n") < first.index(
        "change_object namespace/"
    )
    assert first.index("change_object namespace/team ") < first.index(without_node)
    assert "nodeName=hami-1" not in first
    assert f"{DELETE}spec.nodeName=hami-1 --timeout=10m\n" in second
    assert without_node not in second


def test_a_node_that_no_wave_switches_is_named_with_the_pods_of_its_daemon_set(
    tmp_path: Path,
) -> None:
    """The note promised that its node would be switched."""
    refused = workload("bad", {GPU: "1.5"}, ["hami-1"], namespace="other")

    plan = planned(tmp_path, [*shared_nodes(), namespace("other"), *refused], "--wave-nodes", 1)

    assert waves(plan) == [(["hami-0"], ["team"])]
    (note,) = [note for note in plan["waves"][0]["notes"] if "DaemonSet/team/monitor" in note]
    assert note.startswith("no wave switches hami-1: pods of DaemonSet/team/monitor keep")
    assert note.endswith('label its template drawbridge.internal/translate: "false"')


def test_a_daemon_set_of_held_nodes_alone_may_keep_its_keys(tmp_path: Path) -> None:
    """The label that the note names keeps its pods, and its namespace moves all the same."""
    refused = workload("bad", {GPU: "1.5"}, ["gpu-0"], namespace="other")
    probe = workload("probe", {GPU: "1", "nvidia.com/gpumem": "10"}, ["gpu-0"], kind="DaemonSet")
    for document in (probe[0]["spec"]["template"], probe[1]):
        document["metadata"]["labels"]["drawbridge.internal/translate"] = "false"
    objects = [*shared_nodes(), NODES[0], namespace("other"), *refused, *probe]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    assert (["hami-0", "hami-1"], ["team"]) in waves(plan)
    assert "DaemonSet/team/probe" not in str(plan["waves"])


def test_a_wave_that_is_taken_back_says_whose_pods_have_claims_still(tmp_path: Path) -> None:
    planned(tmp_path, shared_nodes(), "--wave-nodes", 1)

    text = "DaemonSet/team/monitor: its pod on hami-1 gets claims until wave 1, which opted it in, is taken back, too"
    first, second = script(tmp_path, "rollback", 1), script(tmp_path, "rollback", 2)
    assert text in second
    assert "gets claims until" not in first
    # That pod found no driver, and comes again with device keys.
    without_node = f"{DELETE}spec.nodeName= --timeout=10m\n"
    assert first.index("change_object namespace/team ") < first.index(without_node)
    assert without_node not in second


def test_a_way_back_asks_about_pods_that_were_opted_in_before_the_plan(tmp_path: Path) -> None:
    """It said so after it had deleted them, and that the wave was taken back."""
    nodes = [item for item in shared_nodes() if item["kind"] != "Namespace"]
    labelled = namespace("team", {TRANSLATE_LABEL: "true"})
    web = workload("web", SHARE, ["hami-0"], namespace="other")

    planned(tmp_path, [*nodes, labelled, namespace("other"), *web], "--wave-nodes", 2)

    text = script(tmp_path, "rollback", 2)
    begin = text.partition("if step begin; then\n")[2].partition("\nfi\n")[0]
    assert any(line.strip().startswith("stop_at_claims ") for line in begin.splitlines())
    assert "DaemonSet/team/monitor=" in text.partition("if step end; then\n")[2]
    assert "gets claims" not in text


def test_a_daemon_set_on_nodes_of_one_wave_is_restarted(tmp_path: Path) -> None:
    plan = planned(tmp_path, shared_nodes(), "--wave-nodes", 2)

    assert waves(plan) == [(["hami-0", "hami-1"], ["team"])]
    assert "daemonset/monitor" in script(tmp_path, "switch")


def test_no_node_is_switched_before_its_daemon_set_is_opted_in(tmp_path: Path) -> None:
    """Its pod came back without a device plugin, and waited until its namespace was opted in."""
    web = workload("web", SHARE, ["hami-2"] * 6)
    others = [f"other-{number}" for number in range(4)]
    more = [
        *(hami_node(f"hami-{number}") for number in (2, 3, 4)),
        *map(namespace, others),
        *(item for name in others for item in workload("a", SHARE, ["hami-3"], namespace=name)),
    ]

    plan = planned(tmp_path, [*shared_nodes(), *more, *web], "--wave-nodes", 1)

    opted_in = set()
    for nodes, namespaces in waves(plan):
        opted_in |= set(namespaces)
        assert "team" in opted_in or not set(nodes) & {"hami-0", "hami-1"}
    assert {node for nodes, _ in waves(plan) for node in nodes} >= {"hami-0", "hami-1"}


def state_after(
    tmp_path: Path, wave: int, *, keyed_nodes: Collection[str], pending_nodes: Collection[str] = ()
) -> str:
    """Return the words of `verify` about the DaemonSet.

    Args:
        tmp_path: Gets the files.
        wave: The wave that is verified.
        keyed_nodes: The nodes whose pods have device keys still.
        pending_nodes: The nodes whose pods have ended, and were created anew without finding a device.
    """
    planned(tmp_path, shared_nodes(), "--wave-nodes", 1)
    objects = shared_nodes()
    for item in objects:
        if item["kind"] == "Pod":
            item["status"] = {"phase": "Running"}
            if item["spec"]["nodeName"] in pending_nodes:
                item["status"] = {"phase": "Pending"}
                del item["spec"]["nodeName"]
            if item["spec"].get("nodeName") not in keyed_nodes:
                item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "a"}]
    file = tmp_path / "after.yaml"
    file.write_text(dump_yaml(objects))

    folder = tmp_path / "plan" / f"wave-{wave}"
    answer = drawbridge("verify", "--wave", folder, "--snapshot", file, "-o", "json")

    checks = {check["object"]: check for check in json.loads(answer.stdout)["checks"]}
    return str(checks["DaemonSet/team/monitor"]["state"])


@pytest.mark.parametrize(
    ("wave", "keyed_nodes", "state"),
    [
        (1, {"hami-1"}, "ok"),
        (1, {"hami-0"}, "waiting"),
        (2, {"hami-1"}, "waiting"),
        (2, {}, "ok"),
    ],
    ids=["a later node", "this node", "this node, opted in before", "all nodes"],
)
def test_pods_with_device_keys_are_right_on_nodes_of_later_waves(
    tmp_path: Path, wave: int, keyed_nodes: Collection[str], state: str
) -> None:
    assert state_after(tmp_path, wave, keyed_nodes=keyed_nodes) == state


def test_a_pod_that_waits_for_a_later_node_keeps_no_wave_waiting(tmp_path: Path) -> None:
    assert state_after(tmp_path, 1, keyed_nodes=(), pending_nodes={"hami-1"}) == "ok"
    assert state_after(tmp_path, 1, keyed_nodes=(), pending_nodes={"hami-0"}) == "waiting"


def test_a_daemon_set_is_not_opted_in_before_its_first_node(tmp_path: Path) -> None:
    """A pod of it that ended meanwhile came back with a claim, on a node without a driver."""
    web = workload("web", SHARE, ["hami-2"] * 2, namespace="web")
    more = [hami_node(f"hami-{number}") for number in (2, 3, 4, 5)]

    plan = planned(tmp_path, [*shared_nodes(), *more, namespace("web"), *web], "--wave-nodes", 1)

    (wave,) = (nodes for nodes, namespaces in waves(plan) if "team" in namespaces)
    assert set(wave) & {"hami-0", "hami-1"}
    assert waves(plan)[0] != (wave, ["team"])
    assert not any("team" in entry for _, entry in waves(plan)[:1])


def test_a_daemon_set_without_a_node_of_a_wave_is_not_opted_in(tmp_path: Path) -> None:
    """A wave of the namespace alone opted it in, and a pod that ended got nothing on its node any more."""
    refused = [
        entry
        for name in ("hami-0", "hami-1")
        for entry in workload(f"bad-{name}", {GPU: "1.5"}, [name], namespace="other")
    ]

    plan = planned(tmp_path, [*shared_nodes(), namespace("other"), *refused])

    assert not plan["waves"]
    entry = next(entry for entry in plan["held"] if entry["object"] == "Namespace//team")
    assert entry["reason"].endswith("no node that its pods may use is switched: hami-0, hami-1")
    assert entry["fix"].startswith("solve what holds these nodes first")


def test_a_node_that_cannot_be_spared_has_that_reason_beside_a_daemon_set(tmp_path: Path) -> None:
    """It was held for its namespace, and that for the node."""
    share = {GPU: "1", "nvidia.com/gpumem": "30000"}
    web = workload("web", share, ["hami-0", "hami-1"], namespace="web")

    plan = planned(tmp_path, [*shared_nodes(), namespace("web"), *web], "--spare-nodes", 1)

    assert not plan["waves"]
    entry = next(entry for entry in plan["held"] if entry["object"] == "Node//hami-0")
    assert "once hami-1 is lost" in entry["reason"]
    assert "--spare-nodes 0" in entry["fix"]


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("has_waiting_pod", [True, False])
def test_a_daemon_set_waits_for_a_node_of_its_pods_though_another_has_a_driver(
    tmp_path: Path, *, has_waiting_pod: bool, is_held: bool
) -> None:
    """A node of an earlier plan was enough, and a pod that ended got nothing on its own any more."""
    done = [
        node("hami-9", {}, {}, {}),
        resource_slice(hami_gpu(), driver=HAMI, node="hami-9", name="slice-9"),
    ]
    owner, pod = workload("monitor", SHARE, ["hami-0"], kind="DaemonSet")
    owner["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    refused = workload("bad", {GPU: "1.5"}, ["hami-0"], namespace="other") if is_held else []
    nodes = [hami_node("hami-0"), hami_node("hami-1"), *done]

    objects = [*nodes, namespace("team"), owner, pod, namespace("other"), *refused]
    if has_waiting_pod:
        waiting = copy.deepcopy(pod)
        waiting["metadata"] |= {"name": "monitor-waiting", "uid": "waiting"}
        waiting["status"] = {"phase": "Pending"}
        del waiting["spec"]["nodeName"]
        field = {"key": "metadata.name", "operator": "In", "values": ["hami-9"]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        waiting["spec"]["affinity"] = affinity
        objects.append(waiting)

    plan = planned(tmp_path, objects)

    opted_in = [names for names, namespaces in waves(plan) if "team" in namespaces]
    assert ([] if is_held else [True]) == ["hami-0" in names for names in opted_in]
    assert is_held is ("Namespace//team" in held_objects(plan))
