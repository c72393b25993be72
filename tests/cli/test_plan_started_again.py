"""`drawbridge plan`: stopped workloads that can be started again before the last wave."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace, node
from testing.migration import GPU, plugin_node, running_job, workload
from testing.plan import Objects, planned

LARGE: Final = {"nvidia.com/mig-2g.10gb": "1"}
CAN_START: Final = " can be started after this wave"

TRAINING: Final = (
    *running_job("train", {GPU: "4"}, ["gpu-0"], namespace="hold"),
    plugin_node("gpu-0"),
)
"""A node whose wave comes last."""


def mig_node(name: str) -> dict[str, Any]:
    """A node with three MIG devices."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig-2g.10gb.count": "3",
        "nvidia.com/mig-2g.10gb.memory": "9856",
    }
    return node(name, {"nvidia.com/mig-2g.10gb": "3"}, labels, {})


def stopped(kind: str) -> Objects:
    """A workload of the namespace `team` without pods."""
    if kind == "Notebook":
        (stateful_set,) = workload("later", LARGE, [], kind="StatefulSet")
        reference = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "later"}
        stateful_set["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        return [
            api_object("Notebook", "later", "team", api_version="kubeflow.org/v1"),
            stateful_set,
        ]
    if kind == "Job":
        (job,) = running_job("later", LARGE, [])
        job["spec"]["suspend"] = True
        return [job]
    return workload("later", LARGE, [], kind=kind)


def started(tmp_path: Path, *objects: Mapping[str, Any]) -> dict[int, str]:
    """Return the numbers of the waves with a note on workloads that can be started after them, with these notes."""
    names = [namespace("team"), namespace("hold")]
    plan = planned(tmp_path, [*names, mig_node("big"), *objects], "--wave-nodes", 1)
    return {
        wave["wave"]: note for wave in plan["waves"] for note in wave["notes"] if CAN_START in note
    }


@pytest.mark.parametrize(
    ("kind", "owner"),
    [("Notebook", "StatefulSet"), ("Job", "Job"), ("Deployment", "Deployment")],
)
def test_a_stopped_workload_can_be_started_before_the_last_wave(
    tmp_path: Path, kind: str, owner: str
) -> None:
    """Its users waited for the last wave, with a training of weeks before it."""
    notes = started(tmp_path, *TRAINING, *stopped(kind))

    assert {
        1: f"{owner}/team/later can be started after this wave: from then on there are devices for 3 such pods"
    } == notes


def test_it_can_be_started_once_no_later_wave_needs_its_devices(tmp_path: Path) -> None:
    """The pods of the second wave's node have no others while it is drained."""
    web = workload("web", LARGE, ["second"] * 3, namespace="hold")

    notes = started(tmp_path, *TRAINING, *stopped("Notebook"), mig_node("second"), *web)

    assert [2] == list(notes)


def test_a_note_is_left_out_where_only_the_last_wave_brings_devices(tmp_path: Path) -> None:
    assert {} == started(tmp_path, *stopped("Notebook"))
