"""`drawbridge plan`: waves that fit, devices held back, and runbooks that people can run."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing import documents
from testing.command import ROOT, drawbridge
from testing.documents import api_object, namespace, node, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    budget,
    hami_node,
    origin,
    plugin_node,
    resource_slice,
    running_job,
    workload,
)
from testing.plan import call, changes, document, held_objects, planned, script, waves

FULL_SHARE: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}

# --- waves ----------------------------------------------------------------------------------------


def test_namespaces_are_spread_over_all_waves_but_the_last(tmp_path: Path) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(6)]
    teams = [workload("web", SHARE, ["hami-0"], namespace=f"team-{number}") for number in range(3)]

    result = call(tmp_path, [*nodes, *teams[0], *teams[1], *teams[2]], "--wave-nodes", 2)

    assert 0 == result.exit_code, result.stdout
    assert waves(document(tmp_path)) == [
        (["hami-1", "hami-2"], ["team-0", "team-1"]),
        (["hami-3", "hami-4"], ["team-2"]),
        # By now no pod is left that only a node of HAMi takes, so both can be drained.
        (["hami-0", "hami-5"], []),
    ]


def test_a_cluster_whose_namespaces_fit_early_has_no_more_waves_than_its_nodes_need(
    tmp_path: Path,
) -> None:
    nodes = [hami_node(f"hami-{number:02}", gpus=4) for number in range(16)]
    nodes += [plugin_node(f"gpu-{number:02}", gpus=8) for number in range(24)]
    teams = [
        document
        for number in range(12)
        for document in workload(
            "web", SHARE, [f"hami-{number % 8:02}"] * 3, namespace=f"team-{number:02}"
        )
    ]

    plan = planned(tmp_path, [*nodes, *teams], "--wave-nodes", 14)

    assert [14, 14, 12] == [len(wave["nodes"]) for wave in plan["waves"]]
    assert [False] * 3 == [wave["split"] for wave in plan["waves"]]
    assert {} == held_objects(plan)


def test_a_namespace_waits_until_the_switched_nodes_have_room_for_it(tmp_path: Path) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    large = workload("large", FULL_SHARE, ["hami-0", "hami-0", "hami-1"])

    plan = planned(tmp_path, [*nodes, *large], "--wave-nodes", 1)

    assert waves(plan) == [
        (["hami-2"], []),
        (["hami-3"], ["team"]),
        (["hami-0"], []),
        (["hami-1"], []),
    ]


def test_a_wave_needs_the_cpu_of_the_nodes_that_stay(tmp_path: Path) -> None:
    """A node has the devices of both pods, and the CPU of one."""

    def sizes(cpu: str) -> list[int]:
        nodes = [plugin_node(f"gpu-{number}") for number in range(4)]
        for each_node in nodes:
            each_node["status"]["allocatable"] |= {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        busy = workload("web", {GPU: "1", "cpu": "5"}, ["gpu-0", "gpu-1", "gpu-2"])
        (tmp_path / cpu).mkdir()
        plan = planned(tmp_path / cpu, [*nodes, *busy], "--wave-nodes", 2)
        return [len(wave["nodes"]) for wave in plan["waves"]]

    assert ([2, 2], [1, 1, 1, 1]) == (sizes("64"), sizes("8"))


def test_a_wave_that_does_not_fit_is_split(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}") for number in range(4)]
    busy = workload("web", {GPU: "4"}, ["gpu-0", "gpu-1", "gpu-2"])

    plan = planned(tmp_path, [*nodes, *busy], "--wave-nodes", 4)

    assert [1, 1, 1, 1] == [len(wave["nodes"]) for wave in plan["waves"]]
    assert plan["waves"][0]["split"]
    assert not plan["waves"][3]["split"]
    assert "Deployment/team/web" in plan["waves"][0]["notes"][0]


def test_a_split_wave_has_as_many_nodes_as_fit(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}") for number in range(8)]
    busy = workload("web", {GPU: "4"}, ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"])

    plan = planned(tmp_path, [*nodes, *busy], "--wave-nodes", 4)

    # Three nodes are free, so five pods keep three of eight nodes free to be drained, and never four.
    assert [3, 3, 2] == [len(wave["nodes"]) for wave in plan["waves"]]
    assert [True, True, False] == [wave["split"] for wave in plan["waves"]]


def test_nodes_that_never_fit_make_no_wave_smaller(tmp_path: Path) -> None:
    """They have the fewest pods, so they were the first nodes of every wave, and made it one of a single node."""
    never = [plugin_node(f"a-{number}", pool="a") for number in range(2)]
    never += workload("full", {GPU: "4"}, ["a-0", "a-1"], nodeSelector={"pool": "a"})
    names = [f"b-{number}" for number in range(4)]
    nodes = [plugin_node(name, pool="b") for name in names]
    busy = workload("web", {GPU: "1"}, names * 2, nodeSelector={"pool": "b"})

    plan = planned(tmp_path, [*never, *nodes, *busy], "--wave-nodes", 2)

    assert [(["b-0", "b-1"], []), (["b-2", "b-3"], [])] == [(names, []) for names, _ in waves(plan)]
    assert [] == [
        note for wave in plan["waves"] for note in wave["notes"] if note.startswith("no larger")
    ]
    assert {"Node//a-0", "Node//a-1"} <= held_objects(plan).keys()


def test_a_smaller_wave_names_a_node_that_would_fit_by_itself(tmp_path: Path) -> None:
    never = [plugin_node("a-0", pool="a")]
    never += workload("full", {GPU: "4"}, ["a-0"], nodeSelector={"pool": "a"})
    nodes = [plugin_node(f"b-{number}", pool="b") for number in range(3)]
    busy = workload("web", {GPU: "2"}, ["b-0", "b-1", "b-2"], nodeSelector={"pool": "b"})

    plan = planned(tmp_path, [*never, *nodes, *busy], "--wave-nodes", 2)

    (note,) = (note for note in plan["waves"][0]["notes"] if note.startswith("no larger"))
    assert "while draining b-0, b-1, " in note


def test_a_namespace_moves_with_nodes_that_serve_it_and_waits_for_no_job_of_others(
    tmp_path: Path,
) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(2)]
    nodes += [plugin_node(f"gpu-{number}") for number in range(4)]
    objects: list[dict[str, Any]] = []
    for number in range(4):
        objects += workload("web", SHARE, ["hami-0"], namespace=f"team-{number}")
        objects += running_job(f"train-{number}", {GPU: "1"}, [f"gpu-{number}"])

    plan = planned(tmp_path, [*nodes, *objects], "--wave-nodes", 1)

    first, second, *later = waves(plan)
    assert (["hami-1"], [f"team-{number}" for number in range(4)]) == first
    assert (["hami-0"], []) == second
    assert [([f"gpu-{number}"], []) for number in range(4)] == sorted(later)


def test_namespaces_with_nodes_move_before_the_first_node_with_work(tmp_path: Path) -> None:
    """They were held with the node of a Job, though a node that serves them had been switched before."""
    mig = {"nvidia.com/mig-1g.10gb": "1"}
    devices = [
        {
            "name": f"mig-{number}",
            "attributes": {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}},
        }
        for number in range(2)
    ]
    switched = resource_slice("done", "gpu.nvidia.com", ())
    switched["spec"]["devices"] = devices
    objects = [
        *(node("done", {}, {}, {}), switched),
        node("mig-0", {"nvidia.com/mig-1g.10gb": "4"}, {}, {}),
        *workload("web", mig, ["mig-0"]),
        *running_job("sweep", mig, ["mig-0"], namespace="jobs"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert ([], True) == (waves(plan)[0][0], "team" in waves(plan)[0][1])
    assert [["mig-0"]] == [names for names, _ in waves(plan)[1:]]


def test_if_no_wave_fits_it_says_what_has_to_be_free(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    busy = workload("web", {GPU: "4"}, ["gpu-0", "gpu-1"])

    result = call(tmp_path, [*nodes, *busy], "--wave-nodes", 2)

    assert 1 == result.exit_code
    assert "no wave fits" in result.stdout
    assert "1 pod has no devices: 1 of Deployment/team/web" in " ".join(result.stdout.split())
    assert {"Node//gpu-0", "Node//gpu-1"} == set(held_objects(document(tmp_path)))


def test_workloads_of_any_number_of_replicas_are_planned(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), hami_node("hami-0")]
    objects = [
        document
        for number in range(6)
        for document in workload(f"web-{number}", SHARE, ["hami-0"], namespace=f"team-{number}")
    ]
    for document_ in objects:
        if document_["kind"] == "Deployment":
            document_["spec"]["replicas"] = 10**18

    plan = planned(tmp_path, [*nodes, *objects])

    assert "Node//hami-0" in held_objects(plan)


def test_nodes_of_pods_that_are_opted_out_are_held_with_the_label(tmp_path: Path) -> None:
    label = {"drawbridge.internal/translate": "false"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team", "labels": label},
    }
    busy = workload("web", SHARE, ["hami-0"])

    plan = planned(tmp_path, [hami_node("hami-0"), namespace, *busy])

    assert held_objects(plan)["Node//hami-0"] == (
        "a pod of Deployment/team/web (unknown) uses its devices, and is not translated: "
        "label drawbridge.internal/translate=false of namespace team"
    )
    assert (
        "remove label drawbridge.internal/translate=false of namespace team where it is to be translated"
        in {entry["fix"] for entry in plan["held"]}
    )


def test_devices_stay_free_as_requested(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    half = workload("web", {GPU: "1"}, ["gpu-0", "gpu-0", "gpu-1"])

    assert [] == planned(tmp_path, [*nodes, *half], "--keep-free", 25)["held"]
    plan = planned(tmp_path, [*nodes, *half], "--keep-free", "50%")
    assert (
        "1 of 4 devices are free, and --keep-free 50 asks for 2"
        in held_objects(plan)["Node//gpu-0"]
    )
    assert {"plan with a lower --keep-free, or free devices first"} == {
        entry["fix"] for entry in plan["held"]
    }
    page = (tmp_path / "plan" / "README.md").read_text()
    assert "there is nothing to run" in page
    assert "prepare.sh" not in page


def test_pods_that_wait_for_devices_already_stop_no_wave(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    pending = workload("web", {GPU: "8"}, [""])

    assert waves(planned(tmp_path, [*nodes, *pending], "--wave-nodes", 2)) == [
        (["gpu-0", "gpu-1"], [])
    ]


def test_a_pod_that_waits_today_is_named_where_others_lack_its_devices(tmp_path: Path) -> None:
    """The drain of a node makes room for it, and leaves none for the pods of the next one."""
    nodes = [plugin_node(f"gpu-{number}", 2) for number in range(3)]
    pods = [workload(f"web-{number}", {GPU: "1"}, [f"gpu-{number}"]) for number in range(3)]
    pending = workload("big", {GPU: "2"}, [""])

    plan = planned(tmp_path, [*nodes, *itertools.chain(*pods), *pending], "--wave-nodes", 1)

    reasons = {entry["reason"] for entry in plan["held"]}
    named = ", while pods that wait today have some: 1 of Deployment/team/big"
    assert any(reason.endswith(named) for reason in reasons), reasons


def test_a_namespace_of_pods_that_kubernetes_serves_needs_no_label(tmp_path: Path) -> None:
    """Its label changed nothing, and `prepare.sh` asked for a webhook that nobody needs."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    quota = resource_quota({"requests.nvidia.com/gpu": "8"})
    objects = [*nodes, namespace("team"), quota, *workload("web", {GPU: "2"}, ["gpu-0", "gpu-1"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert [([name], []) for name in ("gpu-0", "gpu-1")] == waves(plan)
    assert {} == plan["quotas"]
    assert "--webhook" not in (tmp_path / "plan" / "prepare.sh").read_text()
    # After each wave its pods that were evicted have to run again.
    assert [["Deployment/team/web"]] * 2 == [
        [entry["object"] for entry in wave["workloads"]] for wave in plan["waves"]
    ]
    assert "translate" not in script(tmp_path, "switch") + script(tmp_path, "rollback")


def test_pods_without_claims_stay_on_nodes_of_their_system(tmp_path: Path) -> None:
    """A pod of HAMi that is not opted in cannot use a switched node."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    refused = workload("bad", {GPU: "1.5"}, [""], namespace="team")
    shares = workload("web", FULL_SHARE, ["hami-0", "hami-0"])

    plan = planned(tmp_path, [*nodes, *refused, *shares], "--wave-nodes", 1)

    # Either one could be switched, and then nobody could use it: its pods are not opted in.
    assert [] == waves(plan)
    for reference in ("Node//hami-0", "Node//hami-1"):
        assert "no pod with claims would use its devices" in held_objects(plan)[reference]
    assert "Deployment/team/bad" in held_objects(plan)["Namespace//team"]


def switched_node() -> list[dict[str, Any]]:
    """A node with a DRA driver that publishes one GPU."""
    slice_ = documents.resource_slice(
        {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}},
        driver="gpu.nvidia.com",
        node="done",
        name="done",
    )
    return [node("done", {}, {}, {}), slice_]


def claim_of(pod: str) -> dict[str, Any]:
    """The claim of a pod; it has the GPU of the switched node."""
    allocated = {"driver": "gpu.nvidia.com", "pool": "done", "device": "gpu-0", "request": "gpu"}
    return api_object(
        "ResourceClaim",
        "gpu",
        "team",
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "u"}],
        spec={
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        },
        status={"allocation": {"devices": {"results": [allocated]}}},
    )


@pytest.mark.parametrize(
    ("limits", "free"),
    [
        # It is placed anew, on a node with the plugin.
        ({GPU: "1"}, 4),
        # It would be rejected, and keeps what it has.
        ({GPU: "1.5"}, 4),
    ],
    ids=["native", "refused"],
)
def test_a_claim_counts_once_whatever_becomes_of_its_pod(
    tmp_path: Path, limits: Mapping[str, str], free: int
) -> None:
    owner, pod = workload("web", limits, ["done"])
    objects = [*switched_node(), plugin_node("gpu-0"), owner, pod, claim_of("web-0")]

    plan = planned(tmp_path, objects)

    assert [free] == [wave["freeBefore"] for wave in plan["waves"]]


def test_what_is_switched_and_opted_in_already_has_no_wave(tmp_path: Path) -> None:
    labels = {"drawbridge.internal/translate": "true"}
    moved = documents.namespace("team", labels)
    done = [*switched_node(), moved, *workload("web", {GPU: "1"}, ["done"])]

    result = call(tmp_path, done)

    assert (0, []) == (result.exit_code, document(tmp_path)["waves"])
    assert "there is nothing to move" in result.stdout


# --- what is held ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "is_held"),
    [
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": "0%"}, True),
        ({"minAvailable": 2}, True),
        ({"minAvailable": "51%"}, True),
        ({"minAvailable": 1}, False),
        ({"maxUnavailable": "1%"}, False),
        ({"maxUnavailable": 1}, False),
    ],
    ids=str,
)
def test_a_budget_that_allows_no_eviction_holds_its_nodes(
    tmp_path: Path, spec: Mapping[str, Any], *, is_held: bool
) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    web = workload("web", {GPU: "1"}, ["gpu-0", "gpu-0"])

    plan = planned(tmp_path, [*nodes, *web, budget(**spec)])

    assert is_held is ("Node//gpu-0" in held_objects(plan))
    assert "Node//gpu-1" not in held_objects(plan)


def test_a_budget_of_another_namespace_or_of_other_pods_holds_nothing(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    budgets = [
        budget("other", maxUnavailable=0),
        budget(app="other", maxUnavailable=0),
        budget(
            selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
            maxUnavailable=0,
        ),
    ]

    assert {} == held_objects(planned(tmp_path, [*nodes, *web, *budgets]))


def test_nothing_is_planned_of_a_cluster_whose_pods_nobody_sees(tmp_path: Path) -> None:
    result = call(tmp_path, [*FLEET, origin("pods")])

    assert (1, []) == (result.exit_code, waves(document(tmp_path)))
    assert "Cluster: pods could not be read" in result.stdout


def test_a_namespace_with_shares_is_held_where_the_cluster_cannot_hold_them(
    tmp_path: Path,
) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    shares = workload("web", SHARE, ["hami-0"])

    old = held_objects(planned(tmp_path, [*nodes, *shares, origin(version="v1.35.4")]))
    new = held_objects(planned(tmp_path, [*nodes, *shares, origin(version="v1.36.3")]))
    settings = tmp_path / "settings.yaml"
    settings.write_text("validation: {featureGates: {DRAConsumableCapacity: true}}\n")
    oldest = [*nodes, *shares, origin(version="v1.34.4")]
    mistaken = held_objects(planned(tmp_path, oldest, "--settings", settings))

    assert "Deployment/team/web (sharesNotSupported)" in old["Namespace//team"]
    assert {} == new
    reason = "Deployment/team/web would get shares: with the feature gate DRAConsumableCapacity, "
    assert mistaken["Namespace//team"].startswith(reason)


def test_nodes_that_are_held_for_one_reason_are_named_together(tmp_path: Path) -> None:
    nodes = [plugin_node(f"old-{number}") for number in range(9)]
    for old in nodes:
        old["metadata"]["labels"]["nvidia.com/cuda.driver-version.major"] = "570"

    result = call(tmp_path, nodes)

    assert 1 == result.exit_code
    assert "Node/old-0, Node/old-1, Node/old-2 and 6 more: NVIDIA's driver is" in result.stdout
    assert 1 == result.stdout.count("upgrade the GPU driver")
    assert 9 == len(document(tmp_path)["held"])


def test_each_held_node_has_a_reason_of_its_own(tmp_path: Path) -> None:
    pools = ("a", "b")
    nodes = [plugin_node(f"gpu-{pool}", pool=pool) for pool in pools]
    pods = [
        workload(f"web-{pool}", {GPU: "4"}, [f"gpu-{pool}"], nodeSelector={"pool": pool})
        for pool in pools
    ]

    held = held_objects(planned(tmp_path, [*nodes, *pods[0], *pods[1]]))

    for pool in pools:
        reason = "while draining this node only, 1 pod has no devices: 1 of Deployment/team/web"
        assert f"{reason}-{pool}" == held[f"Node//gpu-{pool}"]


def test_a_node_with_an_old_driver_is_held(tmp_path: Path) -> None:
    labels = {"nvidia.com/cuda.driver-version.major": "570"}

    plan = planned(tmp_path, [plugin_node("old", 4, **labels), plugin_node("new")])

    assert ["old"] == [name.removeprefix("Node//") for name in held_objects(plan)]
    assert [(["new"], [])] == waves(plan)


def test_a_quota_that_is_converted_rejects_no_pods(tmp_path: Path) -> None:
    quota = resource_quota({f"requests.{GPU}": "8"})
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    plan = planned(tmp_path, [*nodes, quota, *workload("web", SHARE, ["hami-0"])])

    assert {} == held_objects(plan)
    (source,) = read_paths([str(tmp_path / "plan" / "quotas" / "team.gpus.yaml")])
    assert "deviceclass.resource.k8s.io/devices" in " ".join(source.document["spec"]["hard"])
    switch = script(tmp_path, "switch", plan["waves"].index(_wave_of(plan, "team")) + 1)
    assert "team/resourcequota/gpus" in dict(changes(switch))


def _wave_of(plan: Mapping[str, Any], namespace: str) -> Any:
    return next(wave for wave in plan["waves"] if namespace in wave["namespaces"])


def test_a_bare_pod_is_named(tmp_path: Path) -> None:
    owner, pod = workload("web", {GPU: "1"}, ["gpu-0"])
    del pod["metadata"]["ownerReferences"]

    plan = planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1"), pod], "--wave-nodes", 1)

    assert owner
    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert any("team/web-0" in note and "kubectl drain stops" in note for note in notes)
    assert any("before its rollback.sh delete them again" in note for note in notes)
    for wave in plan["waves"]:
        is_told = any("delete them again" in note for note in wave["notes"])
        assert is_told is ("delete them again" in script(tmp_path, "rollback", wave["wave"]))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml(FLEET))
    folder = snapshot / "plan"

    result = drawbridge("plan", "--snapshot", snapshot, "-o", folder)

    assert result.exit_code == 2
    assert f"Error: {folder}: Not a directory" in result.stderr


def test_settings_of_a_pipe_are_copied(tmp_path: Path) -> None:
    text = "translation: {mode: OptIn}\n"
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)

    planned(tmp_path, FLEET, "--settings", Path(f"/dev/fd/{reader}"))

    os.close(reader)
    assert (tmp_path / "plan" / "settings.yaml").read_text() == text


def test_scripts_print_the_bare_pods_that_no_command_creates_again(tmp_path: Path) -> None:
    _, pod = workload("web", SHARE, ["hami-0"])
    del pod["metadata"]["ownerReferences"]

    planned(tmp_path, [hami_node("hami-0"), hami_node("hami-1"), pod])

    by_hand = "echo 'by hand: delete Pod/team/web-0, and apply its manifest again'"
    switch, rollback = script(tmp_path, "switch"), script(tmp_path, "rollback")
    assert commands(switch)[-2] == by_hand
    lines = commands(rollback)
    drains = [line for line in lines if line.startswith("kubectl drain")]
    assert lines.index(by_hand) < lines.index(drains[0])


# --- runbooks -------------------------------------------------------------------------------------

PHASES: Final = ("preflight", "switch", "verify", "rollback")


def said_at_the_end(script: Path) -> list[str]:
    """Return the words of a script's last line after a colon, as a shell would read them."""
    lines = script.read_text().splitlines()
    here = next(line for line in lines if line.startswith("here="))
    # The folder has to be found from the script, wherever that lies.
    last = script.with_name("last.sh")
    last.write_text(f'{here}\nsay_next() {{ printf "$@"; }}\n{lines[-1]}\n')
    said = subprocess.run(["bash", last], capture_output=True, text=True, check=True).stdout
    last.unlink()
    return shlex.split(said.partition(": ")[2])


def test_each_script_says_which_comes_next(tmp_path: Path) -> None:
    objects = [plugin_node("a"), plugin_node("b"), hami_node("c")]
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {mode: OptIn}")
    flags = ("--settings", settings, "--wave-nodes", 1)
    waves = len(planned(tmp_path, objects, *flags)["waves"])
    folder = (tmp_path / "plan").rename(tmp_path / "it's a $(plan)")
    prepared = folder / "prepare.sh"

    ends = [said_at_the_end(folder / f"wave-{wave}" / "verify.sh") for wave in range(1, waves + 1)]

    assert said_at_the_end(prepared) == [f"{folder}/wave-1/preflight.sh"]
    assert ends == [
        [f"{folder}/wave-2/preflight.sh"],
        [f"{folder}/wave-3/preflight.sh"],
        ["drawbridge", "assess", "--live", "--settings", f"{folder}/settings.yaml", "--residue"],
    ]
    page = (folder / "README.md").read_text()
    assert "//" not in page
    assert "&gt;" not in page


def commands(text: str) -> list[str]:
    lines = (line.strip() for line in re.sub(r" \\\n +", " ", text).splitlines())
    return [
        line for line in lines if line not in {"", "fi"} and not line.startswith(("#", "if step "))
    ]


HAMI_DRIVER: Final = "drawbridge.internal/dra-driver=hami-core-gpu.project-hami.io"
FLEET: Final = (
    plugin_node("gpu-0"),
    plugin_node("gpu-1"),
    hami_node("hami-0"),
    hami_node("hami-1"),
    *workload("web", SHARE, ["hami-0"]),
    *workload("train", {GPU: "2"}, ["gpu-0"], namespace="research"),
)


def test_a_switch_drains_labels_waits_and_opts_in(tmp_path: Path) -> None:
    planned(tmp_path, FLEET, "--wave-nodes", 4)
    fleet = [*FLEET[2:4], *workload("web", SHARE, ["hami-0"])]
    call(tmp_path, fleet, "--wave-nodes", 1, folder="hami")

    switch = commands(script(tmp_path, "switch", folder="hami"))

    expected = f"hami-core-gpu.project-hami.io=2 --resource={GPU}"
    begin = switch.index("kubectl cordon hami-1")
    assert switch[begin : begin + 13] == [
        "kubectl cordon hami-1",
        "finish_work hami-1",
        "evicts hami-1 ||",
        'drawbridge verify --live --wave "$here" --node=hami-1 --before ||',
        "stop_at_unplanned hami-1",
        "check_budgets hami-1",
        "delete_bare_pods hami-1",
        "kubectl drain hami-1 --ignore-daemonsets --delete-emptydir-data --timeout=30m",
        f"note_handshake hami-1 {GPU}",
        f"kubectl label node hami-1 --overwrite {HAMI_DRIVER} gpu=off",
        f"drawbridge verify --live --node=hami-1 --expect-devices={expected} --wait=10m",
        "forget_register hami-1",
        "kubectl uncordon hami-1",
    ]
    opted_in = ("namespace/team", {"drawbridge.internal/translate": (None, "true")})
    assert [opted_in] == changes(switch[begin + 13])
    assert "kubectl rollout restart --namespace=team deployment/web" in switch


def test_drawbridges_own_driver_has_the_label_of_its_manifests(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {profiles: {hami: gpu.drawbridge.internal}}\n")
    (daemon_set,) = (
        source.document
        for source in read_paths([str(ROOT / "manifests" / "driver" / "driver.yaml")])
        if source.kind == "DaemonSet"
    )
    ((label, value),) = daemon_set["spec"]["template"]["spec"]["nodeSelector"].items()

    plan = planned(tmp_path, FLEET[2:4], "--settings", settings)

    assert plan["drivers"] == {"gpu.drawbridge.internal": f"{label}={value}"}
    assert f" {label}={value} " in script(tmp_path, "switch")


def wave_questions(tmp_path: Path) -> list[str]:
    """Return the lines of two waves that ask about a wave or a node."""
    return [
        line
        for phase in PHASES
        for wave in (1, 2)
        for line in commands(script(tmp_path, phase, wave))
        if line.startswith("drawbridge verify") and ("--wave" in line or "--node" in line)
    ]


def test_scripts_ask_with_the_settings_of_the_plan(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {profiles: {hami: gpu.drawbridge.internal}}\n")
    planned(tmp_path, FLEET, "--wave-nodes", 2, "--spare-nodes", 0, "--settings", settings)

    questions = wave_questions(tmp_path)
    assert len(questions) == 2 + 1 + 2 + 1 + 2 * 4
    assert all('--live --settings "$here/../settings.yaml" --' in line for line in questions)
    copied = tmp_path / "plan" / "settings.yaml"
    assert copied.read_text() == settings.read_text()
    end = said_at_the_end(tmp_path / "plan" / "wave-2" / "verify.sh")
    assert end[-4:] == ["--live", "--settings", f"{tmp_path}/plan/settings.yaml", "--residue"]
    # Another plan in the same folder has none.
    planned(tmp_path, FLEET)
    assert not copied.exists()
    assert "--settings" not in script(tmp_path, "switch")


def test_scripts_ask_with_the_profiles_of_the_plan(tmp_path: Path) -> None:
    shipped = (ROOT / "translation" / "profiles" / "gpu.nvidia.com.yaml").read_bytes()
    directory = tmp_path / "own"
    directory.mkdir()
    (directory / "gpu.yaml").write_bytes(b"# of this cluster\r\n" + shipped)
    (directory / "notes.txt").write_text("no profile")
    planned(tmp_path, FLEET, "--wave-nodes", 2, "--spare-nodes", 0, "--profiles", directory)

    questions = wave_questions(tmp_path)
    assert len(questions) == 2 + 1 + 2 + 1 + 2 * 4
    assert all('--live --profiles "$here/../profiles" --' in line for line in questions)
    end = said_at_the_end(tmp_path / "plan" / "wave-2" / "verify.sh")
    assert end[-4:] == ["--live", "--profiles", f"{tmp_path}/plan/profiles", "--residue"]
    copies = tmp_path / "plan" / "profiles"
    assert [path.name for path in copies.iterdir()] == ["gpu.yaml"]
    assert (copies / "gpu.yaml").read_bytes() == (directory / "gpu.yaml").read_bytes()
    # A plan may be made again with its own copies.
    planned(tmp_path, FLEET, "--wave-nodes", 2, "--profiles", copies)
    assert (copies / "gpu.yaml").read_bytes() == (directory / "gpu.yaml").read_bytes()
    # Another plan in the same folder has none.
    planned(tmp_path, FLEET)
    assert not copies.exists()
    assert "--profiles" not in script(tmp_path, "switch")


def test_what_koordinator_registered_goes_with_its_agent(tmp_path: Path) -> None:
    gpu = {"type": "gpu", "id": "GPU-0", "resources": {"koordinator.sh/gpu-memory": "40Gi"}}
    registered = api_object("Device", "koord-0", spec={"devices": [gpu]})
    planned(tmp_path, [node("koord-0", {}, {}, {}), registered, *FLEET[2:4]])
    delete = "forget_registered koord-0"

    switch = commands(script(tmp_path, "switch"))

    # The driver publishes the devices once the agent has left.
    (place,) = (number for number, line in enumerate(switch) if line == delete)
    assert switch[place - 1].startswith("drawbridge verify --live --node=koord-0 ")
    assert " --resource=nvidia.com/gpu " in switch[place - 1]
    assert switch[place + 1] == "kubectl uncordon koord-0"
    assert delete not in commands(script(tmp_path, "rollback"))
    assert not any("hami-0" in line for line in switch if line.startswith("kubectl delete"))


def test_no_pod_moves_to_a_node_that_is_drained_next(tmp_path: Path) -> None:
    call(tmp_path, [hami_node("hami-0"), hami_node("hami-1")], "--wave-nodes", 2)

    switch = commands(script(tmp_path, "switch"))

    assert switch.index("kubectl cordon hami-0 hami-1") < min(
        number for number, line in enumerate(switch) if line.startswith("kubectl drain")
    )


def test_no_pod_moves_to_a_node_that_is_taken_back_next(tmp_path: Path) -> None:
    call(tmp_path, [hami_node("hami-0"), hami_node("hami-1")], "--wave-nodes", 2)

    rollback = commands(script(tmp_path, "rollback"))

    assert rollback.index("kubectl cordon hami-1 hami-0") < min(
        number for number, line in enumerate(rollback) if line.startswith("kubectl drain")
    )
    # Where it is given up, all of them take pods again.
    assert "finish_work hami-1 hami-0" in rollback


def test_a_rollback_restores_the_labels_and_waits_for_the_plugin(tmp_path: Path) -> None:
    fleet = [*FLEET[2:4], *workload("web", SHARE, ["hami-0"])]
    call(tmp_path, fleet, "--wave-nodes", 1)

    rollback = commands(script(tmp_path, "rollback"))

    opted_out = ("namespace/team", {"drawbridge.internal/translate": ("true", None)})
    assert opted_out in changes("\n".join(rollback))
    assert (
        "kubectl label node hami-1 --overwrite drawbridge.internal/given-back=true "
        "drawbridge.internal/dra-driver- gpu=on"
    ) in rollback
    assert "kubectl label node hami-1 --overwrite drawbridge.internal/given-back-" in rollback
    assert "wait_for_offer hami-1 nvidia.com/gpu 20" in rollback
    assert "kubectl rollout restart --namespace=team deployment/web" in rollback


def operator(version: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "gpu-operator", "app.kubernetes.io/version": version}
    return api_object(
        "Deployment",
        "gpu-operator",
        "gpu-operator",
        labels=labels,
        spec={"template": {"spec": {"containers": []}}},
    )


@pytest.mark.parametrize("version", ["v26.7.0", "v26.3.1", "v25.10.0"])
def test_the_operator_keeps_its_plugin_alone_from_switched_nodes(
    tmp_path: Path, version: str
) -> None:
    planned(tmp_path, [plugin_node("gpu-0"), operator(version)], "--gpu-operator", version)

    switch = script(tmp_path, "switch")

    # The label of all operands would take the GPU driver from the node, too.
    label = "nvidia.com/gpu.deploy.device-plugin=false"
    assert (
        f"kubectl label node gpu-0 --overwrite nvidia.com/dra-kubelet-plugin=true {label}" in switch
    )
    assert "gpu.deploy.operands" not in switch
    assert "issue 2288" in switch
    prepare = (tmp_path / "plan" / "prepare.sh").read_text()
    assert "NODE_LABEL_FOR_GPU_POD_EVICTION" in prepare
    # The two changes are a list: a reader took them for one, or in the other order.
    assert "\n# - spec.driver.upgradePolicy.autoUpgrade: false, and keep it so" in prepare
    echoed = "change two things in ClusterPolicy before prepare.sh, both at once: "
    assert f"\necho '{echoed}" in prepare
    # Whoever reads the page alone meets it, too.
    assert echoed in (tmp_path / "plan" / "README.md").read_text()
    assert " --set=nvidiaDriverRoot=/run/nvidia/driver " in prepare


def plugin_daemon_set(name: str) -> dict[str, Any]:
    return api_object(
        "DaemonSet",
        name,
        "kube-system",
        spec={"template": {"spec": {"containers": [{"name": "p", "image": "k8s-device-plugin"}]}}},
    )


def test_a_plugin_without_the_operator_is_kept_from_switched_nodes(tmp_path: Path) -> None:
    # Pods select nodes by the labels of the second one, which is of the same chart and image.
    plugins = [
        plugin_daemon_set("nvidia-device-plugin"),
        plugin_daemon_set("nvidia-device-plugin-gpu-feature-discovery"),
    ]

    plan = planned(tmp_path, [plugin_node("gpu-0"), *plugins])

    (entry,) = plan["plugins"]
    (term,) = entry["nodeSelectorTerms"]
    expected = {"key": "nvidia.com/dra-kubelet-plugin", "operator": "NotIn", "values": ["true"]}
    assert [expected] == term["matchExpressions"]
    prepare = (tmp_path / "plan" / "prepare.sh").read_text()
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = {"affinity": (None, {"nodeAffinity": required})}
    assert ("kube-system/daemonset/nvidia-device-plugin", affinity) in changes(prepare)
    assert "gpuResourcesEnabledOverride=true" in prepare
    assert "nvidiaDriverRoot" not in prepare
    assert r"kubeletPlugin.nodeSelector.nvidia\.com/dra-kubelet-plugin=true" in prepare


def driver_daemon_set(
    chart: str, image: str, selector: Mapping[str, str], **metadata: Any
) -> dict[str, Any]:
    """Return the DaemonSet of NVIDIA's DRA driver as Helm installs it."""
    return api_object(
        "DaemonSet",
        "nvidia-dra-driver-gpu-kubelet-plugin",
        "nvidia-dra-driver-gpu",
        labels={"helm.sh/chart": chart, "app.kubernetes.io/instance": "by-label"},
        **metadata,
        spec={
            "template": {
                "spec": {"nodeSelector": selector, "containers": [{"name": "gpus", "image": image}]}
            }
        },
    )


WAITING: Final = {"nvidia.com/dra-kubelet-plugin": "true"}


def test_the_driver_is_installed_by_the_name_that_its_chart_has_now(tmp_path: Path) -> None:
    plan = planned(tmp_path, [plugin_node("gpu-0"), plugin_daemon_set("nvidia-device-plugin")])

    assert plan["driverRelease"] is None
    prepare = (tmp_path / "plan" / "prepare.sh").read_text()
    assert (
        "helm upgrade --install dra-driver-nvidia-gpu nvidia/dra-driver-nvidia-gpu "
        "--namespace=dra-driver-nvidia-gpu --create-namespace --version=0.5.0 " in prepare
    )
    assert "nvidia-dra-driver-gpu up to 25.12.0" in prepare


@pytest.mark.parametrize(
    ("daemon_set", "command"),
    [
        pytest.param(
            driver_daemon_set("nvidia-dra-driver-gpu-25.12.0", "ncr/k8s-dra-driver-gpu:1", WAITING),
            "helm upgrade by-label nvidia/nvidia-dra-driver-gpu --namespace=nvidia-dra-driver-gpu "
            "--version=25.12.0 --reset-values ",
            id="by its old name, with a version of the calendar",
        ),
        pytest.param(
            driver_daemon_set("dra-driver-nvidia-gpu-0.4.1", "dra-driver-nvidia-gpu", WAITING),
            "helm upgrade by-label nvidia/dra-driver-nvidia-gpu --namespace=nvidia-dra-driver-gpu "
            "--version=0.4.1 --reset-values ",
            id="by its new name",
        ),
        pytest.param(
            driver_daemon_set(
                "nvidia-dra-driver-gpu-0.5.0-rc.1",
                "local/dra-driver-nvidia-gpu@sha256:0",
                WAITING,
                annotations={
                    "meta.helm.sh/release-name": "gpus",
                    "meta.helm.sh/release-namespace": "drivers",
                },
            ),
            "helm upgrade gpus nvidia/dra-driver-nvidia-gpu --namespace=drivers "
            "--version=0.5.0-rc.1 --reset-values ",
            id="upgraded to the new chart with nameOverride, with Helm's annotations",
        ),
        pytest.param(
            driver_daemon_set("gpus-25.8.1", "local/k8s-dra-driver-gpu:v25.8.1", WAITING),
            "helm upgrade by-label nvidia/nvidia-dra-driver-gpu --namespace=nvidia-dra-driver-gpu "
            "--version=25.8.1 --reset-values ",
            id="with another nameOverride, known by its image",
        ),
    ],
)
def test_a_release_of_the_driver_keeps_its_name_and_its_version(
    tmp_path: Path, daemon_set: Mapping[str, Any], command: str
) -> None:
    words = command.split()
    release = f"{words[4].removeprefix('--namespace=')}/{words[2]}"
    objects = [plugin_node("gpu-0"), operator("v26.7.0"), daemon_set]
    planned(tmp_path, objects, "--gpu-operator", "v26.7.0", "--driver-release", release)

    prepare = (tmp_path / "plan" / "prepare.sh").read_text()

    assert command in prepare
    page = (tmp_path / "plan" / "README.md").read_text()
    assert f"the values of Helm release {release}, and stops until" in page
    assert "`driver-values.yaml` in this folder" in page
    assert "--install" not in prepare
    # It has the root that its nodes need.
    assert "--set=nvidiaDriverRoot" not in prepare
    assert "# nvidiaDriverRoot is one of them: " in prepare
    # Its values may have another affinity than the chart.
    assert "--set=kubeletPlugin.affinity" not in prepare
    assert "kubeletPlugin.affinity in driver-values.yaml has to be null" in prepare
    assert "BEWARE" not in prepare
    assert ("is an upgrade of its own" in prepare) is ("nvidia/nvidia-dra-driver-gpu" in command)


def test_a_release_that_runs_on_all_nodes_is_reported_before_it_leaves_them(tmp_path: Path) -> None:
    release = driver_daemon_set("dra-driver-nvidia-gpu-0.4.1", "dra-driver-nvidia-gpu", {})

    name = "nvidia-dra-driver-gpu/by-label"
    planned(tmp_path, [plugin_node("gpu-0"), release], "--driver-release", name)

    assert "BEWARE" in (tmp_path / "plan" / "prepare.sh").read_text()


@pytest.mark.parametrize(
    "daemon_set",
    [
        driver_daemon_set("dra-driver-nvidia-gpu-0.4.1; reboot", "dra-driver-nvidia-gpu", WAITING),
        driver_daemon_set("dra-driver-nvidia-gpu", "dra-driver-nvidia-gpu", WAITING),
        driver_daemon_set("other-driver-1.2.3", "other-driver", WAITING),
        driver_daemon_set(
            "dra-driver-nvidia-gpu-0.4.1",
            "dra-driver-nvidia-gpu",
            WAITING,
            annotations={"meta.helm.sh/release-name": "$(reboot)"},
        ),
        driver_daemon_set(
            "dra-driver-nvidia-gpu-0.4.1",
            "dra-driver-nvidia-gpu",
            WAITING,
            annotations={"meta.helm.sh/release-namespace": "--all"},
        ),
    ],
)
def test_what_is_no_release_of_the_driver_is_not_upgraded(
    tmp_path: Path, daemon_set: Mapping[str, Any]
) -> None:
    plan = planned(tmp_path, [plugin_node("gpu-0"), daemon_set])

    assert plan["driverRelease"] is None
    assert "helm upgrade --install" in (tmp_path / "plan" / "prepare.sh").read_text()


def scripts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sh"))


def test_every_script_is_valid_and_executable(tmp_path: Path) -> None:
    planned(tmp_path, FLEET, "--wave-nodes", 1)

    paths = scripts(tmp_path / "plan")

    assert len(paths) > len(PHASES)
    for path in paths:
        checked = subprocess.run(["bash", "-n", path], capture_output=True, check=False)
        assert (0, b"") == (checked.returncode, checked.stderr), path
        assert os.access(path, os.X_OK)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    planned(tmp_path, FLEET, "--wave-nodes", 1)

    checked = subprocess.run(
        ["shellcheck", *scripts(tmp_path / "plan")], capture_output=True, text=True, check=False
    )

    assert "" == checked.stdout


HOSTILE: Final = (
    "$(touch pwned)",
    "; touch pwned #",
    "a\ntouch pwned\n",
    "'; touch pwned; '",
    "`touch pwned`",
    "--all",
    "| touch pwned",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_never_becomes_a_command(tmp_path: Path, name: str) -> None:
    """The scripts run with commands that only note their arguments."""
    quota = resource_quota({f"requests.{GPU}": "8"}, name=name)
    plugin = api_object(
        "DaemonSet",
        "nvidia-device-plugin",
        name,
        spec={"template": {"spec": {"containers": [{"name": name, "image": name}]}}},
    )
    objects = [
        *(plugin_node("gpu-0"), plugin_node("gpu-1", 4, gpu=name), hami_node("hami-0")),
        *(
            hami_node("hami-1"),
            plugin_node(name),
            hami_node(name),
            quota,
            plugin,
            operator(f"v1.{name}"),
        ),
        *workload("web", SHARE, ["hami-0"]),
        *workload("train", {GPU: "1"}, [name, "gpu-0"]),
        *workload(name, SHARE, ["hami-1"], namespace="hostile"),
        *workload("web", SHARE, ["hami-1"], namespace=name),
    ]
    call(tmp_path, objects, "--wave-nodes", 1, "--gpu-operator", "v26.3.1")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for command in ("kubectl", "helm", "drawbridge"):
        fake = bin_folder / command
        # The drivers of nodes that are given back have left, and their plugins offer devices. HAMi has no handshake, and no
        # workload asks for pods.
        left = (
            'case "$*" in *resourceslices* | *handshake* | *desiredNumberScheduled*) exit 0;; '
            "*allocatable*) echo 999; exit 0;; esac"
        )
        fake.write_text(f'#!/bin/sh\n{left}\nfor word in "$@"; do echo "$word"; done\n')
        fake.chmod(0o755)
    # The DaemonSet of the driver that a person installs.
    with (bin_folder / "kubectl").open("a") as fake_kubectl:
        fake_kubectl.write(f"echo '{HAMI_DRIVER.partition('=')[2]}'\n")
    work = tmp_path / "work"
    work.mkdir()

    for path in scripts(tmp_path / "plan"):
        ran = subprocess.run(
            [path],
            cwd=work,
            env={"PATH": f"{bin_folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == ran.returncode, ran.stderr
        assert name not in ran.stdout.splitlines()

    assert (tmp_path / "plan" / "wave-1").is_dir()
    assert [] == list(work.iterdir())
    assert [] == list(tmp_path.rglob("pwned*"))
    assert held_objects(document(tmp_path))


@pytest.mark.parametrize("end", ["exit 1", "kill -INT $PPID; exit 1"])
def test_a_script_that_ends_early_says_where_and_how_to_go_on(tmp_path: Path, end: str) -> None:
    call(tmp_path, FLEET, "--wave-nodes", 1)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for command in ("kubectl", "helm", "drawbridge"):
        (bin_folder / command).write_text(
            f'#!/bin/sh\n[ "$1" != drain ] || {{ {end}; }}\n[ "$1" != get ] || echo "$2"\n'
        )
        (bin_folder / command).chmod(0o755)
    script = tmp_path / "plan" / "wave-1" / "switch.sh"

    ran = subprocess.run(
        [script],
        env={"PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode != 0
    assert "stopped at: kubectl drain" in ran.stderr
    assert f"to go on, run again: {script}" in ran.stderr
    assert "done" not in ran.stdout


# --- the folder -----------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_plan_is_the_same_each_time_and_replaces_an_older_one(tmp_path: Path) -> None:
    call(tmp_path, FLEET, "--wave-nodes", 1)
    first = tree(tmp_path / "plan")
    call(tmp_path, FLEET, "--wave-nodes", 4, "--spare-nodes", 0)
    assert "wave-4/switch.sh" not in tree(tmp_path / "plan")

    call(tmp_path, FLEET, "--wave-nodes", 1)

    assert first == tree(tmp_path / "plan")
    assert "wave-4/switch.sh" in first


def test_the_order_of_objects_does_not_matter(tmp_path: Path) -> None:
    call(tmp_path, FLEET, "--wave-nodes", 1, folder="one")
    call(tmp_path, FLEET[::-1], "--wave-nodes", 1, folder="two")

    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_folder_with_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "notes.txt").write_text("mine")

    result = call(tmp_path, FLEET)

    assert 2 == result.exit_code
    assert "has notes.txt, which is no file of a plan" in result.stderr
    assert {"notes.txt": "mine"} == tree(tmp_path / "plan")


def test_a_plan_with_a_file_or_a_link_of_somebody_else_is_refused(tmp_path: Path) -> None:
    call(tmp_path, FLEET)
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "plan" / "quotas" / "link.yaml").symlink_to(tmp_path / "elsewhere")

    assert 2 == call(tmp_path, FLEET).exit_code
    assert "mine" == (tmp_path / "elsewhere").read_text()


def test_a_file_that_only_looks_like_a_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")

    assert 2 == call(tmp_path, FLEET).exit_code


def test_an_old_kubernetes_has_no_wave(tmp_path: Path) -> None:
    origin = api_object("Snapshot", "cluster", kubernetesVersion="v1.33.1")

    result = call(tmp_path, [origin, *FLEET])

    assert 1 == result.exit_code
    assert "Kubernetes 1.33 does not serve resource.k8s.io/v1" in result.stdout


def test_a_node_is_held_whose_register_cannot_be_read(tmp_path: Path) -> None:
    """It had the labels of NVIDIA's DRA driver, and HAMi's plugin went on beside it."""
    torn = hami_node("hami-0")
    torn["metadata"]["annotations"] = {"hami.io/node-nvidia-register": '[{"id": "GPU-'}
    team = workload("web", SHARE, ["hami-1"])

    plan = planned(tmp_path, [torn, hami_node("hami-1"), hami_node("hami-2"), *team])

    assert {name for nodes, _ in waves(plan) for name in nodes} == {"hami-1", "hami-2"}
    assert "hami.io/node-nvidia-register" in held_objects(plan)["Node//hami-0"]


def test_the_total_says_of_how_many_nodes_and_a_fix_stands_once(tmp_path: Path) -> None:
    objects = [*FLEET, *workload("late", {GPU: "1"}, ["gpu-1"], namespace="research")]
    strict = [budget("research", name, maxUnavailable=0) for name in ("train", "late")]
    for entry in strict:
        entry["metadata"]["name"] = entry["spec"]["selector"]["matchLabels"]["app"]

    lines = call(tmp_path, [*objects, *strict]).stdout.splitlines()

    (total,) = [line for line in lines if line.lstrip().startswith("total")]
    assert "total 2 of 4 nodes in 2 waves, 2 held" == " ".join(total.split())
    assert 1 == sum("raise maxUnavailable" in line for line in lines)
