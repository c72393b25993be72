"""`drawbridge plan`: exporters of metrics by pod without claims are named before the first wave of their DRA driver."""

from pathlib import Path
from typing import Any, Final

import pytest

from answers.model.redaction import redact
from testing.migration import daemon_set, hami_node, plugin_node
from testing.plan import planned

NODES: Final = tuple(plugin_node(f"gpu-{number}") for number in range(2))
GUIDES: Final = Path(__file__).parents[2] / "docs" / "migrate"


def exporter(
    image: str = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.1",
    *,
    value: object = None,
    operator: str = "",
) -> dict[str, Any]:
    """An exporter with a value of its variable for claims."""
    document = daemon_set("metrics")
    container: dict[str, Any] = {"name": "exporter", "image": image}
    if value is not None:
        container["env"] = [{"name": "KUBERNETES_ENABLE_DRA", "value": value}]
    document["spec"]["template"]["spec"]["containers"] = [container]
    if operator:
        document["metadata"]["ownerReferences"] = [{"kind": operator, "controller": True}]
    return document


def notes(tmp_path: Path, *objects: dict[str, Any], nodes: Any = NODES) -> dict[int, str]:
    """Return the waves with a note on metrics to the note."""
    plan = planned(tmp_path, [*nodes, *objects], "--wave-nodes", 1)
    assert 2 == len(plan["waves"])
    return {
        wave["wave"]: note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "dashboards and bills" in note
    }


@pytest.mark.parametrize(
    ("operator", "guide", "words"),
    [
        ("", "nvidia.md", ["kubernetesDRA.enabled=true", "before the first wave"]),
        (
            "ClusterPolicy",
            "gpu-operator.md",
            ["dcgmExporter.env", "get, list and watch ResourceSlices"],
        ),
    ],
    ids=["chart", "GPU Operator"],
)
def test_an_exporter_without_claims_is_named_once(
    tmp_path: Path, operator: str, guide: str, words: list[str]
) -> None:
    """The guides said so, and the plan did not."""
    ((number, note),) = notes(tmp_path, exporter(operator=operator)).items()

    text = " ".join((GUIDES / guide).read_text().split())
    assert 1 == number
    assert note.startswith(
        "DaemonSet/kube-system/metrics gives metrics of a DRA driver's devices no pod"
    )
    for word in ["KUBERNETES_ENABLE_DRA=true", "autoscalers, dashboards and bills by pod", *words]:
        assert word in text.replace("`", "")
        assert word.replace("the first", "this") in note
    assert bool(operator) is ("not in the DaemonSet, which the GPU Operator sets back" in note)


@pytest.mark.parametrize(
    "objects",
    [[], [exporter("example.com/other:1")], [exporter(value="true")]],
    ids=["none", "another exporter", "with claims"],
)
def test_others_are_not_named(tmp_path: Path, objects: list[dict[str, Any]]) -> None:
    assert {} == notes(tmp_path, *objects)


def test_an_exporter_counts_where_the_driver_is_that_of_nvidia(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    assert {} == notes(tmp_path, exporter(), nodes=nodes)


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_snapshot_has_what_the_exporter_does(tmp_path: Path, value: str) -> None:
    assert (value == "false") is bool(notes(tmp_path, dict(redact(exporter(value=value)))))


def hami_plugin() -> dict[str, Any]:
    """HAMi's device plugin, with its monitor beside it."""
    document = daemon_set("hami-device-plugin")
    image = "projecthami/hami:v2.8.0"
    document["spec"]["template"]["spec"]["containers"] = [
        {"name": name, "image": image} for name in ("device-plugin", "vgpu-monitor")
    ]
    return document


def test_the_monitor_of_hami_is_named_once(tmp_path: Path) -> None:
    """Its metrics ended with the first wave, and neither the guide nor the plan said so."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    ((number, note),) = notes(tmp_path, hami_plugin(), nodes=nodes).items()

    text = " ".join((GUIDES / "hami.md").read_text().split())
    assert 1 == number
    assert note.startswith(
        "DaemonSet/kube-system/hami-device-plugin has HAMi's monitor, which leaves"
    )
    for word in ["k8s-dra-driver pull request 42", "autoscalers, dashboards and bills by pod"]:
        assert word in text
        assert word in note


def test_the_monitor_of_hami_counts_where_the_driver_is_that_of_hami(tmp_path: Path) -> None:
    assert {} == notes(tmp_path, hami_plugin())
