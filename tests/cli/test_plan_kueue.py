"""`drawbridge plan`: notes on Kueue are about its release in the cluster, or say that they are about another one."""

from pathlib import Path
from typing import Any

import pytest

from testing.documents import api_object, namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned


def kueue(release: str) -> list[dict[str, Any]]:
    """The Deployment of Kueue with the image of a release; none for an empty one."""
    containers = [{"name": "manager", "image": f"registry.k8s.io/kueue/kueue:v{release}"}]
    spec = {"template": {"spec": {"containers": containers}}}
    deployment = api_object(
        "Deployment", "kueue-controller-manager", "kueue-system", api_version="apps/v1", spec=spec
    )
    return [deployment] if release else []


def queued(tmp_path: Path, nodes: list[dict[str, Any]], web: list[dict[str, Any]]) -> list[str]:
    """Return the notes on Kueue of a plan for a workload in its queue."""
    web[0]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    plan = planned(tmp_path, [*nodes, namespace("team"), *web])
    return [note for wave in plan["waves"] for note in wave["notes"] if "Kueue" in note]


@pytest.mark.parametrize(
    ("release", "is_told"),
    [("0.16.0", False), ("0.17.3", False), ("0.19.0", True), ("0.20.1", True), ("", True)],
)
def test_a_class_with_sources_is_of_releases_that_know_them(
    tmp_path: Path, release: str, *, is_told: bool
) -> None:
    """A cluster with 0.16 was told of 0.19, and deviceClassMappings have no sources before that."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), *kueue(release)]

    notes = queued(tmp_path, nodes, workload("web", {GPU: "1"}, ["gpu-0"]))

    assert is_told is bool(notes)
    assert is_told is any("(0.19 and later) never admits pods" in note for note in notes)


@pytest.mark.parametrize(
    ("kind", "release", "statement"),
    [
        ("Deployment", "0.16.0", "(0.14 to 0.17, Pod, Deployment, "),
        ("Deployment", "0.19.0", "(0.18 and later, Pod, Deployment, "),
        ("Deployment", "0.14.2", "(0.14 to 0.17, Pod, Deployment, "),
        ("Deployment", "0.13.4", "(0.13 and earlier, Pod, Deployment, "),
        ("Job", "0.17.0", "(0.9 and later, Job, "),
        ("Job", "0.16.0", "(0.9 and later, Job, "),
        ("Job", "0.9.1", "(0.9 and later, Job, "),
    ],
)
def test_a_statement_is_about_the_release_of_the_cluster(
    tmp_path: Path, kind: str, release: str, statement: str
) -> None:
    web = workload("web", SHARE, ["gpu-0"], kind=kind)
    nodes = [hami_node("gpu-0"), hami_node("gpu-1"), *kueue(release)]

    notes = queued(tmp_path, nodes, as_job(web) if kind == "Job" else web)

    assert any(statement in note for note in notes)
    assert not any("not looked up" in note for note in notes)
    if (kind, release) == ("Deployment", "0.16.0"):
        (note,) = notes
        assert (
            "counts no claim of it unless its feature gate DynamicResourceAllocation is on" in note
        )
        assert ": turn that on before this wave" in note


def test_a_statement_about_other_releases_says_so(tmp_path: Path) -> None:
    web = as_job(workload("web", SHARE, ["gpu-0"], kind="Job"))
    nodes = [hami_node("gpu-0"), hami_node("gpu-1"), *kueue("0.8.1")]

    (note,) = queued(tmp_path, nodes, web)

    assert note.startswith("Kueue (0.9 and later, Job, ")
    assert note.endswith("; Kueue is 0.8 here, for which that was not looked up")


def test_a_release_without_a_gate_is_not_to_turn_it_on(tmp_path: Path) -> None:
    """A cluster with 0.13 was told to turn on a feature gate that came with 0.14."""
    nodes = [hami_node("gpu-0"), hami_node("gpu-1"), *kueue("0.13.4")]

    (note,) = queued(tmp_path, nodes, workload("web", SHARE, ["gpu-0"]))

    assert "builds its Workload from the translated pod, and counts no claim of it [" in note
    assert note.endswith(": count on no limit of Kueue for their devices, or upgrade it first")
    assert "DynamicResourceAllocation" not in note


def as_job(web: list[dict[str, Any]]) -> list[dict[str, Any]]:
    web[0]["apiVersion"] = "batch/v1"
    for pod in web[1:]:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return web
