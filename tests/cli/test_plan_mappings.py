"""`drawbridge plan`: the DeviceClasses that have to map resource names before the first wave."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cli.output.progress import LongRun
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from migration.plan.search.waves import Planner
from testing.command import drawbridge
from testing.documents import device_class, namespace, node, resource_quota
from testing.migration import GPU, SHARE, hami_node, plugin_node, resource_slice, workload
from testing.plan import (
    Objects,
    changes,
    checks_before,
    failed_before,
    held_objects,
    planned,
    prepare,
    waves,
)

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
NEURON: Final = "neuron.aws.com"
NEURON_KEY: Final = "aws.amazon.com/neuron"
LINE: Final = f"{HAMI}.deviceclass.resource.k8s.io/devices"
TAKEN_BACK: Final = f"kubectl patch deviceclass {HAMI} --type=json"
PARTS: Final = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "4"}


def neuron_node(name: str, **spec: Any) -> dict[str, Any]:
    return node(name, {NEURON_KEY: "4"}, {}, {}, **spec)


def two_vendors(*more: dict[str, Any], **spec: Any) -> Objects:
    """Nodes of NVIDIA, and one of Neuron with a pod that keeps its resource name."""
    return [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), neuron_node("inf-0", **spec)),
        *(namespace("team"), namespace("inference")),
        *workload("web", {GPU: "1"}, ["gpu-0"]),
        *workload("infer", {NEURON_KEY: "1"}, ["inf-0"], namespace="inference"),
        *more,
    ]


def class_of_chart(resource: str = GPU) -> dict[str, Any]:
    """HAMi's class as its chart has it."""
    return device_class(f"device.driver == '{HAMI}'", name=HAMI, extendedResourceName=resource)


def parts_beside_shares(place: str) -> Objects:
    """Nodes of HAMi with a share, and a node with parts of GPUs and a pod with its resource name."""
    return [
        *(hami_node("hami-0"), hami_node("hami-1"), plugin_node("ts-0", 16, **PARTS)),
        *(namespace("team"), namespace("lab")),
        *workload("share", SHARE, ["hami-0"]),
        *workload("part", {GPU: "1"}, ["ts-0"], namespace=place),
    ]


def whole_cards(*more: dict[str, Any]) -> Objects:
    """Nodes of HAMi alone, with a pod of a whole card."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    return [*nodes, namespace("team"), *workload("train", {GPU: "1"}, ["hami-0"]), *more]


# --- drivers that no wave needs -------------------------------------------------------------------


@pytest.mark.parametrize("form", ["scripts", "kustomize"])
def test_a_class_of_a_driver_that_nothing_installs_maps_nothing(tmp_path: Path, form: str) -> None:
    """`prepare.sh` stopped at a missing class, and no wave could begin."""
    objects = two_vendors(unschedulable=True)
    options = ("--format", form) if form == "kustomize" else ()

    plan = planned(tmp_path, objects, *options)

    assert "Node//inf-0" in held_objects(plan)
    assert [NVIDIA] == list(plan["drivers"])
    assert {GPU: NVIDIA} == plan["mappedClasses"]
    texts = [path.read_text() for path in (tmp_path / "plan").rglob("*") if path.is_file()]
    assert not any(f"deviceclass/{NEURON}" in text for text in texts)
    assert not list((tmp_path / "plan").rglob(f"deviceclass.{NEURON}.yaml"))
    checks = checks_before(tmp_path, objects)
    missing = {check["object"] for check in checks if "there is none" in check["message"]}
    assert {f"DeviceClass//{NVIDIA}"} == missing


def test_a_class_of_a_driver_that_a_wave_needs_maps_its_name(tmp_path: Path) -> None:
    plan = planned(tmp_path, two_vendors(neuron_node("inf-1")))

    assert {} == held_objects(plan)
    assert {GPU: NVIDIA, NEURON_KEY: NEURON} == plan["mappedClasses"]


def test_a_class_of_a_driver_that_runs_elsewhere_maps_its_name(tmp_path: Path) -> None:
    """Its class is there, and pods of the held node may use its devices."""
    published = [node("inf-1"), resource_slice("inf-1", NEURON, ["neuron-0"])]
    objects = two_vendors(*published, unschedulable=True)

    plan = planned(tmp_path, objects)

    assert [NVIDIA] == list(plan["drivers"])
    assert {GPU: NVIDIA, NEURON_KEY: NEURON} == plan["mappedClasses"]


@pytest.mark.parametrize("has_pods", [True, False])
@pytest.mark.parametrize("is_in_reach", [True, False])
def test_pods_that_may_use_no_switched_node_need_no_class(
    tmp_path: Path, has_pods: bool, is_in_reach: bool
) -> None:
    """All nodes of theirs are held, and no wave moves anything with their key: `prepare.sh` mapped it all the same."""
    pools = ("a", "a" if is_in_reach else "b")
    held, switched = (neuron_node("inf-0", unschedulable=True), node("inf-1"))
    for entry, pool in zip((held, switched), pools, strict=True):
        entry["metadata"]["labels"]["pool"] = pool
    places = ["inf-0"] if has_pods else []
    objects = [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), namespace("inference")),
        *(held, switched, resource_slice("inf-1", NEURON, ["neuron-0"])),
        *workload("web", {GPU: "1"}, ["gpu-0"]),
        *workload(
            *("infer", {NEURON_KEY: "1"}, places),
            namespace="inference",
            nodeSelector={"pool": "a"},
        ),
    ]

    plan = planned(tmp_path, objects)

    assert is_in_reach is (NEURON_KEY in plan["mappedClasses"])
    assert NVIDIA == plan["mappedClasses"][GPU]


# --- workloads that never move --------------------------------------------------------------------


def test_pods_that_stay_with_their_plugin_need_no_class(tmp_path: Path) -> None:
    """`prepare.sh` took the name from HAMi's class, and gave it back a few lines later."""
    plan = planned(tmp_path, parts_beside_shares("lab"))

    assert "Deployment/lab/part" in held_objects(plan)
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert {} == plan["mappedClasses"]
    assert TAKEN_BACK in prepare(tmp_path)
    assert "change_object deviceclass/" not in prepare(tmp_path)


@pytest.mark.parametrize("place", ["gpu-0", "ts-0"])
def test_pods_that_a_wave_evicts_keep_a_class_though_others_of_their_workload_hold_it(
    tmp_path: Path, place: str
) -> None:
    """They fitted no switched node: no class mapped their name."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), plugin_node("ts-0", 16, **PARTS)]
    web = workload("web", {GPU: "1"}, [place, "ts-0"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *web], "--wave-nodes", 2)

    assert "Deployment/team/web" in held_objects(plan)
    assert {"gpu-0", "gpu-1"} == {name for names, _ in waves(plan) for name in names}
    assert ({} if place == "ts-0" else {GPU: NVIDIA}) == plan["mappedClasses"]


def test_a_quota_counts_the_claims_of_a_class_that_maps_nothing(tmp_path: Path) -> None:
    """It had no line for them: its line for the key was to count them, and the class did not map that."""
    quota = resource_quota({f"requests.{GPU}": "4"})

    planned(tmp_path, [*parts_beside_shares("lab"), quota])

    (source,) = read_paths([str(tmp_path / "plan" / "quotas" / "team.gpus.yaml")])
    assert LINE in source.document["spec"]["hard"]


def test_pods_of_a_namespace_that_is_opted_in_keep_their_class(tmp_path: Path) -> None:
    """Without one, the pods that their controller creates next would get claims of whole devices."""
    plan = planned(tmp_path, parts_beside_shares("team"))

    assert "Deployment/team/part" in held_objects(plan)
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert {GPU: HAMI} == plan["mappedClasses"]
    assert TAKEN_BACK not in prepare(tmp_path)


@pytest.mark.parametrize("has_class", [False, True])
@pytest.mark.parametrize("spec", [{"unschedulable": True}, {}], ids=["cordoned", "not drainable"])
def test_pods_without_a_class_keep_their_namespace_from_a_move_as_a_whole(
    tmp_path: Path, spec: dict[str, bool], *, has_class: bool
) -> None:
    """No class maps their name, and with the label of the namespace their next pods would get claims of HAMi."""
    own_node = {**plugin_node("gpu-0"), "spec": spec}
    objects = [hami_node("hami-0"), hami_node("hami-1"), own_node, namespace("team")]
    objects += [*workload("share", SHARE, ["hami-0"]), *workload("web", {GPU: "1"}, ["gpu-0"])]

    plan = planned(tmp_path, [*objects, *([class_of_chart()] if has_class else [])])

    assert {} == plan["mappedClasses"]
    assert [] == [name for _, names in waves(plan) for name in names]
    moved = [entry for wave in plan["waves"] for entry in wave["workloads"]]
    assert [("Deployment/team/share", True)] == [
        (entry["object"], entry["labelled"]) for entry in moved
    ]
    assert f"pods of Deployment/team/web keep {GPU}" in held_objects(plan)["Namespace//team"]
    switched = {name for names, _ in waves(plan) for name in names}
    assert {"hami-0", "hami-1"} == switched


def test_a_search_that_stops_before_it_moves_a_namespace_in_parts_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its waves opt the namespace in as a whole, and nothing told so."""
    rounds: list[Planner] = []
    usable_nodes = Planner.usable_nodes

    def end_round(planner: Planner) -> Mapping[str, frozenset[str]]:
        rounds.append(planner)
        return usable_nodes(planner)

    monkeypatch.setattr(Planner, "usable_nodes", end_round)
    monkeypatch.setattr(LongRun, "stops", lambda _: bool(rounds))
    objects = [hami_node("hami-0"), neuron_node("inf-0", unschedulable=True)]
    objects += [device_class(f"device.driver == '{NEURON}'", name=NEURON)]
    objects += [hami_node("hami-1"), namespace("team"), *workload("share", SHARE, ["hami-0"])]
    objects += workload("infer", {NEURON_KEY: "1"}, ["inf-0"])

    plan = planned(tmp_path, objects)

    assert ["team"] == [name for _, names in waves(plan) for name in names]
    assert 1 == len(rounds)
    assert not plan["complete"]
    assert "pods of Deployment/team/infer keep" in held_objects(plan)["Namespace//team"]


@pytest.mark.parametrize("has_class", [False, True])
def test_pods_of_a_vendor_without_a_class_are_left_to_their_plugin(
    tmp_path: Path, *, has_class: bool
) -> None:
    """The webhook leaves them alone as long as the class is not there."""
    chart = device_class(f"device.driver == '{NEURON}'", name=NEURON)
    objects = [hami_node("hami-0"), hami_node("hami-1"), neuron_node("inf-0", unschedulable=True)]
    objects += [namespace("team"), *workload("share", SHARE, ["hami-0"])]
    objects += [*workload("infer", {NEURON_KEY: "1"}, ["inf-0"]), *([chart] if has_class else [])]

    plan = planned(tmp_path, objects)

    assert {} == plan["mappedClasses"]
    opted_in = [name for _, names in waves(plan) for name in names]
    assert ([] if has_class else ["team"]) == opted_in
    assert has_class is ("Namespace//team" in held_objects(plan))


# --- classes after a rollback ---------------------------------------------------------------------


def lasting(tmp_path: Path, name: str) -> str:
    """Return the line about a class in the page of a plan."""
    page = (tmp_path / "plan" / "README.md").read_text()
    (line,) = [line for line in page.splitlines() if f"DeviceClass {name} goes on mapping" in line]
    return line


def test_the_page_names_the_nodes_of_a_class_with_another_name_than_its_driver(
    tmp_path: Path,
) -> None:
    """The class was looked up among the drivers, so the page named none."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: mapped}\n")
    small = "nvidia.com/mig-1g.10gb"
    nodes = [node(f"mig-{number}", {small: "4"}, {}, {}) for number in range(3)]
    published = resource_slice("mig-2", NVIDIA, ["mig"])
    pods = [namespace("team"), *workload("web", {small: "1"}, ["mig-0"])]

    plan = planned(tmp_path, [*nodes, published, *pods], "--settings", settings)

    assert {small: "mig.nvidia.com"} == plan["mappedClasses"]
    assert "nodes of its driver (mig-2);" in lasting(tmp_path, "mig.nvidia.com")


def test_a_class_of_a_chart_with_another_name_than_its_driver_is_in_no_repository(
    tmp_path: Path,
) -> None:
    """`prepare.sh` installed the chart, and waited an hour for a repository that has no such class."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: mapped}\n")
    small = "nvidia.com/mig-1g.10gb"
    nodes = [node(f"mig-{number}", {small: "4"}, {}, {}) for number in range(3)]
    pods = [namespace("team"), *workload("web", {small: "1"}, ["mig-0"])]

    plan = planned(tmp_path, [*nodes, *pods], "--settings", settings, "--format", "kustomize")

    assert {small: "mig.nvidia.com"} == plan["mappedClasses"]
    text = prepare(tmp_path)
    assert "kubectl wait deviceclass" not in text
    assert ["deviceclass/mig.nvidia.com"] == [name for name, _ in changes(text)]
    patches = tmp_path / "plan" / "kustomize" / "prepare"
    assert not (patches / "deviceclass.mig.nvidia.com.yaml").exists()


def test_the_page_names_the_nodes_of_a_driver_that_no_wave_needs(tmp_path: Path) -> None:
    published = [node("inf-1"), resource_slice("inf-1", NEURON, ["neuron-0"])]

    plan = planned(tmp_path, two_vendors(*published, unschedulable=True))

    assert [NVIDIA] == list(plan["drivers"])
    assert "nodes of its driver (inf-1);" in lasting(tmp_path, NEURON)
    assert "nodes of its driver;" in lasting(tmp_path, NVIDIA)


# --- pods with devices of two vendors -------------------------------------------------------------


def mixed_node(name: str, **spec: Any) -> dict[str, Any]:
    return node(name, {GPU: "4", NEURON_KEY: "4"}, {}, {}, **spec)


def mixed_pods(*more: dict[str, Any], **amounts: str) -> Objects:
    """Nodes with devices of two vendors, and a pod with both, as amounts of `gpu` and `neuron`."""
    limits = {GPU: amounts.get("gpu", "1"), NEURON_KEY: amounts.get("neuron", "1")}
    nodes = [mixed_node("mixed-0"), mixed_node("mixed-1"), namespace("team")]
    return [*nodes, *workload("train", limits, ["mixed-0"]), *more]


def beside_shares(limits: dict[str, str], *more: dict[str, Any]) -> Objects:
    """Nodes of HAMi with a share, one of NVIDIA, and a cordoned one with a pod of these limits, in one namespace."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), plugin_node("gpu-0"), plugin_node("gpu-1")]
    pods = [*workload("share", SHARE, ["hami-0"]), *workload("web", {GPU: "1"}, ["gpu-0"])]
    own = [mixed_node("mixed-0", unschedulable=True), *workload("train", limits, ["mixed-0"])]
    return [*nodes, namespace("team"), *pods, *own, *more]


def test_each_name_of_a_pod_gets_the_class_of_its_own_driver(tmp_path: Path) -> None:
    """No class was mapped for either, and the next pod of a drained node stayed pending."""
    plan = planned(tmp_path, mixed_pods())

    assert {} == held_objects(plan)
    assert {GPU: NVIDIA, NEURON_KEY: NEURON} == plan["mappedClasses"]
    for name, resource in ((NVIDIA, GPU), (NEURON, NEURON_KEY)):
        (line,) = [line for line in prepare(tmp_path).splitlines() if f"ass/{name} " in line]
        assert resource in line


def test_names_of_two_containers_get_the_classes_of_their_drivers(tmp_path: Path) -> None:
    def container(name: str, limits: dict[str, str]) -> dict[str, Any]:
        return {"name": name, "image": "a", "resources": {"limits": limits}}

    containers = [container("a", {GPU: "1"}), container("b", {GPU: "1", NEURON_KEY: "2"})]
    started = [container("i", {NEURON_KEY: "1"})]
    nodes = [mixed_node("mixed-0"), mixed_node("mixed-1"), namespace("team")]
    pods = workload("train", {}, ["mixed-0"], containers=containers, initContainers=started)

    plan = planned(tmp_path, [*nodes, *pods])

    assert {GPU: NVIDIA, NEURON_KEY: NEURON} == plan["mappedClasses"]


def test_a_name_beside_one_that_a_class_maps_gets_its_class(tmp_path: Path) -> None:
    own = device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=GPU)

    plan = planned(tmp_path, mixed_pods(own))

    assert {NEURON_KEY: NEURON} == plan["mappedClasses"]


def test_the_fix_of_a_pod_of_two_vendors_names_a_class_for_each(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(mixed_pods()))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (entry,) = answer["workloads"]
    fixes = (
        f"extendedResourceName: {key} to DeviceClass {name}"
        for key, name in ((NEURON_KEY, NEURON), (GPU, NVIDIA))
    )
    assert f"add {', and '.join(fixes)}" == entry["fix"]


def test_a_name_that_a_pod_requests_0_of_is_not_mapped_by_a_foreign_class(tmp_path: Path) -> None:
    """One class was to map two names, and has room for one."""
    nodes = [neuron_node("inf-0"), neuron_node("inf-1"), namespace("team")]
    pods = workload("infer", {GPU: "0", NEURON_KEY: "1"}, ["inf-0"])

    plan = planned(tmp_path, [*nodes, *pods])

    assert {} == held_objects(plan)
    assert {NEURON_KEY: NEURON} == plan["mappedClasses"]


def test_a_namespace_moves_in_parts_where_a_class_is_missing_for_one_of_two_vendors(
    tmp_path: Path,
) -> None:
    """The namespace was opted in, and the next pod would have got claims that no wave had planned."""
    own = device_class(f"device.driver == '{NEURON}'", name=NEURON)

    plan = planned(tmp_path, beside_shares({GPU: "1", NEURON_KEY: "1"}, own))

    assert [] == [name for _, names in waves(plan) for name in names]
    assert {GPU: NVIDIA} == plan["mappedClasses"]
    reason = held_objects(plan)["Namespace//team"]
    assert f"pods of Deployment/team/train keep {NEURON_KEY}, which no DeviceClass maps" in reason


@pytest.mark.parametrize("amount", ["0", "1"])
def test_pods_of_two_vendors_are_left_alone_where_they_request_devices_without_a_class(
    tmp_path: Path, amount: str
) -> None:
    """The webhook translates a pod that requests 0 of them, since Kubernetes has no class for the name."""
    plan = planned(tmp_path, beside_shares({GPU: "1", NEURON_KEY: amount}))

    is_left = amount == "1"
    assert (["team"] if is_left else []) == [name for _, names in waves(plan) for name in names]
    assert is_left is ("Namespace//team" not in held_objects(plan))


# --- the name in HAMi's chart ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [[], [class_of_chart()], [device_class(f"device.driver == '{HAMI}'", name=HAMI)]],
    ids=["before its chart is installed", "as its chart has it", "without the name"],
)
def test_a_name_that_the_plan_gives_to_hami_is_not_taken_back(
    tmp_path: Path, more: list[dict[str, Any]]
) -> None:
    """A second plan took it back for good, since the class had it by then."""
    plan = planned(tmp_path, whole_cards(*more))

    assert {} == held_objects(plan)
    assert {GPU: HAMI} == plan["mappedClasses"]
    assert TAKEN_BACK not in prepare(tmp_path)
    page = (tmp_path / "plan" / "README.md").read_text()
    assert "`prepare.sh` takes that back" not in page
    assert f"DeviceClass {HAMI} goes on mapping {GPU}" in page


def test_a_name_that_hamis_chart_has_for_nobody_is_taken_back(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*parts_beside_shares("lab"), class_of_chart()])

    assert {} == plan["mappedClasses"]
    assert TAKEN_BACK in prepare(tmp_path)
    assert "`prepare.sh` takes that back" in (tmp_path / "plan" / "README.md").read_text()


def test_hamis_class_with_the_name_fails_the_check_of_a_wave_without_planned_classes(
    tmp_path: Path,
) -> None:
    """No line told that prepare.sh had not taken it back, or that an upgrade of the chart had set it again."""
    objects = parts_beside_shares("lab")
    planned(tmp_path, objects)

    without = failed_before(tmp_path, objects)
    with_name = failed_before(tmp_path, [*objects, class_of_chart()])

    assert f"DeviceClass//{HAMI}" not in without
    assert with_name[f"DeviceClass//{HAMI}"].startswith(f"it maps {GPU}, which means devices of an")
    assert with_name[f"DeviceClass//{HAMI}"].endswith("run prepare.sh")


@pytest.mark.parametrize("manager", ["", "flux", "helm"])
def test_the_script_takes_hamis_name_back_unless_a_repository_has_the_class(
    tmp_path: Path, manager: str
) -> None:
    """With patches for a repository it only said so in a comment."""
    label = {"helm.toolkit.fluxcd.io/name": "hami"}
    release = {"meta.helm.sh/release-name": "hami"}
    hami = class_of_chart()
    hami["metadata"] |= {
        "flux": {"labels": label},
        "helm": {"annotations": release},
    }.get(manager, {})

    planned(tmp_path, both_vendors(hami), "--format", "kustomize")

    text = prepare(tmp_path)
    patch = tmp_path / "plan" / "kustomize" / "prepare" / f"deviceclass.{HAMI}.yaml"
    is_in_repository = manager == "flux"
    assert is_in_repository == patch.is_file()
    assert is_in_repository == (f"held: DeviceClass {HAMI} maps {GPU} still" in text)
    assert is_in_repository != (f"  {TAKEN_BACK}" in text)


def both_vendors(*more: dict[str, Any]) -> Objects:
    """Nodes of NVIDIA's plugin and of HAMi, with a pod each."""
    return [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"), hami_node("hami-1")),
        *(namespace("team"), namespace("whole")),
        *workload("web", {GPU: "1"}, ["gpu-0"], namespace="whole"),
        *workload("share", SHARE, ["hami-0"]),
        *more,
    ]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [class_of_chart()],
        [class_of_chart(), device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA)],
    ],
    ids=["before its chart is installed", "as its chart has it", "beside NVIDIA's"],
)
def test_hamis_chart_keeps_no_name_of_pods_with_gpus_of_nvidia(
    tmp_path: Path, more: list[dict[str, Any]]
) -> None:
    """HAMi's class kept it, and no pod could use the nodes that NVIDIA's driver came to."""
    plan = planned(tmp_path, both_vendors(*more))

    assert {} == held_objects(plan)
    assert {GPU: NVIDIA} == plan["mappedClasses"]
    assert TAKEN_BACK in prepare(tmp_path)
    assert f"change_object deviceclass/{NVIDIA}" in prepare(tmp_path)
    assert f"change_object deviceclass/{HAMI}" not in prepare(tmp_path)
    assert [] == plan["wideMappings"]


@pytest.mark.parametrize("form", ["scripts", "kustomize"])
def test_a_name_is_taken_from_hami_though_its_nodes_have_moved(tmp_path: Path, form: str) -> None:
    """An upgrade of its chart gave it back, and the preflight of NVIDIA's nodes stopped at it."""
    moved = [node("hami-0"), resource_slice("hami-0", HAMI, ["hami-gpu-0"])]
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), *moved, namespace("team")]
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    options = ("--format", form) if form == "kustomize" else ()

    plan = planned(tmp_path, [*objects, *web, class_of_chart()], *options)

    assert [NVIDIA] == list(plan["drivers"])
    assert {GPU: NVIDIA} == plan["mappedClasses"]
    assert f"DeviceClass {HAMI} maps {GPU}, and the name means devices" in prepare(tmp_path)
    assert f"kubectl patch deviceclass {HAMI} --type=json" in prepare(tmp_path)
    page = (tmp_path / "plan" / "README.md").read_text()
    assert f"DeviceClass {HAMI} maps {GPU} no more." in page


def test_a_leftover_class_of_nvidia_takes_no_name_from_cards_of_hami(tmp_path: Path) -> None:
    """Nothing has a driver for it."""
    leftover = device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=GPU)
    times = {NVIDIA: "2026-01-01T00:00:00Z", HAMI: "2026-02-01T00:00:00Z"}
    classes = [
        {**entry, "metadata": {**entry["metadata"], "creationTimestamp": times[name]}}
        for entry in (leftover, class_of_chart())
        for name in [entry["metadata"]["name"]]
    ]

    plan = planned(tmp_path, whole_cards(*classes))

    assert {GPU: HAMI} == plan["mappedClasses"]
    assert TAKEN_BACK not in prepare(tmp_path)
