"""`translation.keep` with names of replicas: time-sliced nodes and their pods stay with the device plugin."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from migration.plan.facts.device_plugins import held_unknown_devices
from process.profiles.translation import TranslationSettings
from testing.builders import admit, profiles, translation_snapshot
from testing.command import drawbridge
from testing.documents import api_object, device_class, namespace, node, resource_slice
from testing.migration import GPU, SHARE, hami_node, plugin_node, running_job, workload
from testing.plan import document, failed_before, held_objects, planned, waves

SHARED: Final = "nvidia.com/gpu.shared"
VIRTUAL: Final = "k8s.amazonaws.com/vgpu"
MIG: Final = "nvidia.com/mig-1g.5gb.shared"
MIG_DEVICE: Final = "nvidia.com/mig-1g.5gb"
NAMES: Final = (SHARED, VIRTUAL, MIG)


def settings(folder: Path, *keep: str, **more: Any) -> tuple[str, Path]:
    path = folder / "settings.yaml"
    path.write_text(dump_yaml([{"translation": {"keep": list(keep), **more}}]))
    return "--settings", path


def estate(name: str = SHARED, **more: str) -> list[dict[str, Any]]:
    """A node of whole GPUs, and one of replicas, with pods of one namespace on both."""
    return [
        plugin_node("gpu-0"),
        plugin_node("gpu-1"),
        node("ts-0", {name: "16", GPU: "0", **more}),
        namespace("team"),
        *workload("train", {GPU: "1"}, ["gpu-0"]),
        *workload("notebooks", {name: "1"}, ["ts-0", "ts-0"]),
    ]


def assess(folder: Path, objects: list[dict[str, Any]], *options: object) -> tuple[int, Any, str]:
    """Return the exit status, the document, and the text on one line."""
    file = folder / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    call = ("assess", "--snapshot", file, *options)
    text = drawbridge(*call)
    return (
        text.exit_code,
        json.loads(drawbridge(*call, "-o", "json").stdout),
        " ".join(text.stdout.split()),
    )


@pytest.mark.parametrize("name", NAMES)
def test_nothing_blocks_where_replicas_stay(tmp_path: Path, name: str) -> None:
    """The name was rejected as one that the vocabulary nvidia translates, and its pods blocked for ever."""
    status, answer, text = assess(tmp_path, estate(name), *settings(tmp_path, name))

    assert (status, answer["blockers"], answer["unknownDevices"]) == (0, [], {})
    assert ["Deployment/team/train"] == [entry["object"] for entry in answer["workloads"]]
    assert answer["remaining"] == {
        "nodes": {"ts-0": [name]},
        "workloads": {"Deployment/team/notebooks": 2},
        "claimed": {},
    }
    assert (
        "kept translation.keep leaves "
        f"{name} with their device plugin: pods keep these keys Deployment/team/notebooks (2 pods) keeps its keys of "
        f"replicas, which the device plugin serves ts-0 offers {name} and stays as it is: no wave has it"
    ) in text


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_moves_the_others(tmp_path: Path, name: str) -> None:
    plan = planned(tmp_path, estate(name), *settings(tmp_path, name), "--wave-nodes", 2)

    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)
    assert {"ts-0": [name]} == document(tmp_path)["remaining"]["nodes"]
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert f"- ts-0 offers {name} and stays as it is: no wave has it" in readme


def test_a_node_that_offers_other_devices_beside_replicas_stays_as_a_whole(tmp_path: Path) -> None:
    """One plugin offers both, so it leaves with both."""
    objects = estate(MIG, **{GPU: "2", "intel.com/qat": "4"})
    flags = settings(tmp_path, MIG)

    status, answer, _ = assess(tmp_path, objects, *flags)
    plan = planned(tmp_path, objects, *flags)

    assert (status, answer["unknownDevices"]) == (0, {})
    assert ["gpu-0", "gpu-1"] == [entry["name"] for entry in answer["nodes"]]
    assert {} == held_objects(plan)
    assert "ts-0" not in {name for names, _ in waves(plan) for name in names}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("whole", ["0", "2"])
def test_a_node_with_a_driver_for_the_same_gpus_does_not_stay(
    tmp_path: Path, name: str, whole: str, *, is_kept: bool
) -> None:
    """With the setting nobody said that two systems hand out the GPUs, and without whole ones nobody did at all."""
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    published = resource_slice(device, driver="gpu.nvidia.com", node="ts-0")
    objects = [*estate(name, **{GPU: whole}), published]
    flags = settings(tmp_path, *[name] * is_kept)

    status, answer, _ = assess(tmp_path, objects, *flags)
    _, residue, _ = assess(tmp_path, objects, *flags, "--residue")
    plan = planned(tmp_path, objects, *flags)
    verified = drawbridge("verify", "--snapshot", tmp_path / "cluster.yaml", *flags)

    for blockers in (answer["blockers"], residue["residue"]):
        assert [["Node//ts-0"]] == [
            entry["objects"] for entry in blockers if entry["code"] == "handedOutTwice"
        ]
    assert (1, 1) == (status, verified.exit_code)
    reasons = [entry["reason"] for entry in plan["held"] if entry["object"] == "Node//ts-0"]
    assert any("both hand out" in reason for reason in reasons)
    assert not any("would publish is not known" in reason for reason in reasons)
    assert {} == answer["remaining"]["nodes"] == plan["remaining"]["nodes"]
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


def test_a_node_with_a_driver_for_other_devices_stays(tmp_path: Path) -> None:
    published = resource_slice({"name": "nic"}, driver="nic.example.com", node="ts-0")
    status, answer, _ = assess(tmp_path, [*estate(), published], *settings(tmp_path, SHARED))

    assert (status, answer["remaining"]["nodes"]) == (0, {"ts-0": [SHARED]})


@pytest.mark.parametrize("spread", [False, True])
def test_pods_of_whole_devices_on_a_node_that_stays_take_none_of_others(
    tmp_path: Path, *, spread: bool
) -> None:
    """They were placed on the nodes to move, without devices left for the pods of these."""
    others = ["ts-0"] * 4
    objects = [
        plugin_node("gpu-0"),
        plugin_node("gpu-1"),
        node("ts-0", {SHARED: "8", GPU: "4"}),
        namespace("team"),
        *workload("train", {GPU: "1"}, ["gpu-0"] * 4 + others * spread),
        *(workload("other", {GPU: "1"}, others) if not spread else ()),
    ]
    flags = settings(tmp_path, SHARED)

    status, answer, _ = assess(tmp_path, objects, *flags)
    plan = planned(tmp_path, objects, *flags)

    assert (status, answer["capacity"]["pods"], answer["capacity"]["placed"]) == (0, 4, 4)
    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


def leave_out(objects: list[dict[str, Any]], name: str) -> None:
    """Set the label that leaves pods out, in a workload and its pods."""
    for entry in objects:
        if entry["metadata"]["name"].startswith(name):
            template = entry["spec"].get("template", entry)
            labels = template["metadata"].get("labels", {})
            template["metadata"] = {
                **template["metadata"],
                "labels": {**labels, "drawbridge.internal/translate": "false"},
            }


@pytest.mark.parametrize("is_left_out", [False, True])
def test_pods_that_would_get_claims_may_stay_by_a_label(
    tmp_path: Path, *, is_left_out: bool
) -> None:
    """The fix was to publish other devices, and nothing left after the label was still said to be in the way."""
    name = "nvidia.com/mig-1g.5gb"
    objects = [
        plugin_node("gpu-0"),
        plugin_node("gpu-1"),
        node("ts-0", {SHARED: "8", name: "4", GPU: "0"}),
        namespace("team"),
        *workload("train", {GPU: "1"}, ["gpu-0"]),
        *workload("mig", {name: "1"}, ["ts-0"]),
    ]
    if is_left_out:
        leave_out(objects[5:], "mig")
    flags = settings(tmp_path, SHARED)

    status, answer, _ = assess(tmp_path, objects, *flags)
    _, residue, _ = assess(tmp_path, objects, *flags, "--residue")
    plan = planned(tmp_path, objects, *flags)

    codes = {entry["code"] for entry in residue["residue"]}
    if is_left_out:
        assert (status, codes) == (0, {"devicePluginLeft"})
        assert {} == held_objects(plan)
        return
    advice = 'set the label drawbridge.internal/translate: "false" in its pod template'
    assert (1, True) == (status, "podsWithoutClaims" in codes)
    assert [True] == [advice in entry["fix"] for entry in answer["blockers"]]
    held = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert advice in held["Deployment/team/mig"]


@pytest.mark.parametrize("selector", [{}, {"pool": "ts"}])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_pods_that_find_no_place_on_other_nodes_may_stay_by_the_label(
    tmp_path: Path, selector: dict[str, str], *, is_left_out: bool
) -> None:
    """The fix was to free devices, or to publish some beside their plugin."""
    name = "nvidia.com/mig-1g.5gb"
    objects = [
        node("mig-0", {name: "1", GPU: "0"}),
        node("ts-0", {SHARED: "8", name: "4", GPU: "0"}, {"pool": "ts"}),
        namespace("team"),
        *workload("mig", {name: "1"}, ["ts-0"] * 3, nodeSelector=selector),
    ]
    if is_left_out:
        leave_out(objects[3:], "mig")

    status, answer, _ = assess(tmp_path, objects, *settings(tmp_path, SHARED))

    if is_left_out:
        assert (status, answer["blockers"]) == (0, [])
        return
    (blocker,) = answer["blockers"]
    assert blocker["code"] == "notPlaced"
    assert blocker["fix"].startswith(
        'set the label drawbridge.internal/translate: "false" in the pod template of Deployment/team/mig, so that pods keep '
        "their keys: the device plugin serves them on ts-0, as translation.keep says; or "
        + ("have a driver publish such devices" if selector else "free devices, or add nodes")
    )
    assert blocker["fix"].endswith("; drawbridge simulate tells why for each")


@pytest.mark.parametrize(
    "other", [plugin_node("gpu-0"), node("mig-0", {"nvidia.com/mig-1g.5gb": "1", GPU: "0"})]
)
def test_a_job_may_stay_once_it_is_created_anew_with_the_label(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """The template of a Job cannot change, and the fix was to set the label in it."""
    name = "nvidia.com/mig-1g.5gb"
    objects = [
        other,
        node("ts-0", {SHARED: "8", name: "4", GPU: "0"}),
        namespace("team"),
        *running_job("mig", {name: "1"}, ["ts-0"] * 3),
    ]

    _, answer, _ = assess(tmp_path, objects, *settings(tmp_path, SHARED))

    (fix,) = (entry["fix"] for entry in answer["blockers"])
    text = (
        " (a Job has to be created anew with it, as its template cannot change), so that pods keep"
    )
    assert text in fix


def beside_mig(
    left: list[dict[str, Any]], mig: tuple[str, ...] = ("mig-0",), size: int = 1
) -> list[dict[str, Any]]:
    """Two nodes of MIG devices with pods, and one that stays and offers some, too, with other pods.

    Args:
        left: The documents of the other pods.
        mig: The node of each pod that moves.
        size: The MIG devices of each node.
    """
    return [
        *(node(f"mig-{number}", {MIG_DEVICE: str(size), GPU: "0"}) for number in range(2)),
        node("ts-0", {SHARED: "8", MIG_DEVICE: "4", GPU: "0"}),
        namespace("team"),
        namespace("zother"),
        *left,
        *workload("mig", {MIG_DEVICE: "1"}, list(mig)),
    ]


@pytest.mark.parametrize("place", ["team", "another", "zother"])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_pods_on_nodes_that_stay_hold_no_node_of_others(
    tmp_path: Path, place: str, *, is_left_out: bool
) -> None:
    """They took devices of the nodes to move while they still had keys, so that these were held."""
    left = [namespace("another"), *workload("left", {MIG_DEVICE: "1"}, ["ts-0"], namespace=place)]
    objects = beside_mig(left)
    if is_left_out:
        leave_out(objects, "left")

    plan = planned(tmp_path, objects, *settings(tmp_path, SHARED))

    assert ["mig-0", "mig-1"] == sorted(name for names, _ in waves(plan) for name in names)
    if not is_left_out:
        assert {} == held_objects(plan)
        assert place in waves(plan)[-1][1]
    assert "Wave//1" not in failed_before(tmp_path, objects)


def test_pods_on_nodes_that_stay_and_find_no_others_may_stay_by_the_label(tmp_path: Path) -> None:
    objects = beside_mig(workload("left", {MIG_DEVICE: "1"}, ["ts-0"] * 2, namespace="zother"))

    plan = planned(tmp_path, objects, *settings(tmp_path, SHARED))

    assert [(["mig-1"], ["team"])] == waves(plan)
    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert {"Node//mig-0", "Namespace//zother"} == fixes.keys()
    assert fixes["Namespace//zother"].startswith(
        'set the label drawbridge.internal/translate: "false" in the pod template of Deployment/zother/left, so that pods keep '
        "their keys: the device plugin serves them on ts-0, as translation.keep says; or free devices for these pods first"
    )


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_workloads_with_pods_on_other_nodes_are_not_told_to_stay(tmp_path: Path, kind: str) -> None:
    """With the label of the fix the next assessment had a blocker for it, and its nodes were held."""
    nodes = ["mig-0", "mig-1", "ts-0"]
    objects = beside_mig(workload("left", {MIG_DEVICE: "1"}, nodes, kind=kind), size=2)
    objects += workload("more", {MIG_DEVICE: "1"}, ["mig-0", "mig-1"])

    status, answer, _ = assess(tmp_path, objects, *settings(tmp_path, SHARED))
    plan = planned(tmp_path, objects, *settings(tmp_path, SHARED))

    fixes = [entry["fix"] for entry in (*answer["blockers"], *plan["held"])]
    assert (1, True) == (status, bool(plan["held"]))
    assert [] == [fix for fix in fixes if "set the label" in fix]


def test_a_pod_without_a_controller_may_stay_by_a_label_of_its_own(tmp_path: Path) -> None:
    """It has no pod template, and the fix was to set the label in that."""
    _, *pods = workload("mig", {MIG_DEVICE: "1"}, ["ts-0"] * 3)
    for pod in pods:
        del pod["metadata"]["ownerReferences"]

    _, answer, _ = assess(tmp_path, beside_mig(pods), *settings(tmp_path, SHARED))

    (fix,) = (entry["fix"] for entry in answer["blockers"])
    assert fix.startswith('set the label drawbridge.internal/translate: "false" on Pod/team/mig-')
    assert "template" not in fix


def test_other_replicas_are_held_still(tmp_path: Path) -> None:
    plan = planned(tmp_path, estate(MIG), *settings(tmp_path, SHARED))

    assert {"Node//ts-0", "Namespace//team"} == held_objects(plan).keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_refusal_names_the_setting(tmp_path: Path, name: str) -> None:
    """No fix led to an assessment without blockers and with such nodes as they are."""
    setting = f"translation.keep: [{name}]"

    status, answer, _ = assess(tmp_path, estate(name))
    plan = planned(tmp_path, estate(name))

    assert 1 == status
    (fix,) = {entry["fix"] for entry in answer["blockers"]}
    assert setting in fix
    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert setting in fixes["Node//ts-0"]
    assert setting in fixes["Namespace//team"]


# --- one answer, whoever is asked -----------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_pod_gets_one_answer(tmp_path: Path, name: str, *, is_kept: bool) -> None:
    """The webhook, `check`, `translate`, `assess` and `plan` answer from the same setting."""
    keep = (name,) if is_kept else ()
    flags = settings(tmp_path, *keep)
    spec = workload("notebooks", {name: "1"}, [])[0]["spec"]["template"]["spec"]
    pod = api_object("Pod", "notebook", spec=spec)
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([pod]))
    published = tmp_path / "published.yaml"
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    published.write_text(dump_yaml([resource_slice(device, driver="gpu.nvidia.com", node="gpu-0")]))
    options = TranslationSettings(keep=keep).checked_options(profiles())

    after, answer = admit(pod, translation_snapshot(), options)
    translated = drawbridge("translate", "-f", file, *flags)
    checked = drawbridge("check", "-f", file, "--snapshot", published, *flags)
    status, _, _ = assess(tmp_path, estate(name), *flags)
    plan = planned(tmp_path, estate(name), *flags)

    if is_kept:
        assert (after, answer.findings) == (pod, ())
        assert f'{name}: "1"' in translated.stdout
        assert "resourceClaims" not in translated.stdout
    assert is_kept is (answer.decision.value == "untouched")
    assert is_kept is (checked.exit_code == 0), checked.stdout
    assert is_kept is (status == 0)
    assert is_kept is ("Namespace//team" not in held_objects(plan))


def test_a_pod_with_gpus_beside_replicas_keeps_these(tmp_path: Path) -> None:
    pod = api_object("Pod", "both", spec=workload("both", {**SHARE, SHARED: "1"}, [])[0]["spec"])
    pod["spec"] = pod["spec"]["template"]["spec"]
    options = TranslationSettings(keep=(SHARED,)).checked_options(profiles())

    after, answer = admit(pod, translation_snapshot(), options)

    limits = after["spec"]["containers"][0]["resources"]["limits"]
    assert {SHARED: "1"} == limits
    assert ["keptBesideClaims"] == [finding.code.value for finding in answer.findings]


# --- what else reads the setting ------------------------------------------------------------------


def test_nothing_is_left_but_what_stays(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        dump_yaml([node("ts-0", {SHARED: "8"}), *workload("web", {SHARED: "1"}, ["ts-0"])])
    )
    call = ("assess", "--snapshot", file, "--residue")

    without = drawbridge(*call)
    result = drawbridge(*call, *settings(tmp_path, SHARED))

    assert 1 == without.exit_code
    assert 0 == result.exit_code, result.stdout
    assert "nothing: legacy systems can go, but for the device plugin of ts-0" in " ".join(
        result.stdout.split()
    )


def test_a_quota_of_replicas_that_stay_needs_no_line_for_claims(tmp_path: Path) -> None:
    hard = {f"requests.{SHARED}": "16"}
    quota = api_object("ResourceQuota", "gpus", "team", spec={"hard": hard})

    _, without, _ = assess(tmp_path, [*estate(), quota])
    status, answer, _ = assess(tmp_path, [*estate(), quota], *settings(tmp_path, SHARED))

    assert {"ResourceQuota/team/gpus"} == without["quotasLeft"].keys()
    assert (status, answer["quotasLeft"], answer["quotasToConvert"]) == (0, {}, [])


def test_hami_moves_beside_replicas_that_stay(tmp_path: Path) -> None:
    """Both names belong to GPUs of NVIDIA."""
    objects = [*estate(), hami_node("hami-0"), *workload("share", SHARE, ["hami-0"])]

    _, answer, _ = assess(tmp_path, objects, *settings(tmp_path, SHARED))

    outcomes = {entry["object"]: entry["outcome"] for entry in answer["workloads"]}
    assert {"Deployment/team/share": "translated", "Deployment/team/train": "native"} == outcomes


# --- a cluster that offers nothing else -----------------------------------------------------------


@pytest.mark.parametrize("name", [SHARED, VIRTUAL])
def test_pods_of_replicas_are_no_whole_devices(tmp_path: Path, name: str) -> None:
    """Without another GPU that is known they were native, and nothing blocked, while a plan holds all of them."""
    objects = estate(name)[2:4] + workload("notebooks", {name: "1"}, ["ts-0"])

    status, answer, _ = assess(tmp_path, objects)
    plan = planned(tmp_path, objects)

    (entry,) = answer["workloads"]
    assert (status, entry["outcome"], entry["codes"]) == (1, "lossy", ["notPublishedByDriver"])
    (blocker,) = answer["blockers"]
    assert blocker["code"] == "notPlaced"
    assert f"translation.keep: [{name}]" in blocker["fix"]
    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert {"Node//ts-0", "Namespace//team"} <= fixes.keys(), fixes
    assert all(f"translation.keep: [{name}]" in fix for fix in fixes.values()), fixes


@pytest.mark.parametrize("name", [SHARED, MIG])
def test_check_has_no_setting_in_its_fix_that_is_there_already(tmp_path: Path, name: str) -> None:
    """The fix of a wide mapping was to map the name otherwise, or to leave it with its device plugin."""
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    spec = {"selectors": [selector], "extendedResourceName": name}
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    file = tmp_path / "cluster.yaml"
    parts = api_object("DeviceClass", "parts", api_version="resource.k8s.io/v1", spec=spec)
    published = resource_slice(device, driver="gpu.nvidia.com", node="gpu-0")
    file.write_text(dump_yaml([parts, published]))

    result = drawbridge("check", "-f", file, *settings(tmp_path, name))

    text = " ".join(result.stdout.split())
    setting = f"(translation.keep: [{name}])"
    assert (
        f"take the name from the class, since it stays with its device plugin {setting} [mappingTooWide]"
        in text
    )


def test_pods_with_devices_of_a_class_for_kept_replicas_have_no_replica(tmp_path: Path) -> None:
    """All were said to be served by the device plugin, and the class to give a device that no driver publishes."""
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    spec = {"selectors": [selector], "extendedResourceName": SHARED}
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    owner, on_plugin, by_class = workload("nb", {SHARED: "1"}, ["ts-0", "gpu-9"])
    mapping = {"containerName": "c", "resourceName": SHARED, "requestName": "container-0-request-0"}
    by_class["status"] = {
        "phase": "Running",
        "extendedResourceClaimStatus": {
            "resourceClaimName": "nb-1",
            "requestMappings": [mapping, {"resourceName": []}, None],
        },
    }
    objects = [
        *estate()[:5],
        node("gpu-9", {}),
        api_object("DeviceClass", "parts", api_version="resource.k8s.io/v1", spec=spec),
        resource_slice(device, driver="gpu.nvidia.com", node="gpu-9"),
        *(owner, on_plugin, by_class),
    ]

    _, answer, text = assess(tmp_path, objects, *settings(tmp_path, SHARED))
    plan = planned(tmp_path, objects, *settings(tmp_path, SHARED))

    one = {"Deployment/team/nb": 1}
    assert (one, one) == (answer["remaining"]["workloads"], answer["remaining"]["claimed"])
    assert one == plan["remaining"]["claimed"]
    assert (
        "Deployment/team/nb (1 pod) keeps its keys of replicas, which the device plugin serves"
        in text
    )
    assert (
        "Deployment/team/nb (1 pod) has devices of a DeviceClass that maps such keys, and no replica: once no class maps them, "
        "the next pods in their place wait for a free replica"
    ) in text
    assert "gives all of device gpu.nvidia.com/gpu-9/gpu: the name" in text


def test_a_class_that_maps_replicas_and_gives_whole_devices_serves_none(tmp_path: Path) -> None:
    """The webhook left such a pod to the class, while `assess` said that it would be rejected."""
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    spec = {"selectors": [selector], "extendedResourceName": SHARED}
    device_class = api_object("DeviceClass", "shares", api_version="resource.k8s.io/v1", spec=spec)
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    cluster = tmp_path / "published.yaml"
    cluster.write_text(
        dump_yaml([device_class, resource_slice(device, driver="gpu.nvidia.com", node="gpu-0")])
    )
    spec = workload("notebooks", {SHARED: "1"}, [])[0]["spec"]["template"]["spec"]
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([api_object("Pod", "notebook", spec=spec)]))

    result = drawbridge("check", "-f", file, "--snapshot", cluster)

    assert 1 == result.exit_code
    assert "unsupportedAsPublished" in result.stdout
    assert "mappingTooWide" in result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_gives_whole_devices_for_replicas_that_stay_is_too_wide(
    tmp_path: Path, name: str
) -> None:
    """Nothing told of it: a pod that found no replica got a whole device of the driver."""
    kind = "mig" if name == MIG else "gpu"
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    spec = {"selectors": [selector], "extendedResourceName": name}
    device_class = api_object("DeviceClass", "parts", api_version="resource.k8s.io/v1", spec=spec)
    device = {"name": "gpu", "attributes": {"type": {"string": kind}}}
    published = resource_slice(device, driver="gpu.nvidia.com", node="gpu-9")
    objects = [*estate(name), node("gpu-9"), device_class, published]
    flags = settings(tmp_path, name)

    status, answer, _ = assess(tmp_path, objects, *flags)
    checked = drawbridge("check", "-f", tmp_path / "cluster.yaml", *flags)
    planned(tmp_path, objects, *flags)

    (mapping,) = answer["wideMappings"]
    assert (status, mapping["deviceClass"], mapping["resource"]) == (0, "parts", name)
    assert "gives all of device" in mapping["reason"]
    assert "mappingTooWide" in checked.stdout
    assert "kubectl patch deviceclass parts" in (tmp_path / "plan" / "prepare.sh").read_text()


def test_a_class_that_gives_shares_for_replicas_that_stay_is_exact(tmp_path: Path) -> None:
    spec = {"extendedResourceName": SHARED, "selectors": [{"cel": {"expression": "true"}}]}
    device_class = api_object("DeviceClass", "parts", api_version="resource.k8s.io/v1", spec=spec)
    policy = {"requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    device = {
        "name": "gpu",
        "attributes": {"type": {"string": "gpu"}},
        "allowMultipleAllocations": True,
        "capacity": {"shares": {"value": "10", **policy}},
    }
    published = resource_slice(device, driver="gpu.nvidia.com", node="gpu-9")
    objects = [*estate()[2:4], node("gpu-9"), device_class, published]

    _, answer, _ = assess(tmp_path, objects, *settings(tmp_path, SHARED))

    assert [] == answer["wideMappings"]


# --- names that the configuration of a plugin chooses ---------------------------------------------

RENAMED: Final = "nvidia.com/gpu.small"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", [{}, {"nvidia.com/mig-1g.5gb": "2"}], ids=["alone", "beside MIG"])
def test_renamed_replicas_stay_where_the_settings_say_what_they_mean(
    tmp_path: Path, name: str, other: dict[str, str]
) -> None:
    """The fix named a setting, and the settings rejected it; without renamedKeys the node moved."""
    objects = estate(RENAMED, **other)
    flags = settings(tmp_path, RENAMED, renamedKeys={RENAMED: name})

    status, answer, _ = assess(tmp_path, objects, *flags)
    plan = planned(tmp_path, objects, *flags)

    assert (status, answer["blockers"], answer["unknownDevices"]) == (0, [], {})
    assert answer["remaining"] == {
        "nodes": {"ts-0": [RENAMED]},
        "workloads": {"Deployment/team/notebooks": 2},
        "claimed": {},
    }
    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(node for names, _ in waves(plan) for node in names)


@pytest.mark.parametrize("driver", ["a.example.com", "gpu.nvidia.com"])
def test_replicas_that_a_class_of_another_driver_maps_are_left_to_kubernetes(
    tmp_path: Path, driver: str
) -> None:
    """`check` said that they pass, and `assess` that they would be rejected: Kubernetes asks for no driver."""
    selected = device_class(f"device.driver == '{driver}'", name="shares", extendedResourceName=MIG)
    opted_in = namespace("team", {"drawbridge.internal/translate": "true"})
    own_node = node("ts-0", {MIG: "16", GPU: "0"})
    notebooks = workload("notebooks", {MIG: "1"}, ["ts-0"])
    objects = [plugin_node("gpu-0"), own_node, opted_in, *notebooks, selected]
    pods = tmp_path / "pods.yaml"
    pods.write_text(dump_yaml(workload("notebooks", {MIG: "1"}, [])))
    cluster = tmp_path / "cluster.yaml"

    _, answer, _ = assess(tmp_path, objects)
    checked = drawbridge("check", "-f", pods, "--snapshot", cluster, "-o", "json")

    (own,) = (entry for entry in answer["workloads"] if entry["object"].endswith("notebooks"))
    is_refused = {entry["severity"] for entry in json.loads(checked.stdout)["findings"]} >= {
        "error"
    }
    assert is_refused is (own["outcome"] == "refused") is (driver == "gpu.nvidia.com")
    if not is_refused:
        assert (own["outcome"], own["codes"]) == ("unknown", ["passedThrough"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (GPU, " is translated by the vocabularies hami, koordinator, nvidia; name these, or none"),
        (RENAMED, f", which stands for {GPU}, is translated by the vocabulary hami; name that"),
    ],
)
def test_a_name_that_cannot_stay_is_rejected_with_all_that_translate_it(
    tmp_path: Path, name: str, text: str
) -> None:
    """The text named one vocabulary of several, and no name that the vocabulary has."""
    renamed_keys = {RENAMED: GPU} if name == RENAMED else {}
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([namespace("team")]))

    result = drawbridge(
        "translate", "-f", file, *settings(tmp_path, name, renamedKeys=renamed_keys)
    )

    assert 2 == result.exit_code
    assert f"translation.keep: {name}{text}" in result.stderr


def test_a_node_of_renamed_replicas_with_a_driver_does_not_stay(tmp_path: Path) -> None:
    device = {"name": "gpu", "attributes": {"type": {"string": "gpu"}}}
    published = resource_slice(device, driver="gpu.nvidia.com", node="ts-0")
    flags = settings(tmp_path, RENAMED, renamedKeys={RENAMED: SHARED})

    _, answer, _ = assess(tmp_path, [*estate(RENAMED), published], *flags)

    assert {} == answer["remaining"]["nodes"]
    assert "handedOutTwice" in {entry["code"] for entry in answer["blockers"]}


@pytest.mark.parametrize("kept", [True, False])
def test_a_pod_keeps_renamed_replicas(*, kept: bool) -> None:
    pod = api_object("Pod", "notebook", spec=workload("notebooks", {RENAMED: "1"}, [])[0]["spec"])
    pod["spec"] = pod["spec"]["template"]["spec"]
    keep = (RENAMED,) if kept else ()
    options = TranslationSettings(keep=keep, renamed_keys={RENAMED: SHARED})

    after, answer = admit(pod, translation_snapshot(), options.checked_options(profiles()))

    assert kept is ((after, answer.findings) == (pod, ()))
    assert kept is (answer.decision.value == "untouched")


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        (RENAMED, RENAMED),
        ("huawei.com/npu-core", "huawei.com/npu-core"),
        ("aliyun.com/gpu-mem", "aliyun"),
    ],
)
def test_a_node_of_devices_that_nobody_knows_may_stay(tmp_path: Path, name: str, keep: str) -> None:
    """Its fix was to switch it by hand; with a vocabulary that stays it was held all the same."""
    before = held_objects(planned(tmp_path, estate(name)))
    fixes = {entry["object"]: entry["fix"] for entry in document(tmp_path)["held"]}
    after = held_objects(planned(tmp_path, estate(name), *settings(tmp_path, keep)))

    assert "Node//ts-0" in before
    assert f"translation.keep: [{keep}]" in fixes["Node//ts-0"]
    assert "Node//ts-0" not in after


@pytest.mark.parametrize(
    ("other", "keep"),
    [
        ("huawei.com/npu-core", f"translation.keep: [{SHARED}]"),
        (RENAMED, f"translation.keep: [{SHARED}]"),
        ("aliyun.com/gpu-mem", f"translation.keep: [{SHARED}]"),
    ],
)
def test_a_node_of_replicas_beside_others_has_the_setting_in_its_fix(
    tmp_path: Path, other: str, keep: str
) -> None:
    """Its fix was to switch it by hand alone."""
    objects = estate(SHARED, **{other: "4"})

    before = planned(tmp_path, objects)
    after = planned(tmp_path, objects, *settings(tmp_path, SHARED))

    (fix,) = (entry["fix"] for entry in before["held"] if entry["object"] == "Node//ts-0")
    assert fix.endswith(f"; or leave it as it is ({keep} of the settings)")
    assert "Node//ts-0" not in held_objects(after)


@pytest.mark.parametrize("name", ["nvidia.com/gpumem", "tensor-fusion.ai/vram-limit"])
def test_no_setting_leaves_a_node_of_names_that_stay_everywhere(name: str) -> None:
    (held,) = held_unknown_devices({"hami-0": (name,)})

    assert ("translation.keep" in held.fix) is not name.startswith("nvidia")


@pytest.mark.parametrize("other", [GPU, MIG_DEVICE])
@pytest.mark.parametrize("has_pods", [True, False])
def test_a_node_whose_plugin_leaves_with_a_kept_name_in_use_is_held(
    tmp_path: Path, other: str, *, has_pods: bool
) -> None:
    """It was drained, and its pods waited for ever: the plugin had left it, and a driver offers no such name."""
    objects = [
        *estate(RENAMED),
        plugin_node("gpu-2"),
        node("ts-1", {RENAMED: "8", other: "2"}),
        *workload("more", {RENAMED: "1"}, ["ts-0", "ts-1"] if has_pods else ["ts-0"]),
    ]
    both: dict[str, Any] = {"renamedKeys": {RENAMED: SHARED}}

    kept = {
        entry["object"]: entry
        for entry in planned(tmp_path, objects, *settings(tmp_path, RENAMED))["held"]
    }
    after = planned(tmp_path, objects, *settings(tmp_path, RENAMED, **both))

    advice = f"translation.renamedKeys: {{{RENAMED}: {SHARED}}}"
    assert has_pods is ("Node//ts-1" in kept)
    if has_pods:
        assert f"running pods there have {RENAMED}, " in kept["Node//ts-1"]["reason"]
        assert (
            f"; if for GPUs or parts of them, {advice}, so that the whole node stays; "
            in kept["Node//ts-1"]["fix"]
        )
    assert {} == held_objects(after)
    assert not {"ts-0", "ts-1"} & {name for names, _ in waves(after) for name in names}


def test_two_kept_names_of_a_node_stand_for_nics(tmp_path: Path) -> None:
    """The fix said that both "stands" for them."""
    second = f"{RENAMED}-b"
    objects = [
        *estate(RENAMED, **{second: "8", GPU: "2"}),
        *workload("more", {second: "1"}, ["ts-0"]),
    ]

    plan = planned(tmp_path, objects, *settings(tmp_path, RENAMED, second))

    (held,) = (entry for entry in plan["held"] if entry["object"] == "Node//ts-0")
    assert f"if {RENAMED}, {second} stand for NICs, set " in held["fix"]


@pytest.mark.parametrize(
    ("other", "keep"),
    [
        ("aliyun.com/gpu-mem", "aliyun"),
        ("koordinator.sh/gpu-core", "koordinator"),
        ("aliyun.com/gpu-mem", ""),
    ],
)
@pytest.mark.parametrize("has_pods", [True, False])
def test_a_node_with_kept_shares_of_another_system_in_use_is_held(
    tmp_path: Path, other: str, keep: str, *, has_pods: bool
) -> None:
    """It was switched, and its GPUs were handed out by the DRA driver and by that system, too."""
    objects = [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), node("both", {GPU: "4", other: "100"})),
        *(namespace("team"), *workload("train", {GPU: "1"}, ["gpu-0"])),
        *workload("share", {other: "8"}, ["both"] if has_pods else []),
    ]

    held = held_objects(
        planned(tmp_path, objects, *(settings(tmp_path, keep) if keep else ()), "--wave-nodes", 1)
    )

    pods = (
        "running pods there have"
        if has_pods
        else "pods that Deployment/team/share starts later will have"
    )
    reason = f"{pods} {other}, which translation.keep leaves in pods, and the system behind that"
    assert bool(keep) is held.get("Node//both", "").startswith(reason)


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
@pytest.mark.parametrize("idle", [True, False])
def test_a_node_that_later_pods_of_kept_shares_may_come_to_is_held(
    tmp_path: Path, kind: str, *, idle: bool
) -> None:
    """It was switched while other pods of the same shares ran elsewhere, though the system behind them was there still."""
    share = "aliyun.com/gpu-mem"
    later = workload("later", {share: "8"}, []) if idle else []
    running = workload("share", {share: "8"}, ["used"])
    if kind == "Pod":
        running = [{**running[1], "metadata": {"name": "share", "namespace": "team"}}]
    objects = [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), *running, *later),
        *(node(name, {GPU: "4", share: "100"}) for name in ("used", "unused")),
    ]
    flags = (*settings(tmp_path, "aliyun"), "--wave-nodes", 1)

    plan = planned(tmp_path, objects, *flags)
    _, answer, _ = assess(tmp_path, objects, *flags[:2])

    own = [*(["Deployment/team/later"] if idle else []), "Deployment/team/share"]
    names = own if kind == "Deployment" else own[:-1]
    starts = "starts" if len(names) == 1 else "start"
    reason = (
        f"pods that {', '.join(names)} {starts} later will have {share}, which translation.keep leaves in pods, and the system "
        "behind that would hand out shares of the GPUs that a DRA driver gives others"
    )
    held = {entry["object"]: entry for entry in plan["held"]}
    assert held["Node//used"]["reason"].startswith(f"running pods there have {share}")
    assert bool(names) is ("Node//unused" in held)
    if names:
        assert reason == held["Node//unused"]["reason"]
        assert held["Node//unused"]["fix"].startswith(
            f"keep the system that offers {share} from this node, or delete {', '.join(names)}, or"
        )
        assert reason in {entry["message"] for entry in answer["blockers"]}


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_a_node_of_a_kept_name_that_pods_will_have_later_is_held(
    tmp_path: Path, kind: str, *, stays: bool
) -> None:
    """The plugin left every node with the name, and the pods of the next run waited for ever."""
    (owner,) = workload("later", {RENAMED: "1"}, [])
    if kind == "CronJob":
        job = {"spec": {"template": owner["spec"]["template"]}}
        owner |= {"apiVersion": "batch/v1", "kind": kind}
        owner["spec"] = {"schedule": "0 * * * *", "jobTemplate": job}
    nodes = [node("ts-1", {RENAMED: "8", GPU: "2"}), plugin_node("gpu-2"), plugin_node("gpu-3")]
    nodes += [node("ts-0", {RENAMED: "8"})] if stays else []
    flags = settings(tmp_path, RENAMED)

    plan = planned(tmp_path, [*nodes, namespace("team"), owner], *flags, "--wave-nodes", 1)

    reason = (
        f"pods that {kind}/team/later starts later will have {RENAMED}, which translation.keep leaves in pods, and a switch "
        "takes away the legacy system that serves it, on no node that stays: they would wait"
    )
    assert (not stays) is (held_objects(plan).get("Node//ts-1") == reason), held_objects(plan)
