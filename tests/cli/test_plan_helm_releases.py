"""`drawbridge plan --format kustomize`: objects that Flux renders from a HelmRelease, and the wait for a plugin's affinity."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from testing.documents import namespace
from testing.migration import GPU, daemon_set, plugin_node, workload
from testing.plan import changes, planned

FLUX: Final = {
    "helm.toolkit.fluxcd.io/name": "nvdp",
    "helm.toolkit.fluxcd.io/namespace": "flux-system",
}
APPLIED: Final = {"kustomize.toolkit.fluxcd.io/name": "apps"}
FILE: Final = "kustomize/prepare/helmrelease.flux-system.nvdp.yaml"
LABEL: Final = "nvidia.com/dra-kubelet-plugin"


def cluster(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    plugin = daemon_set("nvidia-device-plugin")
    plugin["metadata"]["labels"] = dict(labels)
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    return [plugin_node("gpu-0"), plugin_node("gpu-1"), plugin, namespace("team"), *web]


def prepared(folder: Path, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the notes of a plan and its `prepare.sh`."""
    plan = planned(folder, cluster(labels), "--format", "kustomize")
    notes = "\n".join(note for wave in plan["waves"] for note in wave["notes"])
    return notes, (folder / "plan" / "prepare.sh").read_text()


def test_the_patch_of_a_rendered_object_is_for_the_post_renderers(tmp_path: Path) -> None:
    """It was in a Component of kustomize, and no repository has the object, so it changed nothing."""
    notes, text = prepared(tmp_path, FLUX)

    assert not (tmp_path / "plan/kustomize/prepare/kustomization.yaml").exists()
    document = yaml.safe_load((tmp_path / "plan" / FILE).read_text())
    (renderer,) = document["postRenderers"]
    (entry,) = renderer["kustomize"]["patches"]
    assert {"kind": "DaemonSet", "name": "nvidia-device-plugin"} == entry["target"]
    assert LABEL in entry["patch"]
    place = f"{FILE} to spec.postRenderers of that HelmRelease when prepare.sh asks for it"
    assert "rendered from HelmRelease flux-system/nvdp" in notes
    assert place in notes
    order = f"add the entries of {FILE} of the plan to spec.postRenderers of HelmRelease flux-system/nvdp"
    assert order in text
    assert "commit kustomize/prepare" not in text
    assert f"Add the entries of `{FILE}`" in (tmp_path / "plan" / "README.md").read_text()


@pytest.mark.parametrize(
    "labels",
    [APPLIED, {**FLUX, **APPLIED}, {"helm.toolkit.fluxcd.io/name": "nvdp"}],
    ids=["of a Kustomization", "of both", "no namespace"],
)
def test_other_objects_of_flux_have_a_component(tmp_path: Path, labels: Mapping[str, str]) -> None:
    notes, text = prepared(tmp_path, labels)

    assert (tmp_path / "plan/kustomize/prepare/kustomization.yaml").exists()
    assert "HelmRelease" not in notes + text
    assert "commit kustomize/prepare of the plan to your repository now" in text


@pytest.mark.parametrize("labels", [FLUX, APPLIED, {}], ids=["HelmRelease", "Flux", "nobody"])
def test_the_preparation_waits_for_the_affinity(tmp_path: Path, labels: Mapping[str, str]) -> None:
    """It said that it waits, and ended; its first line said that it changes nothing for any pod that runs."""
    _, text = prepared(tmp_path, labels)

    assert [] == [name for name, _ in changes(text) if "daemonset" in name]
    path = (
        ".spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
        f'nodeSelectorTerms[0].matchExpressions[?(@.key=="{LABEL}")].values[?(@=="true")]'
    )
    wait = "kubectl wait daemonset/nvidia-device-plugin --namespace=kube-system --timeout=1h"
    assert (
        f"is_gone daemonset/nvidia-device-plugin kube-system || {wait} '--for=jsonpath={{{path}}}=true'"
        in text
    )
    assert "it restarts pods of device plugins" in text
    assert "changes nothing for any pod that runs" not in text
