"""The page of `drawbridge plan` for the meeting that decides."""

import re
from pathlib import Path

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.html_pages import Outline
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import call, document

CLUSTER = [
    *(plugin_node(f"gpu-{number}") for number in range(3)),
    *workload("web", {GPU: "2"}, ["gpu-0", "gpu-1"]),
]


@pytest.fixture
def page(tmp_path: Path) -> str:
    result = call(tmp_path, CLUSTER, "--wave-nodes", 2, "--page", tmp_path / "meeting.html")
    assert 0 == result.exit_code, result.stderr
    return (tmp_path / "meeting.html").read_text()


def shown(text: str) -> str:
    return " ".join(" ".join(Outline(text).texts).split())


def test_the_folder_has_the_page_too(tmp_path: Path, page: str) -> None:
    assert page == (tmp_path / "plan" / "plan.html").read_text()
    # A plan replaces an older one with its page.
    assert 0 == call(tmp_path, CLUSTER).exit_code


def test_the_page_alone_is_all_that_is_written(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml(CLUSTER))

    result = drawbridge("plan", "--snapshot", snapshot, "--page", tmp_path / "meeting.html")

    assert 0 == result.exit_code, result.stderr
    assert {"cluster.yaml", "meeting.html"} == {path.name for path in tmp_path.iterdir()}


def test_without_a_place_to_write_to_the_call_is_wrong(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml(CLUSTER))

    result = drawbridge("plan", "--snapshot", snapshot)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "--page" in result.stderr


def test_each_wave_has_its_devices_before_during_and_after(tmp_path: Path, page: str) -> None:
    (first, *_) = document(tmp_path)["waves"]
    names = [node["name"] for node in first["nodes"]]
    section = page[page.index('id="wave-1"') :].partition("</section>")[0]
    cells = {
        name: [
            " ".join(" ".join(Outline(cell).texts).split())
            for cell in re.findall(r"<td>(.*?)</td>", rest)
        ]
        for name, rest in re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', section)
    }

    assert set(names) <= cells.keys()
    for name in names:
        before, during, after = cells[name]
        assert before.startswith("device plugin")
        assert "drained" == during
        assert after.startswith("DRA driver")
    assert any(before.endswith("2 of 4 in use") for before, _, _ in cells.values())


def test_evicted_pods_are_named(tmp_path: Path, page: str) -> None:
    evicting = [wave for wave in document(tmp_path)["waves"] if wave["movedPods"]]

    assert evicting
    for wave in evicting:
        section = page[page.index(f'id="wave-{wave["wave"]}"') :].partition("</section>")[0]
        assert f"Deployment/team/web: {wave['movedPods']} pod" in shown(section)


def test_what_leaves_is_grouped_by_its_course(tmp_path: Path) -> None:
    """All stood under "Evicted, and started again elsewhere", true only of a few."""
    monitor = workload("monitor", SHARE, ["hami-0", "hami-1", "hami-2"], kind="DaemonSet")
    monitor[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    train = workload("train", SHARE, ["hami-2"], kind="Job", restartPolicy="Never")
    train[0]["apiVersion"] = train[1]["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    shy = workload("shy", {GPU: "1"}, ["gpu-0"])
    shy[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    bare = workload("debug", {GPU: "1"}, ["gpu-0"])[1]
    del bare["metadata"]["ownerReferences"]
    objects = [
        *(hami_node(f"hami-{number}") for number in range(3)),
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *workload("web", {GPU: "1"}, ["gpu-0"]),
        *(*train, *monitor, *shy, bare),
    ]

    call(tmp_path, objects, "--wave-nodes", 1)

    html = (tmp_path / "plan" / "plan.html").read_text()
    groups: dict[str, str] = {}
    for title, items in re.findall(r"<h3>([^<]*)</h3><ul>(.*?)</ul>", html, re.DOTALL):
        groups[title] = groups.get(title, "") + items
    expected = {
        "Evicted, and created again elsewhere": "Deployment/team/web",
        "Would lose work, and do not end by themselves: a person ends them, or has them evicted": "Deployment/team/shy",
        "Waited for until they end": "Job/team/train",
        "Pods of DaemonSets: created again on their node once it has changed": "DaemonSet/team/monitor",
        "Deleted by a person first, since nothing creates them again": "Pod/team/debug-0",
    }
    assert expected.keys() <= groups.keys()
    for title, name in expected.items():
        assert [other for other in expected if f"{name}: 1 pod" in groups[other]] == [title]

    tiles = shown(html).partition("Timeline")[0]
    planned_waves = document(tmp_path)["waves"]
    numbers = {
        title: sum(map(int, re.findall(r": (\d+) pod", groups[title]))) for title in expected
    }
    counted = {
        "leaving pods": (sum(numbers.values()), "movedPods"),
        "evicted of them": (numbers["Evicted, and created again elsewhere"], "evictedPods"),
    }
    # The README counted all that leave, and the page those that are evicted, under much the same words.
    for words, (number, field) in counted.items():
        assert f"{words} {number} " in tiles or f"{number} {words}" in tiles
        assert number == sum(wave[field] for wave in planned_waves)
    readme = (tmp_path / "plan" / "README.md").read_text()
    for wave in planned_waves:
        line = next(line for line in readme.splitlines() if line.startswith(f"| {wave['wave']} |"))
        assert [str(wave[field]) for _, field in counted.values()] == line.split(" | ")[4:6]
    workloads = {
        entry["object"] for wave in document(tmp_path)["waves"] for entry in wave["workloads"]
    }
    assert f"workloads {len(workloads)} " in tiles or f"{len(workloads)} workloads" in tiles


def test_pods_without_devices_that_are_waited_for_are_named_and_not_counted(
    tmp_path: Path,
) -> None:
    """The README said that leaving pods are those with devices, and counted each pod of a Job on the nodes."""
    plain = workload("plain", {"cpu": "1"}, ["gpu-0", "gpu-0"], kind="Job", restartPolicy="Never")
    train = workload("train", {GPU: "1"}, ["gpu-0"], kind="Job", restartPolicy="Never")
    for owner, *pods in (plain, train):
        owner["apiVersion"] = "batch/v1"
        for pod in pods:
            pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    shy = workload("shy", {"cpu": "1"}, ["gpu-0"])
    shy[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), plugin_node("gpu-2")]
    web = workload("web", {GPU: "1"}, ["gpu-0"])

    call(tmp_path, [*nodes, *plain, *train, *shy, *web], "--wave-nodes", 1)

    waves = document(tmp_path)["waves"]
    (wave,) = (entry for entry in waves if ["gpu-0"] == [node["name"] for node in entry["nodes"]])
    assert (2, 1) == (wave["movedPods"], wave["evictedPods"])
    assert 4 == len([work for work in wave["work"] if work["waits"]])
    text = shown((tmp_path / "plan" / "plan.html").read_text())
    assert "Job/team/plain: 2 pods without devices" in text
    assert "Job/team/train: 1 pod " in text
    assert "Deployment/team/shy: 1 pod without devices" in text


def test_every_pod_that_a_drain_evicts_is_named(tmp_path: Path) -> None:
    """A pod without devices was a number, and its losses stood in the README alone."""
    head = workload("head", {"cpu": "1"}, ["gpu-0"], kind="RayCluster", namespace="ray")
    head[1]["metadata"]["ownerReferences"][0]["apiVersion"] = "ray.io/v1"
    for pod in head[1:]:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "ray.io/v1"
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    call(tmp_path, [*nodes, *head[1:], *workload("web", {GPU: "1"}, ["gpu-0"])], "--wave-nodes", 1)

    text = shown((tmp_path / "plan" / "plan.html").read_text())
    assert "Evicted, without devices ray/head-0" in text
    assert "Pod/ray/head-0 of RayCluster/ray/head on gpu-0: its tasks, actors and objects" in text
    assert any(
        "1 pod without devices, too (ray/head-0)" in note
        for wave in document(tmp_path)["waves"]
        for note in wave["notes"]
    )


def test_a_job_without_later_pods_never_gets_claims(tmp_path: Path) -> None:
    """All of its completions run, and the page said that it gets claims later."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), hami_node("hami-2")]
    ends = workload("all", SHARE, ["hami-0"], kind="Job", restartPolicy="Never")
    more = workload("more", SHARE, ["hami-0"], kind="Job", restartPolicy="Never")
    for job, pod in (ends, more):
        job["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    ends[0]["spec"]["completions"] = 1
    more[0]["spec"]["completions"] = 2

    call(tmp_path, [*nodes, namespace("team"), *ends, *more])

    text = shown((tmp_path / "plan" / "plan.html").read_text())
    later = text.partition("Gets claims later")[2].partition("Ends as it is, without claims")
    assert "Job/team/more" in later[0]
    assert "Job/team/all" not in later[0]
    assert "Job/team/all" in later[2].partition("Wave ")[0]


def test_the_page_and_the_readme_name_the_cluster_and_the_time(tmp_path: Path) -> None:
    origin = {
        "apiVersion": "cli.drawbridge.internal/v1",
        "kind": "Snapshot",
        "metadata": {"name": "cluster"},
        "takenAt": "2026-11-26T08:00:00Z",
        "context": "atlas-prod",
        "kubernetesVersion": "v1.37.1",
        "server": "https://10.20.0.10:6443",
        "unreadable": [],
    }
    system = namespace("kube-system")
    system["metadata"]["uid"] = "6b1c1f7e"

    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    state = workload("state", SHARE, ["hami-0"], kind="StatefulSet")

    call(tmp_path, [origin, system, *nodes, namespace("team"), *state])

    text = shown((tmp_path / "plan" / "plan.html").read_text())
    head = text.partition("Timeline")[0]
    assert "context atlas-prod, https://10.20.0.10:6443, state of 2026-11-26T08:00:00Z" in head
    assert "volumes, but for PersistentVolumes of one node" in text
    assert "affinity between pods, but for required anti-affinity of pods that get claims" in text
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert "from the state of the cluster at 2026-11-26T08:00:00Z." in readme
    assert "https://10.20.0.10:6443 (context atlas-prod)." in readme
    assert "its restarts end the only pod of StatefulSet/team/state" in readme


def test_all_that_claims_lose_is_on_the_page_and_in_the_readme(tmp_path: Path) -> None:
    """The plan told the losses of restarts and evictions, and not those of the claims."""
    web = workload("web", {**SHARE, "nvidia.com/gpucores": "100"}, ["hami-0"])
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    call(tmp_path, [*nodes, *web])

    (entry,) = (entry for wave in document(tmp_path)["waves"] for entry in wave["workloads"])
    (loss,) = entry["claimLosses"]
    assert loss.endswith(" [notExclusive]")
    shown_page = shown((tmp_path / "plan" / "plan.html").read_text())
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert f"Deployment/team/web: 1 pod; {loss}" in shown_page
    assert f"on: Deployment/team/web: {loss}".replace("[", "\\[") in readme
    assert "request, all of them:" in readme


def test_risks_and_what_is_held_are_reported(tmp_path: Path) -> None:
    full = [plugin_node("gpu-0"), *workload("web", {GPU: "4"}, ["gpu-0"])]

    result = call(tmp_path, full, "--page", tmp_path / "page.html")

    text = shown((tmp_path / "page.html").read_text())
    assert 1 == result.exit_code
    assert "Node/gpu-0" in text
    assert "1 pod has no devices: 1 of Deployment/team/web" in text
    assert "There is no wave." in text


def test_the_page_says_what_is_restarted_and_what_goes_on(tmp_path: Path) -> None:
    """Jobs and DaemonSets stood among the restarted workloads, and no script restarts them."""
    monitor = workload("monitor", SHARE, ["hami-0", "hami-1"], kind="DaemonSet")
    monitor[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    train = workload("train", SHARE, ["hami-2"], kind="Job", restartPolicy="Never")
    train[0]["apiVersion"] = train[1]["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    objects = [
        *(hami_node(f"hami-{number}") for number in range(3)),
        *workload("web", SHARE, ["hami-2"]),
        *train,
        *monitor,
    ]

    call(tmp_path, objects, "--wave-nodes", 1)

    text = shown((tmp_path / "plan" / "plan.html").read_text())
    restarted, later = "", ""
    for wave in text.split("Gets claims, and is restarted")[1:]:
        before, _, after = wave.partition("Gets claims later")
        restarted += before
        later += after.partition("Wave ")[0]
    assert "Deployment/team/web: 1 pod" in restarted
    assert "Job/team/train: " in later
    assert "DaemonSet/team/monitor: 2 pods" in later
    assert "Job/team/train: " not in restarted
    assert "DaemonSet/team/monitor: 2 pods" not in restarted
