"""KubeSchedulerConfigurations as profiles of scores, and `--scheduler-config`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from allocator.nodes.scoring import (
    DEFAULT_PROFILE,
    FitStrategy,
    ScoredResource,
    ScoringProfile,
    ShapePoint,
)
from answers.model.scheduler_configuration import scoring_profiles
from kube.errors import ConfigError
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects
from testing.builders import container, pod
from testing.command import ROOT, drawbridge
from testing.documents import api_object

FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"


def configuration(*profiles: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **({"profiles": list(profiles)} if profiles else {}),
        **fields,
    }


def fit(**strategy: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": FIT, "args": {"scoringStrategy": strategy}}]}


def plugins(**sets: Any) -> dict[str, Any]:
    return {"plugins": sets}


def read(document: Mapping[str, Any]) -> Mapping[str, ScoringProfile]:
    return scoring_profiles(read_objects(json.dumps(document).encode(), "scheduler.yaml"))


@pytest.mark.parametrize(
    ("want", "profile"),
    [
        (DEFAULT_PROFILE, {}),
        (
            ScoringProfile(
                strategy=FitStrategy.MOST_ALLOCATED,
                resources=(
                    ScoredResource(name="cpu", weight=3),
                    ScoredResource(name="nvidia.com/gpu", weight=1),
                ),
            ),
            fit(
                type="MostAllocated",
                resources=[{"name": "cpu", "weight": 3}, {"name": "nvidia.com/gpu"}],
            ),
        ),
        (
            ScoringProfile(
                strategy=FitStrategy.REQUESTED_TO_CAPACITY_RATIO,
                shape=(ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10)),
            ),
            fit(
                type="RequestedToCapacityRatio",
                requestedToCapacityRatio={
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
                },
            ),
        ),
        (
            ScoringProfile(fit_weight=5, balanced_weight=0),
            plugins(
                score={"enabled": [{"name": FIT, "weight": 5}], "disabled": [{"name": BALANCED}]}
            ),
        ),
        (
            ScoringProfile(fit_weight=1, balanced_weight=0),
            plugins(score={"disabled": [{"name": "*"}], "enabled": [{"name": FIT}]}),
        ),
        (
            ScoringProfile(fit_weight=0, balanced_weight=7, percentage_of_nodes=20),
            {
                **plugins(
                    multiPoint={
                        "enabled": [{"name": BALANCED, "weight": 7}],
                        "disabled": [{"name": FIT}],
                    }
                ),
                "percentageOfNodesToScore": 20,
            },
        ),
        (
            ScoringProfile(strategy_weight=100),
            plugins(multiPoint={"enabled": [{"name": "Drawbridge", "weight": 100}]}),
        ),
    ],
)
def test_a_profile(want: ScoringProfile, profile: dict[str, Any]) -> None:
    named = {"schedulerName": "gpu-scheduler", **profile}

    assert {"gpu-scheduler": want} == read(configuration(named))


def test_a_configuration_without_profiles_is_the_default_schedulers() -> None:
    want = {"default-scheduler": ScoringProfile(percentage_of_nodes=30)}

    assert want == read(configuration(percentageOfNodesToScore=30))


def test_the_bridges_own_configuration_is_read() -> None:
    document = read_objects(
        (ROOT / "manifests" / "bridge" / "configuration.yaml").read_bytes(), "configuration.yaml"
    )[0].document

    profiles = scoring_profiles(
        read_objects(document["data"]["scheduler.yaml"].encode(), "scheduler.yaml")
    )

    assert profiles == {"drawbridge-scheduler": ScoringProfile(strategy_weight=100)}


@pytest.mark.parametrize(
    ("want", "document"),
    [
        (
            "one object of kind KubeSchedulerConfiguration was expected, 0 found",
            {"apiVersion": "v1", "kind": "Pod"},
        ),
        ("Invalid enum value 'Mostly'", configuration(fit(type="Mostly"))),
        (
            "RequestedToCapacityRatio has no shape; write requestedToCapacityRatio.shape",
            configuration(fit(type="RequestedToCapacityRatio")),
        ),
        (
            "utilization 10 of a shape; write numbers from 0 to 100 that increase",
            configuration(
                fit(
                    type="RequestedToCapacityRatio",
                    requestedToCapacityRatio={
                        "shape": [{"utilization": 10, "score": 0}, {"utilization": 10, "score": 1}]
                    },
                )
            ),
        ),
        (
            "the weight of resource 'cpu' is 101; write 1 to 100",
            configuration(fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 101}])),
        ),
        (
            "percentageOfNodesToScore: 101 is not a number from 0 to 100",
            configuration(percentageOfNodesToScore=101),
        ),
        ("$.profiles", {**configuration(), "profiles": "all"}),
    ],
)
def test_a_wrong_configuration(want: str, document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        read(document)

    assert want in str(raised.value)


def node(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    return api_object(
        "Node",
        name,
        spec=spec,
        status={"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}},
    )


def asking(cpu: str, **spec: Any) -> dict[str, Any]:
    return pod(container(amounts={"cpu": cpu, "memory": "1Gi"}), **spec)


def simulate(*objects: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
    return drawbridge("simulate", "-f", "-", *options, stdin=dump_yaml(list(objects)))


def test_simulate_scores_nodes_as_the_configuration_says(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    cluster = (node("a", "8"), node("b", "4"), node("c", "16"))

    def placed(document: dict[str, Any]) -> str:
        file.write_text(json.dumps(document))
        result = simulate(
            *cluster, asking("2"), options=("--scheduler-config", str(file), "-o", "json")
        )
        (entry,) = json.loads(result.stdout)["pods"]
        return str(entry["node"])

    most = fit(type="MostAllocated", resources=[{"name": "cpu"}])
    assert (placed(configuration()), placed(configuration(most))) == ("c", "b")


def test_a_wrong_configuration_is_a_wrong_call(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("kind: [")

    result = simulate(node("a", "8"), options=("--scheduler-config", str(file)))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--scheduler-config" in result.stderr


def test_simulate_prints_the_schedulers_event() -> None:
    result = simulate(node("a", "1"), node("b", "8", unschedulable=True), asking("2"))

    event = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    assert f"event {event}" in " ".join(result.stdout.split())
    assert result.exit_code == 1
    document = json.loads(simulate(node("a", "1"), asking("2"), options=("-o", "json")).stdout)
    assert document["failedScheduling"] == [
        {"object": "Pod default/train", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    ]


@pytest.mark.parametrize(
    ("want", "spec"),
    [
        ("volumes", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
        ("affinity between pods", {"affinity": {"podAntiAffinity": {"x": []}}}),
        ("topology spread", {"topologySpreadConstraints": [{"maxSkew": 1}]}),
        ("scheduling gates", {"schedulingGates": [{"name": "a.io/b"}]}),
        ("", {"volumes": [{"name": "v", "emptyDir": {}}]}),
    ],
)
def test_what_pods_use_and_nothing_models_comes_first(want: str, spec: dict[str, Any]) -> None:
    result = simulate(node("a", "8"), asking("1", **spec))

    first = result.stdout.splitlines()[0]
    says = f"Not modelled, but used, so that a scheduler may decide otherwise: {want} (Pod/default/train)."
    assert (first == says) is bool(want), first
