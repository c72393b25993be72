"""`drawbridge plan` and `verify --before`: servers of JupyterHub's users, stopped by a person or the hub, and hubs without any."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, SHARE, budget, hami_node, plugin_node, workload
from testing.plan import planned, script

OWNER: Final = {"apiVersion": "v1", "kind": "DaskCluster", "name": "a", "controller": True}
STOP: Final = "if it may end: kubectl delete pod lab-0 --namespace=team, and its user starts it again in the hub"


def server(restart: str = "OnFailure", **metadata: Any) -> list[dict[str, Any]]:
    """A pod without a controller on the first of two nodes."""
    (_, pod) = workload("lab", {GPU: "1"}, ["gpu-0"], restartPolicy=restart)
    del pod["metadata"]["ownerReferences"]
    pod["metadata"] |= metadata
    return [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), pod]


def works(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [work for wave in plan["waves"] for work in wave["work"]]


@pytest.mark.parametrize(
    ("metadata", "is_server"),
    [
        ({"labels": {"component": "singleuser-server"}}, True),
        ({"labels": {"app.kubernetes.io/component": "singleuser-server"}}, True),
        ({"annotations": {"hub.jupyter.org/username": "a"}}, True),
        ({"labels": {"component": "user-placeholder"}}, False),
        ({"annotations": {"hub.jupyter.org/username": "a"}, "ownerReferences": [OWNER]}, False),
    ],
    ids=["label", "recommended label", "annotation", "another component", "with a controller"],
)
def test_the_users_of_servers_are_to_be_told_and_nothing_waits_for_them(
    tmp_path: Path, metadata: Mapping[str, Any], is_server: bool
) -> None:
    """A wave waited for their end with a cordoned node, and an eviction ended a session without a word to its user."""
    objects = server(**metadata)

    plan = planned(tmp_path, objects)

    (work,) = works(plan)
    assert (True, is_server, is_server) == (work["waits"], work["neverEnds"], work["hubServer"])
    notes = [note for note in plan["waves"][-1]["notes"] if "tell these users first" in note]
    assert [is_server] == [bool(notes)]
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert is_server is (STOP in readme)
    assert is_server is not ("it runs to its end (restartPolicy OnFailure)" in readme)


def test_a_server_is_asked_about_and_deleted_only_where_a_person_says_so(tmp_path: Path) -> None:
    objects = server(labels={"component": "singleuser-server"})
    plan = planned(tmp_path, objects)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))

    result = drawbridge("verify", "--snapshot", file, "--node=gpu-0", "--before", "-o", "json")

    (check,) = json.loads(result.stdout)["checks"]
    assert ("failed", True) == (check["state"], STOP in check["message"])
    switch = script(tmp_path, "switch", len(plan["waves"]))
    assert "# Asks about pod team/lab-0 of nothing that creates it again" in switch
    assert "  delete_bare_pods gpu-0\n" in switch


@pytest.mark.parametrize("restart", ["OnFailure", "Always"])
def test_a_server_that_asks_not_to_be_evicted_is_one_of_a_user_still(
    tmp_path: Path, restart: str
) -> None:
    notes = {
        "hub.jupyter.org/username": "a",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }

    plan = planned(tmp_path, server(restart, annotations=notes))

    own = str(plan["waves"][-1]["notes"])
    assert "tell these users first" in own
    assert "asks not to be evicted" not in own


@pytest.mark.parametrize("is_server", [True, False])
def test_a_server_is_not_to_be_applied_by_hand(tmp_path: Path, *, is_server: bool) -> None:
    """One note said to apply its manifest after the wave, another one that its user starts it again in the hub."""
    labels = {"component": "singleuser-server"} if is_server else {}
    objects = server("Always", labels=labels)
    plan = planned(tmp_path, objects)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    number = len(plan["waves"])

    folder = tmp_path / "plan" / f"wave-{number}"
    result = drawbridge("verify", "--before", "--wave", folder, "--snapshot", file, "-o", "json")

    assert is_server is not ("apply their manifests after the wave" in str(plan["waves"]))
    stopping = [
        entry
        for entry in json.loads(result.stdout)["checks"]
        if "kubectl drain stops at such pods" in entry["message"]
    ]
    assert is_server is not bool(stopping)
    if stopping:
        # The note is the way on, and has to be read before a check ends the script.
        preflight = (folder / "preflight.sh").read_text()
        assert preflight.index("delete them first") < preflight.index("drawbridge verify")


@pytest.mark.parametrize("is_server", [True, False])
def test_a_server_that_came_since_the_plan_is_asked_about_and_stops_no_drain(
    tmp_path: Path, *, is_server: bool
) -> None:
    """One check said that `switch.sh` asks about it, and another one that the drain stops at it."""
    *nodes, pod = server("Always", labels={"component": "singleuser-server"} if is_server else {})
    planned(tmp_path, nodes)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*nodes, pod]))

    folder = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--before", "--wave", folder, "--snapshot", file, "-o", "json")

    own = {
        (entry["object"], entry["state"])
        for entry in json.loads(result.stdout)["checks"]
        if "lab-0" in entry["object"] + entry["message"]
    }
    assert own == {("Pod/team/lab-0", "note") if is_server else ("Node//gpu-0", "failed")}
    assert "  delete_bare_pods gpu-0\n" in script(tmp_path, "switch")


@pytest.mark.parametrize(
    ("labels", "way"),
    [
        (
            {"component": "singleuser-server"},
            "have its user stop Pod/team/lab-0, and start it again in the hub",
        ),
        ({}, "delete Pod/team/lab-0, and apply its manifest again"),
    ],
)
def test_a_server_that_gets_claims_is_started_again_by_its_user(
    tmp_path: Path, labels: dict[str, str], way: str
) -> None:
    objects = server("Always", labels=labels)[2:]
    objects[-1]["spec"]["nodeName"] = "hami-0"
    objects[-1]["spec"]["containers"][0]["resources"] = {"limits": SHARE}

    plan = planned(tmp_path, [hami_node("hami-0"), hami_node("hami-1"), *objects])

    (number,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    for name in ("switch", "rollback"):
        assert f"echo 'by hand: {way}'" in script(tmp_path, name, number)


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({"component": "singleuser-server"}, "singleuser.extraNodeAffinity"),
        ({}, "first give their manifests a node affinity"),
    ],
)
def test_a_pod_without_a_controller_has_no_template_to_change(
    tmp_path: Path, labels: dict[str, str], place: str
) -> None:
    hamis = [hami_node(f"hami-{number}") for number in range(2)]
    shares = workload("web", SHARE, ["hami-0", "hami-1"] * 4, namespace="shares")
    held = [*hamis, *shares, budget("shares", maxUnavailable=0)]

    plan = planned(tmp_path, [*server("Always", labels=labels), *held])

    notes = [
        note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "of Pod/team/lab-0 may get a node of HAMi" in note
    ]
    assert notes
    assert all(place in note and "templates" not in note for note in notes), notes


# --- hubs without servers -----------------------------------------------------------------------------

OPTED_IN: Final = "no server of Deployment/team/hub (JupyterHub) with devices runs, so this plan knows no node for them: "
LEFT_OUT: Final = "no server of Deployment/team/hub (JupyterHub) with devices runs, so no wave opts in namespace team: "


def hub(image: str = "quay.io/jupyterhub/k8s-hub:4.3.0", **labels: str) -> dict[str, Any]:
    containers = [{"name": "hub", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return api_object("Deployment", "hub", "team", labels=labels, spec={"template": template})


def hub_notes(plan: Mapping[str, Any]) -> list[tuple[int, str]]:
    return [
        (wave["wave"], note)
        for wave in plan["waves"]
        for note in wave["notes"]
        if "JupyterHub)" in note
    ]


def shared(*more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return three nodes of HAMi, and a workload with shares beside a hub."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    return [*nodes, namespace("team"), hub(component="hub", app="jupyterhub"), *more]


def test_a_hub_without_servers_is_named_where_its_namespace_is_opted_in(tmp_path: Path) -> None:
    """The namespace was opted in with its first node, and nothing said that the next user's pod may find none."""
    plan = planned(tmp_path, shared(*workload("web", SHARE, ["hami-0"])), "--wave-nodes", 1)

    (own,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert own < len(plan["waves"])
    ((number, note),) = hub_notes(plan)
    assert own == number
    assert note.startswith(f"{OPTED_IN}from this wave on new ones get claims, and wait where no")
    assert 'drawbridge.internal/translate: "false", by singleuser.extraLabels' in note
    assert OPTED_IN in script(tmp_path, "preflight", number)


def test_a_hub_without_servers_is_named_where_no_wave_opts_its_namespace_in(tmp_path: Path) -> None:
    plan = planned(tmp_path, shared(), "--wave-nodes", 1)

    ((number, note),) = hub_notes(plan)
    assert len(plan["waves"]) == number
    assert note.startswith(LEFT_OUT)
    assert "kubectl label namespace team drawbridge.internal/translate=true" in note


@pytest.mark.parametrize(
    ("labels", "image"),
    [
        ({"component": "proxy", "app": "jupyterhub"}, "a"),
        ({"component": "hub", "app": "other"}, "a"),
        ({}, "quay.io/jupyterhub/k8s-hub:4.3.0"),
    ],
    ids=["a proxy", "another hub", "an image alone"],
)
def test_other_workloads_are_no_hub(tmp_path: Path, labels: dict[str, str], image: str) -> None:
    objects = [*shared()[:4], hub(image, **labels)]

    assert [] == hub_notes(planned(tmp_path, objects))


def test_a_hub_with_a_server_and_one_of_a_labelled_namespace_have_no_note(tmp_path: Path) -> None:
    (_, pod) = workload("lab", SHARE, ["hami-0"], restartPolicy="Always")
    del pod["metadata"]["ownerReferences"]
    pod["metadata"]["labels"] = {"component": "singleuser-server"}
    out = namespace("team", {"drawbridge.internal/translate": "false"})

    assert [] == hub_notes(planned(tmp_path, shared(pod), "--wave-nodes", 1))
    assert [] == hub_notes(planned(tmp_path, [*shared()[:3], out, shared()[4]]))


def test_a_hub_whose_namespace_comes_with_the_last_nodes_has_no_note(tmp_path: Path) -> None:
    later = workload("web", SHARE, [])

    plan = planned(tmp_path, shared(*later), "--wave-nodes", 3, "--spare-nodes", 0)

    assert ["team"] == plan["waves"][-1]["namespaces"]
    assert [] == hub_notes(plan)
