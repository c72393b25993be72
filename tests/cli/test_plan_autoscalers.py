"""`drawbridge plan` with HorizontalPodAutoscalers: the pods that they may add while a wave drains its nodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from answers.model.redaction import redact
from testing.documents import api_object, namespace
from testing.migration import plugin_node, workload
from testing.plan import Objects, planned

GPU: Final = {"nvidia.com/gpu": "1"}
SCALER: Final = "HorizontalPodAutoscaler/team/scaler"


def scaler(most: object, name: str = "web", kind: str = "Deployment") -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most}
    return api_object("HorizontalPodAutoscaler", "scaler", "team", spec=spec)


def cluster(*more: Mapping[str, Any]) -> Objects:
    """Three nodes with eight GPUs each, and a Deployment of two pods with one."""
    nodes = [plugin_node(f"gpu-{number}", 8) for number in range(3)]
    return [*nodes, namespace("team"), *workload("web", GPU, ["gpu-0", "gpu-0"]), *more]


def scaling_notes(tmp_path: Path, objects: Objects) -> dict[int, str]:
    """Return the waves with a note on an autoscaler, with this."""
    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
    plan = planned(tmp_path, objects, *options)
    return {
        wave["wave"]: note
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("HorizontalPodAutoscaler/")
    }


def test_a_note_on_an_autoscaler_says_that_argo_cd_takes_its_change_back(tmp_path: Path) -> None:
    """Notes on replicas said so, and this one named maxReplicas alone."""
    own = scaler(17)
    own["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "a:b"}

    notes = scaling_notes(tmp_path, cluster(own))

    assert notes
    for note in notes.values():
        assert note.endswith(
            f"; Argo CD manages {SCALER}, and takes back what kubectl changes: change maxReplicas in its repository"
        )


@pytest.mark.parametrize(
    ("most", "devices"),
    [
        pytest.param(16, None, id="two nodes have devices for all of them"),
        pytest.param(17, "14 of them, 15 today; set maxReplicas to 16", id="one waits"),
        pytest.param(40, "14 of them, 22 today; set maxReplicas to 16", id="many wait, some today"),
        pytest.param(2, None, id="it is at its maximum"),
        pytest.param("many", None, id="no number"),
    ],
)
def test_the_pods_that_an_autoscaler_may_add_in_a_wave(
    tmp_path: Path, most: object, devices: str | None
) -> None:
    """The waves counted with the pods of today, and new ones took the devices of evicted ones, or waited."""
    notes = scaling_notes(tmp_path, cluster(scaler(most)))

    assert (devices is not None) == bool(notes)
    for note in notes.values():
        assert note.startswith(
            f"{SCALER} may add {int(str(most)) - 2} pods to Deployment/team/web "
        )
        assert (
            f"(maxReplicas {most}): while this wave drains its nodes there are devices for" in note
        )
        assert f"devices for {devices} until the wave is done" in note


@pytest.mark.parametrize("rule", ["podAntiAffinity", "topologySpreadConstraints", ""])
def test_the_note_says_that_rules_between_native_pods_are_not_counted(
    tmp_path: Path, rule: str
) -> None:
    """Pods waited at the maximum that it named, since each node takes one of them."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spread = [{**apart, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    rules: dict[str, dict[str, Any]] = {
        "podAntiAffinity": {"affinity": anti},
        "topologySpreadConstraints": {rule: spread},
    }
    web = workload("web", GPU, ["gpu-0", "gpu-0"], **rules.get(rule, {}))
    nodes = [plugin_node(f"gpu-{number}", 8) for number in range(3)]

    notes = scaling_notes(tmp_path, [*nodes, namespace("team"), *web, scaler(17)])

    assert notes
    for note in notes.values():
        assert bool(rule) is ("keep them apart are not counted, so fewer of them may" in note)


def test_the_note_says_that_no_wave_brings_the_devices_back(tmp_path: Path) -> None:
    """It was "until the wave is done", and pods waited for ever once the maximum was set back."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")
    other = namespace("other")
    other["metadata"]["labels"] = {"drawbridge.internal/translate": "false"}
    staying = [other, *workload("stay", GPU, ["gpu-2"], namespace="other")]

    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0, "--settings", settings)
    plan = planned(tmp_path, cluster(scaler(24), *staying), *options)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if note.startswith(SCALER)]
    assert notes
    assert all(
        "until nodes of another plan have more, or further ones wait" in note for note in notes
    )


def test_the_bounds_that_a_controller_sets_are_changed_in_its_object(tmp_path: Path) -> None:
    """A person was to set them in the autoscaler, and its controller took that back."""
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web"}
    own = scaler(17)
    own["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    notes = scaling_notes(tmp_path, cluster(own))

    assert notes
    for note in notes.values():
        place = "in ScaledObject/team/web, which sets it, until the wave is done"
        assert f"set maxReplicas to 16 {place}" in note


@pytest.mark.parametrize("is_of_keda", [True, False], ids=["of KEDA", "of nobody"])
def test_keda_scales_a_workload_without_pods(tmp_path: Path, *, is_of_keda: bool) -> None:
    """It starts the first pod itself, and no note had those that come in a wave."""
    (idle,) = workload("idle", GPU, [])
    idle["spec"]["replicas"] = 0
    own = scaler(24, "idle")
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "idle"}
    if is_of_keda:
        own["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    notes = scaling_notes(tmp_path, [*cluster(own), idle])

    assert is_of_keda is bool(notes)
    for note in notes.values():
        assert note.startswith(f"{SCALER} may add 24 pods to Deployment/team/idle (maxReplicas 24)")
        assert (
            "devices for 14 of them, 22 today; set maxReplicas to 14 in ScaledObject/team" in note
        )


def test_two_autoscalers_are_counted_by_themselves(tmp_path: Path) -> None:
    """Each note had the same free devices, and nothing said so."""
    other = scaler(17, "api")
    other["metadata"]["name"] = "other"

    options = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
    objects = cluster(scaler(17), other, *workload("api", GPU, ["gpu-1", "gpu-1"]))
    notes = [
        note for wave in planned(tmp_path, objects, *options)["waves"] for note in wave["notes"]
    ]

    same = "each autoscaler is counted by itself, and may be counted with the same devices as"
    for own, another in (("scaler", "other"), ("other", "scaler")):
        (note, *_) = [it for it in notes if it.startswith(f"HorizontalPodAutoscaler/team/{own} ")]
        assert note.endswith(f"{same} HorizontalPodAutoscaler/team/{another}")


def test_it_may_scale_an_object_below_the_workload(tmp_path: Path) -> None:
    objects = cluster(scaler(17, "web-1", "ReplicaSet"))
    (replica_set,) = workload("web-1", GPU, [], kind="ReplicaSet")
    replica_set["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    ]

    assert scaling_notes(tmp_path, [*objects, replica_set])


@pytest.mark.parametrize("spec", [None, {}, [], {"scaleTargetRef": 1, "maxReplicas": 9}], ids=str)
def test_one_that_cannot_be_read_says_nothing(tmp_path: Path, spec: object) -> None:
    assert {} == scaling_notes(tmp_path, cluster({**scaler(9), "spec": spec}))


def test_one_of_another_workload_says_nothing(tmp_path: Path) -> None:
    assert {} == scaling_notes(tmp_path, cluster(scaler(17, "other")))


def test_a_snapshot_has_what_is_read_of_it_alone() -> None:
    own = scaler(9)
    metrics = {"metrics": [{"type": "External"}], "behavior": {"scaleUp": {}}}

    kept = redact({**own, "spec": {**own["spec"], **metrics}, "status": {"currentReplicas": 2}})

    assert own == kept
