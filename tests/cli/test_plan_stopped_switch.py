"""A plan that is made anew after a switch.sh that stopped between its nodes and its namespaces."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI, hami_gpu
from testing.documents import api_object, namespace, node, resource_slice
from testing.migration import SHARE, daemon_set, hami_node, workload
from testing.plan import failed_before, held_objects, planned, waves

DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
SWITCHED: Final = (
    node("hami-0", {}, {"drawbridge.internal/dra-driver": HAMI, "gpu": "off"}, {}),
    resource_slice(hami_gpu("40Gi"), driver=HAMI, node="hami-0", name="slice-0"),
    DRIVER,
)


def stopped(*shares: dict[str, str]) -> list[dict[str, Any]]:
    """A cluster with one switched node, one of HAMi, and a workload there for each share."""
    teams = [f"team-{number}" for number in range(len(shares))]
    return [
        *(*SWITCHED, hami_node("hami-1")),
        *(namespace(team) for team in teams),
        *(
            entry
            for team, share in zip(teams, shares, strict=True)
            for entry in workload("web", share, ["hami-1"], namespace=team)
        ),
    ]


@pytest.mark.parametrize("options", [(), ("--keep-free", 0, "--spare-nodes", 0)])
def test_the_last_node_comes_after_its_namespace(
    tmp_path: Path, options: tuple[object, ...]
) -> None:
    """Its pods have no other node of HAMi for its drain, so nothing moved."""
    plan = planned(tmp_path, stopped(SHARE), *options)

    assert [([], ["team-0"]), (["hami-1"], [])] == waves(plan)
    assert {} == held_objects(plan)


def test_a_wave_of_a_namespace_alone_keeps_a_node_to_spare_where_one_is_asked_for(
    tmp_path: Path,
) -> None:
    """Today its pods have another node of HAMi if theirs is lost, and with claims they have the switched one alone."""
    old = [hami_node("hami-1"), hami_node("hami-2")]
    for entry in old:
        entry["metadata"]["labels"]["nvidia.com/cuda.driver-version.major"] = "500"
    others = [entry for entry in stopped(SHARE) if entry["metadata"]["name"] != "hami-1"]

    assert [([], ["team-0"])] == waves(planned(tmp_path, [*others, *old]))
    plan = planned(tmp_path, [*others, *old], "--spare-nodes", 1)

    assert [] == plan["waves"]
    assert (
        "1 of Deployment/team-0/web, once hami-0 is lost"
        in (held_objects(plan)["Namespace//team-0"])
    )


def test_a_wave_of_a_namespace_alone_without_nodes_to_switch_names_the_missing_node_to_spare(
    tmp_path: Path,
) -> None:
    """Its note on nodes to spare was missing, and that of the first wave said that no loss leaves more without."""
    labels = {"nvidia.com/cuda.driver-version.major": "500"}
    old = [hami_node(f"hami-{number}") for number in (1, 2)]
    for entry in old:
        entry["metadata"]["labels"] |= labels
    cluster = [*(entry for entry in stopped(SHARE) if entry["metadata"]["name"] != "hami-1"), *old]

    (wave,) = planned(tmp_path, cluster)["waves"]
    assert [] == wave["nodes"]
    assert any("no node to spare of those with DRA drivers" in note for note in wave["notes"])

    # One node alone serves the other pod today.
    (single,) = (hami_node(name) for name in ["single"])
    single["metadata"]["labels"] |= {**labels, "only": "yes"}
    pinned = workload("pinned", SHARE, ["single"], namespace="hold", nodeSelector={"only": "yes"})
    (wave,) = planned(tmp_path, [*cluster, single, namespace("hold"), *pinned])["waves"]
    (today,) = (note for note in wave["notes"] if "no node to spare today" in note)
    assert today.endswith("leaves no more of them without, unless a note of that wave says so")


def test_a_namespace_that_fits_alone_moves_before_one_that_does_not(tmp_path: Path) -> None:
    """Its pods get the only GPU of the switched node, and the other pod keeps its node."""
    larger = {**SHARE, "nvidia.com/gpumem": "39000"}
    plan = planned(tmp_path, stopped(larger, larger))

    assert [([], ["team-0"])] == waves(plan)
    assert "no devices" in held_objects(plan)["Node//hami-1"]
    assert "no devices" in held_objects(plan)["Namespace//team-1"]


def taker() -> list[dict[str, Any]]:
    """A pod with a claim for all memory but one GiB of the GPU of the switched node."""
    request = {"deviceClassName": HAMI, "count": 1, "capacity": {"requests": {"memory": "39Gi"}}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    (slice_spec,) = (entry["spec"] for entry in SWITCHED if entry["kind"] == "ResourceSlice")
    result = {
        "request": "gpu",
        "driver": HAMI,
        "pool": slice_spec["pool"]["name"],
        "device": slice_spec["devices"][0]["name"],
        "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
        "consumedCapacity": {"memory": "39Gi"},
    }
    claimed = api_object("ResourceClaim", "all", "others", spec=spec)
    claimed["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "taker", "uid": "u"}],
    }
    pod = {
        "nodeName": "hami-0",
        "containers": [{"name": "c", "image": "a", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "all"}],
    }
    user = api_object("Pod", "taker", "others", spec=pod, status={"phase": "Running"})
    user["metadata"]["uid"] = "u"
    return [namespace("others"), claimed, user]


def test_a_wave_of_a_namespace_alone_does_not_begin_without_devices_for_it(tmp_path: Path) -> None:
    """Another pod had taken the GPU since, and the restart ended the only pod of a StatefulSet for one that waited."""
    cluster = stopped(SHARE)
    assert ([], ["team-0"]) == waves(planned(tmp_path, cluster))[0]

    assert {} == failed_before(tmp_path, cluster)
    assert {
        "Wave//1": "with team-0 opted in, 1 pod has no devices: 1 of Deployment/team-0/web: plan again from a new snapshot"
    } == failed_before(tmp_path, [*cluster, *taker()])


def test_a_wave_of_a_part_alone_does_not_begin_without_devices_for_it(tmp_path: Path) -> None:
    larger = {**SHARE, "nvidia.com/gpumem": "39000"}
    rest = workload("rest", larger, ["hami-1"], namespace="team-0")
    cluster = [*stopped(larger), *rest]
    plan = planned(tmp_path, cluster)
    assert [([], [])] == waves(plan)
    part = {"namespace": "team-0", "workloads": ["Deployment/team-0/rest"]}
    assert [part] == plan["waves"][0]["partialNamespaces"]

    assert {} == failed_before(tmp_path, cluster)
    failed = failed_before(tmp_path, [*cluster, *taker()])["Wave//1"]
    assert failed.startswith("with team-0 opted in, 1 pod has no devices: 1 of")


LARGE: Final = {**SHARE, "nvidia.com/gpumem": "39000"}


def test_a_wave_of_nodes_does_not_begin_without_devices_for_what_it_opts_in(tmp_path: Path) -> None:
    """A workload had come since: no drain lacked devices, and its restart waited for some after the wave."""
    nodes = [hami_node(f"hami-{number}", gpus=1) for number in range(2)]
    cluster = [DRIVER, *nodes, namespace("team"), *workload("web", LARGE, ["hami-1"])]
    assert (["hami-0"], ["team"]) == waves(planned(tmp_path, cluster, "--wave-nodes", 1))[0]
    assert {} == failed_before(tmp_path, cluster)

    cluster += [hami_node("hami-2", gpus=1)]
    failed = failed_before(tmp_path, [*cluster, *workload("more", LARGE, ["hami-2"])])

    text = "with hami-0 switched and team opted in, 1 pod has no devices: 1 of Deployment/team/"
    assert failed["Wave//1"].startswith(text)
    small = workload("more", {**SHARE, "nvidia.com/gpumem": "1000"}, ["hami-2"])
    assert {} == failed_before(tmp_path, [*cluster, *small])


def test_a_wave_of_nodes_begins_where_its_switch_gives_them_the_labels_of_its_pods(
    tmp_path: Path,
) -> None:
    """They select the label of HAMi, or that of its driver."""
    labels = {"gpu": "on", "drawbridge.internal/dra-driver": HAMI}
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        for key, value in labels.items()
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    web = workload("web", LARGE, ["hami-1"], affinity={"nodeAffinity": required})
    nodes = [hami_node(f"hami-{number}", gpus=1) for number in range(2)]
    cluster = [DRIVER, *nodes, namespace("team"), *web]

    assert (["hami-0"], ["team"]) == waves(planned(tmp_path, cluster, "--wave-nodes", 1))[0]

    assert {} == failed_before(tmp_path, cluster)
