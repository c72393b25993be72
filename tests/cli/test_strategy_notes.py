"""The limits of packing are said before strategies are compared, and docs/critiques.md is true."""

import json

import pytest

from allocator.strategies.registry import ALLOCATES_LESS
from answers.manifests.not_modelled import NOT_MODELLED
from answers.manifests.workload_pods import MAX_PODS
from kube.manifests.dump import dump_yaml
from kube.names import STRATEGY_ANNOTATION
from testing.builders import gpus, pod
from testing.command import ROOT, drawbridge
from testing.documents import api_object
from testing.questions import answer as check_answer
from testing.simulated_cluster import claim, device_class, simulate

UNLIMITED = (
    "2 of 2 nodes without status.allocatable: CPU and memory have no limits there, so a cluster that is short "
    "of them may rank strategies the other way round."
)


def test_simulate_says_first_that_nodes_have_no_limits() -> None:
    compared = simulate(claim("a"), options=("--strategy", "CompactFirst"))
    plain = simulate(claim("a"))

    assert compared.stdout.splitlines()[0] == UNLIMITED
    assert UNLIMITED not in plain.stdout


def test_json_has_no_line_before_it() -> None:
    compared = simulate(claim("a"), options=("--strategy", "BestFit", "-o", "json"))

    assert compared.stdout.startswith("{")
    assert UNLIMITED in compared.stderr


def test_check_says_what_a_spreading_strategy_costs() -> None:
    spreading = device_class("spreading", annotations={STRATEGY_ANNOTATION: "LowLoadFirst"})
    packing = device_class("packing", annotations={STRATEGY_ANNOTATION: "CompactFirst"})
    upstream = device_class("upstream", annotations={STRATEGY_ANNOTATION: "FirstFit"})

    findings = check_answer(spreading, packing, upstream)["findings"]

    assert [
        (entry["object"], entry["severity"], entry["message"])
        for entry in findings
        if entry["code"] == "strategyAllocatesLess"
    ] == [("DeviceClass//spreading", "info", ALLOCATES_LESS)]


def test_the_limitations_name_all_that_is_not_modelled() -> None:
    text = " ".join((ROOT / "docs" / "critiques.md").read_text().split())

    assert f"({', '.join(NOT_MODELLED)})" in text


@pytest.mark.parametrize(
    ("offered", "is_placed"),
    [({}, False), ({"nvidia.com/gpu": "3"}, False), ({"nvidia.com/gpu": "4"}, True)],
    ids=["none", "too few", "enough"],
)
def test_resources_of_a_plugin_are_counted(offered: dict[str, str], is_placed: bool) -> None:
    node = api_object("Node", "a", status={"allocatable": {"cpu": "8", **offered}})
    legacy = pod(gpus(4))
    legacy["metadata"]["labels"] = {"drawbridge.internal/translate": "false"}

    result = drawbridge(*("simulate", "-f", "-", "-o", "json"), stdin=dump_yaml([node, legacy]))

    (placed,) = json.loads(result.stdout)["pods"]
    assert is_placed == (placed["node"] == "a")


def test_the_limitations_say_how_many_pods_of_a_workload_are_placed() -> None:
    text = (ROOT / "docs" / "critiques.md").read_text()

    assert f"Of a workload `simulate` places at most {MAX_PODS} pods" in text
