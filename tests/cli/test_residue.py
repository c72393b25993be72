"""`drawbridge assess --residue`: the rest of legacy systems at the end of a migration."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge, translate
from testing.documents import api_object, namespace, node, owned, ownership, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    device_quota,
    hami_node,
    origin,
    plugin_node,
    resource_slice,
    workload,
)

Objects = Sequence[Mapping[str, Any]]
HAMI: Final = "hami-core-gpu.project-hami.io"


def moved(limits: Mapping[str, str] = SHARE, **spec: Any) -> list[dict[str, Any]]:
    """A workload with a pod that has claims."""
    owner, pod = workload("web", limits, ["a"], **spec)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return [owner, pod]


DONE: Final = (
    node("a", {GPU: "0"}, {}, {}),
    resource_slice("a", HAMI, ("GPU-0",)),
    namespace("team", {"drawbridge.internal/translate": "true"}),
)

REPLICAS: Final = node("b", {"nvidia.com/gpu.shared": "8"}, {}, {})
MIG_REPLICAS: Final = node("b", {"nvidia.com/mig-1g.5gb.shared": "8"}, {}, {})


def residue(
    tmp_path: Path, objects: Objects, output: str = "json", settings: str = "{}"
) -> tuple[int, str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    options = tmp_path / "settings.yaml"
    options.write_text(settings)
    call = ("assess", "--snapshot", file, "--settings", options, "--residue", "-o", output)
    result = drawbridge(*call)
    return result.exit_code, result.stdout


def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    objects = [*DONE, *moved()]

    exit_code, text = residue(tmp_path, objects)

    assert (0, []) == (exit_code, json.loads(text)["residue"])
    assert "nothing: legacy systems can go" in residue(tmp_path, objects, "text")[1]


def test_pods_of_the_bridge_are_not_left(tmp_path: Path) -> None:
    """The bridge has another name than usual here."""
    bridge = ownership(owned(name=HAMI), status={"schedulerName": "gpu-scheduler"})

    exit_code, text = residue(tmp_path, [*DONE, bridge, *moved(schedulerName="gpu-scheduler")])

    assert (0, []) == (exit_code, json.loads(text)["residue"])


@pytest.mark.parametrize(
    ("adopted", "scheduler", "codes"),
    [
        ("volcano: volcano", "volcano", []),
        ("hami-scheduler: volcano", "volcano", []),
        ("hami-scheduler: volcano", "hami-scheduler", ["foreignScheduler"]),
        ("volcano: default-scheduler", "volcano", ["foreignScheduler"]),
        ("", "volcano", ["foreignScheduler"]),
    ],
)
def test_pods_are_left_at_a_scheduler_only_where_the_settings_give_them_to_another(
    tmp_path: Path, adopted: str, scheduler: str, codes: list[str]
) -> None:
    """Pods of a scheduler that gets claims by the settings were to be restarted, again and again."""
    settings = f"translation: {{adoptSchedulers: {{{adopted}}}}}\n"

    exit_code, text = residue(tmp_path, [*DONE, *moved(schedulerName=scheduler)], settings=settings)

    assert codes == [entry["code"] for entry in json.loads(text)["residue"]]
    assert exit_code == len(codes)


@pytest.mark.parametrize(
    ("objects", "adopted", "scheduler", "name"),
    [
        (moved(schedulerName="volcano"), "volcano: volcano", "volcano", "Deployment/team/web"),
        (moved(schedulerName="hami-scheduler"), "hami-scheduler: volcano", "volcano", ""),
        (
            workload("cpu", {"cpu": "1"}, ["a"], schedulerName="hami-scheduler"),
            "",
            "hami-scheduler",
            "Deployment/team/cpu",
        ),
        (
            workload("cpu", {"cpu": "1"}, [], schedulerName="hami-scheduler"),
            "",
            "hami-scheduler",
            "Deployment/team/cpu",
        ),
    ],
    ids=[
        "kept by the settings",
        "given by the settings",
        "pods without devices",
        "a template without pods",
    ],
)
def test_a_scheduler_that_next_pods_go_to_has_to_stay(
    tmp_path: Path, objects: Objects, adopted: str, scheduler: str, name: str
) -> None:
    """Legacy systems could go, as the answer said, and the next pods of these workloads waited for ever."""
    settings = f"translation: {{adoptSchedulers: {{{adopted}}}}}\n"

    exit_code, text = residue(tmp_path, [*DONE, *objects], "text", settings)
    page = residue(tmp_path, [*DONE, *objects], "html", settings)[1]

    is_done = "hami-scheduler:" not in adopted
    words = " ".join(text.split())
    assert (0 if is_done else 1) == exit_code
    stays = f'next pods of {name or "Deployment/team/web"} go to scheduler "{scheduler}", and would wait for ever without it'
    assert f"kept {stays}" in words
    assert html.escape(stays) in page
    nothing = f"othing: legacy systems can go, but for scheduler {scheduler}"
    assert is_done is (f"n{nothing}" in words) is (f"N{nothing}." in page)


def test_pods_that_leave_their_scheduler_once_they_are_restarted_need_it_no_more(
    tmp_path: Path,
) -> None:
    _, text = residue(tmp_path, [*DONE, *moved(schedulerName="hami-scheduler")], "text")

    assert "foreignScheduler" in text
    assert "wait for ever" not in text


def test_a_cluster_that_nobody_sees_is_not_done(tmp_path: Path) -> None:
    empty, unread = (
        residue(tmp_path, objects) for objects in ([], [*DONE, origin("pods", "limitranges")])
    )

    assert (1, ["noNodes"]) == (
        empty[0],
        [entry["code"] for entry in json.loads(empty[1])["residue"]],
    )
    (entry,) = json.loads(unread[1])["residue"]
    assert (1, "notReadable") == (unread[0], entry["code"])
    assert "pods could not be read" in entry["message"]


@pytest.mark.parametrize(
    "names", [["rayclusters.ray.io"], ["deployments"], ["cronjobs", "jobs.batch.volcano.sh"]]
)
def test_templates_that_nobody_reads_may_be_left(tmp_path: Path, names: list[str]) -> None:
    """A suspended RayCluster has no pod, and the answer was that legacy systems can go."""
    exit_code, text = residue(tmp_path, [*DONE, *moved(), origin(*names, "limitranges")])

    (entry,) = json.loads(text)["residue"]
    assert (1, "notReadable") == (exit_code, entry["code"])
    assert entry["message"].startswith(f"{', '.join(names)} could not be read")
    assert "nothing: legacy" not in residue(tmp_path, [*DONE, origin(*names)], "text")[1]


@pytest.mark.parametrize(
    ("objects", "code", "leftover"),
    [
        ([*DONE, *moved(), hami_node("b")], "devicePluginLeft", "Node//b"),
        ([*DONE, *moved(), REPLICAS], "devicePluginLeft", "Node//b"),
        ([*DONE, *moved(), MIG_REPLICAS], "devicePluginLeft", "Node//b"),
        ([*DONE[:2], namespace("team"), *moved()], "namespaceNotOptedIn", "Namespace//team"),
        ([*DONE[:2], *moved()], "namespaceNotOptedIn", "Namespace//team"),
        ([*DONE, *workload("web", SHARE, ["a"])], "podsWithoutClaims", "Deployment/team/web"),
        ([*DONE, *moved({GPU: "1.5"})], "untranslatable", "Deployment/team/web"),
        (
            [*DONE, *moved(schedulerName="hami-scheduler")],
            "foreignScheduler",
            "Deployment/team/web",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_left_is_named(tmp_path: Path, objects: Objects, code: str, leftover: str) -> None:
    exit_code, text = residue(tmp_path, objects)

    (entry,) = json.loads(text)["residue"]
    assert (1, code, [leftover]) == (exit_code, entry["code"], entry["objects"])
    named = leftover.replace("//", "/")
    assert f"[{code}]: {named}" in " ".join(residue(tmp_path, objects, "text")[1].split())


@pytest.mark.parametrize(
    ("limits", "codes"),
    [(SHARE, ["podsWithoutClaims"]), ({GPU: "1"}, []), ({GPU: "1.5"}, ["untranslatable"])],
)
def test_pods_of_a_kind_without_a_template_are_what_the_webhook_makes_of_them(
    tmp_path: Path, limits: Mapping[str, str], codes: list[str]
) -> None:
    """All of them were said to get no claims, and shares do get some."""
    _, pod = workload("chat", limits, ["a"], kind="ModelServer")
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"

    answer = json.loads(residue(tmp_path, [*DONE, pod])[1])["residue"]

    assert codes == [entry["code"] for entry in answer]


def test_the_fix_of_a_workload_beside_a_quota_is_the_command_that_tells_of_it(
    tmp_path: Path,
) -> None:
    """An assessment counts quotas as converted unless it is told otherwise, and had no word on the workload."""
    quota = api_object("ResourceQuota", "gpus", "team", spec={"hard": {f"requests.{GPU}": "4"}})
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*DONE, *moved(), quota]))

    (entry,) = json.loads(residue(tmp_path, [*DONE, *moved(), quota])[1])["residue"]
    outcomes = [
        workload["outcome"]
        for flags in ((), ("--quotas", "as-they-are"))
        for workload in json.loads(
            drawbridge("assess", "--snapshot", file, *flags, "-o", "json").stdout
        )["workloads"]
    ]

    assert ("untranslatable", True) == (entry["code"], "--quotas as-they-are" in entry["fix"])
    assert ["translated", "refused"] == outcomes


def test_a_namespace_whose_pods_would_be_rejected_is_not_to_be_labelled_yet(tmp_path: Path) -> None:
    """The advice was to label it, and its next pods were rejected."""
    owner, pod = workload("good", SHARE, ["a"])
    for document in (owner, pod):
        document["metadata"]["namespace"] = "other"
    bad = workload("bad", {GPU: "1.5"}, ["a"])

    exit_code, text = residue(tmp_path, [*DONE[:2], namespace("team"), *moved(), *bad, owner, pod])

    entries = {entry["code"]: entry for entry in json.loads(text)["residue"]}
    ready, rejected = entries["namespaceNotOptedIn"], entries["nextPodsRejected"]
    assert (1, ["Namespace//other"]) == (exit_code, ready["objects"])
    assert ready["fix"].startswith("label them")
    assert ["Namespace//team"] == rejected["objects"]
    assert rejected["fix"].startswith("do not label them")
    assert "before Deployment/team/bad are gone or changed" in rejected["fix"]
    assert 'drawbridge.internal/translate: "false" in their pod templates' in rejected["fix"]
    assert "today already in mode OptOut" in rejected["message"]


@pytest.mark.parametrize(
    "device_quotas", [[], [device_quota({"name": GPU})]], ids=["", "DeviceQuota"]
)
def test_a_quota_that_counts_no_claims_is_to_be_converted_before_its_namespace_is_labelled(
    tmp_path: Path, device_quotas: Objects
) -> None:
    """The advice was to change or remove sound workloads."""
    quota = resource_quota({f"requests.{GPU}": "8"}, name="gpus")
    objects = [*DONE[:2], namespace("team"), *moved(), quota, *device_quotas]

    exit_code, text = residue(tmp_path, objects)

    entries = {entry["code"]: entry for entry in json.loads(text)["residue"]}
    assert (1, {"quotaNotCounted", "untranslatable"}) == (exit_code, set(entries))
    entry = entries["quotaNotCounted"]
    assert ["Namespace//team"] == entry["objects"]
    assert entry["fix"] == (
        "convert ResourceQuota/team/gpus first (drawbridge quota convert), then label them drawbridge.internal/translate=true"
    )


def test_a_line_without_a_conversion_and_a_workload_at_fault_are_told_apart(
    tmp_path: Path,
) -> None:
    quota = resource_quota({f"requests.{GPU}": "8"}, name="gpus")
    memory = resource_quota({"limits.nvidia.com/gpumem": "8000"}, name="memory")
    bad = workload("bad", {GPU: "1.5"}, ["a"])
    cluster = [*DONE[:2], namespace("team"), *moved(), quota]

    at_fault, no_conversion = (
        {
            entry["code"]: entry
            for entry in json.loads(residue(tmp_path, [*cluster, *more])[1])["residue"]
        }
        for more in (bad, [memory])
    )

    assert {"quotaNotCounted", "nextPodsRejected"} < at_fault.keys()
    assert "before Deployment/team/bad are gone" in at_fault["nextPodsRejected"]["fix"]
    assert "nextPodsRejected" not in no_conversion
    assert (
        "convert ResourceQuota/team/gpus, ResourceQuota/team/memory first (drawbridge quota convert; with --to device for "
        "ResourceQuota/team/memory), then label"
    ) in no_conversion["quotaNotCounted"]["fix"]


def test_no_quota_rejects_pods_once_those_of_the_residue_are_converted(tmp_path: Path) -> None:
    """Only the quota of memory was named, and without it the pods were rejected by the one of GPUs."""
    gpus = resource_quota({f"requests.{GPU}": "4"}, name="gpus")
    memory = resource_quota({"requests.nvidia.com/gpumem": "40000"}, name="memory")
    share, pod = workload("share", SHARE, ["hami-0"])
    train = workload("train", {GPU: "1"}, ["gpu-0"])
    objects = [plugin_node("gpu-0"), hami_node("hami-0"), *train, share, pod]
    file = tmp_path / "workload.yaml"
    file.write_text(dump_yaml([share]))
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(dump_yaml([*objects, namespace("team"), gpus, memory]))

    answer = residue(tmp_path, [*objects, namespace("team"), gpus, memory])[1]
    converted = json.loads(
        drawbridge("quota", "convert", "--snapshot", before, "-o", "json").stdout
    )
    lines = [entry["document"] for entry in converted["quotas"] if entry["document"]]
    opted_in = namespace("team", {"drawbridge.internal/translate": "true"})
    after.write_text(dump_yaml([*objects, opted_in, *lines]))
    check = drawbridge("check", "-f", file, "--snapshot", after)

    entry = next(one for one in json.loads(answer)["residue"] if one["code"] == "quotaNotCounted")
    assert "convert ResourceQuota/team/gpus, ResourceQuota/team/memory first" in entry["fix"]
    assert "quotaNotCounted" not in check.stdout


def test_a_translated_pod_without_a_controller_is_not_left(tmp_path: Path) -> None:
    written = api_object(
        "Pod",
        "notebook",
        "other",
        spec={"containers": [{"name": "c", "image": "a", "resources": {"limits": SHARE}}]},
    )
    *templates, translated = yaml.load_all(translate(written).stdout, Loader=yaml.CSafeLoader)

    before = json.loads(residue(tmp_path, [*DONE, written])[1])["residue"]
    after = residue(tmp_path, [*DONE, translated, *templates])

    assert ["namespaceNotOptedIn", "podsWithoutClaims"] == [entry["code"] for entry in before]
    assert (0, []) == (after[0], json.loads(after[1])["residue"])


def test_pods_that_kubernetes_serves_need_no_claims_of_ours(tmp_path: Path) -> None:
    assert 0 == residue(tmp_path, [*DONE, *workload("web", {GPU: "1"}, ["a"])])[0]


def test_an_assessment_without_the_flag_has_no_such_key(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(DONE))

    assert "residue" not in json.loads(
        drawbridge("assess", "--snapshot", file, "-o", "json").stdout
    )
