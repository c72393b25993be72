"""`drawbridge test`: a site's own tests pass, fail with the actual values, or are wrong."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.builders import container, gpus
from testing.builders import pod as build_pod
from testing.command import CLUSTER, EXAMPLES, ROOT, drawbridge
from testing.documents import (
    NVIDIA,
    api_object,
    device_class,
    owned,
    ownership,
    resource_slice,
)
from testing.simulated_cluster import DRIVER, claim, holding, slice_of, using
from testing.simulated_cluster import device_class as simulated_class
from testing.simulated_cluster import node as simulated_node

SHARE: Final = str(EXAMPLES / "share.yaml")
MISTAKE: Final = str(EXAMPLES / "mistakes" / "half-a-gpu.yaml")
WARNED: Final = str(EXAMPLES / "mig-mode.yaml")
KEY: Final = "nvidia.com/gpu"
HAMI: Final = "hami-core-gpu.project-hami.io"


def suite(*tests: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"snapshot": [str(CLUSTER)], "tests": list(tests)}
    return api_object("TestSuite", "site", **(fields | more))


def case(manifest: str = SHARE, name: str = "a test", **expect: Any) -> dict[str, Any]:
    return {"name": name, "manifests": [manifest], "expect": expect}


def call(tmp_path: Path, document: Mapping[str, Any], *options: str) -> Result:
    file = tmp_path / "suite.yaml"
    file.write_text(dump_yaml([document]))
    return drawbridge("test", "-f", file, *options)


def failures(tmp_path: Path, test: Mapping[str, Any]) -> list[str]:
    result = call(tmp_path, suite(test), "-o", "json")
    (entry,) = json.loads(result.stdout)["tests"]
    assert result.exit_code == (1 if entry["failures"] or entry["error"] else 0)
    assert not entry["error"], entry["error"]
    messages: list[str] = entry["failures"]
    return messages


@pytest.mark.parametrize(
    "test",
    [
        case(check="accepted"),
        case(MISTAKE, check="rejected", codes=["notAnInteger"]),
        case(WARNED, codes=["policyDropped"], absentCodes=["notAnInteger"]),
        case(WARNED, check="warned"),
        case(placed=True),
        case(MISTAKE, placed=False),
        case(becomes={"Pod/share": "translated"}),
        case(becomes={"Pod/default/share": "translated"}, classes={"Pod/share": [HAMI]}),
        case(MISTAKE, becomes={"Pod/half-a-gpu": "rejected"}),
        case(MISTAKE, nodes={"Pod/half-a-gpu": None}),
    ],
    ids=lambda test: json.dumps(test["expect"]),
)
def test_what_is_as_expected_passes(tmp_path: Path, test: Mapping[str, Any]) -> None:
    assert [] == failures(tmp_path, test)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (case(check="rejected"), "check: expected rejected, is accepted"),
        (case(MISTAKE, check="accepted"), "check: expected accepted, is rejected: error: Pod/"),
        (case(WARNED, codes=["notAnInteger"]), "codes: expected notAnInteger, found policyDropped"),
        (case(WARNED, absentCodes=["policyDropped"]), "absentCodes: found warning: Pod/"),
        (case(placed=False), "placed: expected that something finds no devices"),
        (case(MISTAKE, placed=True), "without devices are Pod/default/half-a-gpu"),
        (case(becomes={"Pod/share": "unchanged"}), "expected Pod/share unchanged, is translated"),
        (case(becomes={"Pod/x": "unchanged"}), "there is no Pod/x; there are Pod/default/share"),
        (case(classes={"Pod/share": ["gpu.nvidia.com"]}), f"of Pod/share, are {HAMI}"),
        (case(classes={"Pod/x": []}), "classes: there is no Pod/x"),
        (case(nodes={"Pod/share": None}), "expected Pod/share on no node, is on "),
        (case(nodes={"Pod/share": "nowhere"}), "expected Pod/share on nowhere, is on "),
        (case(nodes={"Pod/x": None}), "nodes: there is no Pod/x"),
    ],
    ids=str,
)
def test_what_is_not_as_expected_fails_with_what_there_is(
    tmp_path: Path, test: Mapping[str, Any], message: str
) -> None:
    (failure,) = failures(tmp_path, test)

    assert message in failure


def test_a_node_by_name(tmp_path: Path) -> None:
    (failure,) = failures(tmp_path, case(nodes={"Pod/share": "nowhere"}))
    node = failure.rpartition(" ")[2]

    assert [] == failures(tmp_path, case(nodes={"Pod/share": node}))


@pytest.mark.parametrize(("cpu", "is_placed"), [("4", True), ("5", False)])
def test_nodes_need_the_cpu_for_a_pod(tmp_path: Path, cpu: str, *, is_placed: bool) -> None:
    node = api_object(
        "Node", "a", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
    )
    (tmp_path / "node.yaml").write_text(dump_yaml([node]))
    (tmp_path / "pod.yaml").write_text(dump_yaml([build_pod(container(amounts={"cpu": cpu}))]))
    test = case("pod.yaml", placed=is_placed) | {"snapshot": ["node.yaml"]}

    assert [] == failures(tmp_path, test)


def test_paths_are_relative_to_the_suite(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(dump_yaml([build_pod(gpus("1"))]))
    document = suite(case("pod.yaml", check="accepted", becomes={}), snapshot=[])

    assert 0 == call(tmp_path, document).exit_code, call(tmp_path, document).stdout


def test_paths_of_a_suite_from_a_pipe_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `drawbridge test -f <(...)`, and as for standard input."""
    (tmp_path / "pod.yaml").write_text(dump_yaml([build_pod(gpus("1"))]))
    monkeypatch.chdir(tmp_path)
    text = dump_yaml([suite(case("pod.yaml", check="accepted"), snapshot=[])])
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)

    result = drawbridge("test", "-f", f"/dev/fd/{reader}")
    os.close(reader)

    assert 0 == result.exit_code, result.stdout


def test_a_test_has_its_own_snapshot(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(dump_yaml([api_object("Node", "a")]))

    assert [] == failures(tmp_path, {**case(placed=False), "snapshot": ["empty.yaml"]})


def test_feature_gates_of_a_suite(tmp_path: Path) -> None:
    without = suite(case(placed=False), featureGates={"DRAConsumableCapacity": False})

    assert 0 == call(tmp_path, without).exit_code


GROUPS: Final = EXAMPLES / "groups"
GROUP_CLUSTER: Final = {"snapshot": [str(GROUPS / "cluster.yaml")]}


def test_a_workload_that_is_rejected_is_not_placed(tmp_path: Path) -> None:
    """It passed: of no pods, all are placed."""
    spec = {"replicas": 2, "template": {"spec": {"containers": [gpus("0.5")]}}}
    (tmp_path / "web.yaml").write_text(dump_yaml([api_object("Deployment", "web", spec=spec)]))

    (failure,) = failures(tmp_path, case("web.yaml", placed=True))

    assert "without devices are Deployment/default/web: spec.template.spec.containers[0]" in failure
    assert [] == failures(tmp_path, case("web.yaml", placed=False))


def test_a_pod_of_a_group_that_is_missing_is_not_placed(tmp_path: Path) -> None:
    test = case(str(GROUPS / "missing.yaml"), placed=True) | GROUP_CLUSTER

    (failure,) = failures(tmp_path, test)

    assert "without devices are Pod/default/lonely: " in failure
    assert "nowhere" in failure


def test_a_group_is_placed_as_one(tmp_path: Path) -> None:
    """One by one, the small pod takes the node that the large one needs."""
    test = case(str(GROUPS / "evaluation.yaml"), placed=True) | GROUP_CLUSTER

    assert [] == failures(tmp_path, test)


def test_a_gate_of_a_suite_counts_for_what_a_pod_becomes(tmp_path: Path) -> None:
    """A key that a DeviceClass maps is left to Kubernetes, unless the gate for that is off."""
    native = device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=KEY)
    slice_ = resource_slice({"name": "gpu-0"}, node="a", driver=NVIDIA)
    (tmp_path / "native.yaml").write_text(dump_yaml([api_object("Node", "a"), native, slice_]))
    (tmp_path / "pod.yaml").write_text(dump_yaml([build_pod(gpus(1))]))
    for gates, outcome in (({}, "unchanged"), ({"DRAExtendedResource": False}, "translated")):
        test = case("pod.yaml", becomes={"Pod/train": outcome}, placed=True)
        document = suite(test, snapshot=["native.yaml"], featureGates=gates)

        result = call(tmp_path, document)

        assert 0 == result.exit_code, result.stdout


@pytest.mark.parametrize("scheduler", ["", "another"])
def test_a_policy_counts_for_the_pods_of_the_bridge_alone(tmp_path: Path, scheduler: str) -> None:
    """It counted for pods of every scheduler."""
    allows_none = {"name": "alone", "compatibleOnlyWith": {"cel": {"expression": "false"}}}
    policy = api_object(
        "DeviceCompatibilityPolicy",
        "alone",
        spec={"driver": DRIVER, "scope": "Pool", "rules": [allows_none]},
    )
    state = [
        simulated_node("a"),
        simulated_class(),
        slice_of("a", {"name": "gpu-0"}, {"name": "gpu-1"}),
        holding("held", "gpu-0", "a"),
        claim("wanted"),
        policy,
        ownership(owned(name=DRIVER)),
    ]
    (tmp_path / "state.yaml").write_text(dump_yaml(state))
    pod = using("trainer", "wanted", **({"schedulerName": scheduler} if scheduler else {}))
    (tmp_path / "pod.yaml").write_text(dump_yaml([pod]))
    test = case("pod.yaml", placed=bool(scheduler)) | {"snapshot": ["state.yaml"]}

    assert [] == failures(tmp_path, test)


def test_text_names_each_test_and_what_failed(tmp_path: Path) -> None:
    result = call(tmp_path, suite(case(name="good", placed=True), case(name="bad", placed=False)))

    assert 1 == result.exit_code
    lines = result.stdout.splitlines()
    assert ["pass  site: good", "FAIL  site: bad"] == lines[:2]
    assert "2 tests, 1 failed" == lines[-1]


def test_a_manifest_that_is_missing_is_an_error_of_its_test_alone(tmp_path: Path) -> None:
    result = call(tmp_path, suite(case("gone.yaml", placed=True), case(placed=True)), "-o", "json")

    first, second = json.loads(result.stdout)["tests"]
    assert 1 == result.exit_code
    assert "gone.yaml" in first["error"]
    assert ([], "") == (second["failures"], second["error"])


def test_junit_has_failures_and_errors(tmp_path: Path) -> None:
    tests = (case(name="a<b", placed=True), case(placed=False), case("gone.yaml", placed=True))

    result = call(tmp_path, suite(*tests), "-o", "junit")

    (suite_,) = ET.fromstring(result.stdout)
    counts = [suite_.get(key) for key in ("tests", "failures", "errors")]
    assert ["3", "1", "1"] == counts
    assert [[], ["failure"], ["error"]] == [[child.tag for child in entry] for entry in suite_]
    assert "a<b" == suite_[0].get("name")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (suite(), "the suite has no tests"),
        (suite(case()), "expects nothing, so it could not fail"),
        (suite(case(cheek="accepted")), "unknown field `cheek`"),
        (suite(case(check="fine")), "Invalid enum value 'fine'"),
        (suite(case(codes=["notAnInt"])), "did you mean notAnInteger"),
        (suite(case(absentCodes=["x"])), "there is no finding 'x'"),
        (suite({"name": "x", "manifests": [], "expect": {"placed": True}}), "has no manifests"),
        (suite({**case(placed=True), "manifests": ["a\0b"]}), "no path of a file"),
        (suite({**case(placed=True), "snapshot": ["a\0b"]}), "no path of a file"),
        (suite(case(placed=True), settings="a\0b"), "no path of a file"),
        (suite(case(placed=True), featureGates={"DRAConsumable": True}), "unknown feature gate"),
        (suite(case(placed=True), apiVersion="cli.drawbridge.internal/v9"), "not cli.drawbridge"),
        (api_object("ConfigMap", "x"), "no TestSuite in"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_suite_that_makes_no_sense_is_a_wrong_call(
    tmp_path: Path, document: Mapping[str, Any], message: str
) -> None:
    result = call(tmp_path, document)

    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr


def test_the_example_passes() -> None:
    result = drawbridge("test", "-f", ROOT / "examples" / "suite")

    assert 0 == result.exit_code, result.stdout


def test_an_error_that_quotes_a_file_has_no_command_of_a_ci_system(tmp_path: Path) -> None:
    result = call(tmp_path, suite(case(placed=True), **{"a\n::error::b\n ::warning::c": 1}))

    assert result.exit_code == 2
    assert "error" in result.stderr
    assert not any(line.lstrip().startswith("::") for line in result.stderr.splitlines())
