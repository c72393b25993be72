"""`drawbridge plan`: advice that a repository or an autoscaler takes back says so."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import GPU, hami_node, plugin_node, running_job, workload
from testing.plan import planned

TRACKING: Final = "argocd.argoproj.io/tracking-id"
FLUX: Final = "helm.toolkit.fluxcd.io/name"
FIX: Final = "scale down, add a node, or wait for Jobs to end; then plan again from a new snapshot"
SET_AGAIN: Final = "; HorizontalPodAutoscaler/team/scaler sets replicas again: lower maxReplicas there, and minReplicas if it is more"
WHOLE_SHARE: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}
OWNER: Final = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "name": "web",
    "controller": True,
}
SET_BY_OWNER: Final = SET_AGAIN.replace("there", "in ScaledObject/team/web, which sets it")
MANAGES: Final = (
    "; {} manages {}, and takes back what kubectl changes: change replicas in its repository"
)


def scaler(**metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}
    return api_object("HorizontalPodAutoscaler", "scaler", "team", spec=spec, **metadata)


@pytest.mark.parametrize(
    ("metadata", "others", "expected"),
    [
        ({}, [], FIX),
        ({"annotations": {"meta.helm.sh/release-name": "web"}}, [], FIX),
        (
            {"annotations": {TRACKING: "a:b"}},
            [],
            FIX + MANAGES.format("Argo CD", "Deployment/team/web"),
        ),
        ({}, [scaler()], FIX + SET_AGAIN),
        ({}, [scaler(ownerReferences=[OWNER])], FIX + SET_BY_OWNER),
        (
            {"labels": {FLUX: "apps"}},
            [scaler(labels={FLUX: "apps"})],
            FIX
            + SET_AGAIN
            + MANAGES.format("Flux", "Deployment/team/web, HorizontalPodAutoscaler/team/scaler"),
        ),
    ],
    ids=["nobody", "Helm", "Argo CD", "an autoscaler", "an autoscaler of KEDA", "both"],
)
def test_the_fix_of_a_full_node_says_that_a_scale_is_taken_back(
    tmp_path: Path, metadata: dict[str, Any], others: list[dict[str, Any]], expected: str
) -> None:
    """It said to scale down, and the autoscaler or the repository undid that at once."""
    nodes = [plugin_node("gpu-0", 1), plugin_node("gpu-1", 1)]
    deployment, *pods = workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])
    deployment["metadata"] |= metadata

    plan = planned(tmp_path, [*nodes, namespace("team"), deployment, *pods, *others])

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert {"Node//gpu-0", "Node//gpu-1"} == fixes.keys()
    for fix in fixes.values():
        assert fix.endswith(expected)


def test_a_job_of_a_repository_has_no_replicas_to_change(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0", 1), plugin_node("gpu-1", 1)]
    job, *pods = running_job("train", {GPU: "1"}, ["gpu-0"])
    job["metadata"]["annotations"] = {TRACKING: "a:b"}
    web = workload("web", {GPU: "1"}, ["gpu-1"])

    plan = planned(tmp_path, [*nodes, namespace("team"), job, *pods, *web], "--wave-nodes", 1)

    assert "in its repository" not in str(plan["held"])


def test_a_workload_of_other_cards_is_not_to_be_scaled_down(tmp_path: Path) -> None:
    """Fewer pods on an A100 free nothing for one that selects an L40S."""
    of_type: dict[str, list[dict[str, Any]]] = {}
    for name, card in (("simulated", "L40S"), ("web", "A100")):
        nodes = [hami_node(f"{card.lower()}-{number}", 1) for number in range(2)]
        for entry in nodes:
            register = entry["metadata"]["annotations"]
            register["hami.io/node-nvidia-register"] = register[
                "hami.io/node-nvidia-register"
            ].replace("A100", f"NVIDIA-{card}")
        own = workload(name, WHOLE_SHARE, [node["metadata"]["name"] for node in nodes])
        annotations = {"nvidia.com/use-gputype": card}
        own[0]["spec"]["template"]["metadata"]["annotations"] = annotations
        for pod in own[1:]:
            pod["metadata"]["annotations"] = annotations
        of_type[card] = [*nodes, *own]

    plan = planned(tmp_path, [namespace("team"), scaler(), *of_type["L40S"], *of_type["A100"]])

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert SET_AGAIN not in fixes["Node//l40s-0"]
    assert fixes["Node//a100-0"].endswith(SET_AGAIN)
