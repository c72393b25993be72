"""`drawbridge matrix`: the kinds of devices that may be in use together."""

import json

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document, api_object
from testing.questions import partition, partitions
from testing.simulated_cluster import DRIVER, STATE


def matrix(*state: Document, options: tuple[str, ...] = ()) -> Result:
    return drawbridge("matrix", "--snapshot", "-", *options, stdin=dump_yaml(state))


def rule(mode: str) -> Document:
    is_mode = {"cel": {"expression": f'device.attributes["{DRIVER}"].mode == "{mode}"'}}
    return {"name": mode, "selectors": [is_mode], "compatibleOnlyWith": is_mode}


POLICY = api_object(
    "DeviceCompatibilityPolicy",
    "modes",
    spec={"driver": DRIVER, "rules": [rule("mig"), rule("mps")]},
)
MODES = partitions(partition("a", "mig"), partition("b", "mig"), partition("c", "mps"))


def test_a_policy_as_a_table() -> None:
    result = matrix(POLICY, *MODES)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "gpu.example.com, policy modes",
        "",
        "|     | mig | mps | devices |",
        "| --- | --- | --- | ------- |",
        "| mig | ✓   | ✗   | 2       |",
        "| mps | ✗   | ✓   | 1       |",
        "✓ may be in use together, ✗ may not",
        "",
        "mig, mps: the rules of mig and mps do not accept each other",
        "",
        "info exclusiveByRule: the rule of c accepts none of the devices that counters allow beside it",
    ]


def test_a_policy_as_json() -> None:
    (driver,) = json.loads(matrix(POLICY, *MODES, options=("-o", "json")).stdout)["drivers"]

    assert (driver["driver"], driver["policy"]) == (DRIVER, "modes")
    assert [(pair["kind"], pair["otherKind"], pair["relation"]) for pair in driver["pairs"]] == [
        ("mig", "mig", "compatible"),
        ("mps", "mig", "incompatible"),
        ("mps", "mps", "compatible"),
    ]


def test_a_policy_that_an_older_one_outranks_is_shown_as_well() -> None:
    younger = {**POLICY, "metadata": {"name": "young", "creationTimestamp": "2026-11-20T00:00:00Z"}}
    older = {**POLICY, "metadata": {"name": "z-old", "creationTimestamp": "2026-11-19T00:00:00Z"}}

    drivers = json.loads(matrix(younger, older, *MODES, options=("-o", "json")).stdout)["drivers"]

    assert ["young", "z-old"] == [driver["policy"] for driver in drivers]


def test_findings_about_a_policy() -> None:
    typo = {**POLICY, "spec": {"driver": DRIVER, "rules": [rule("mig"), rule("mbs")]}}

    result = matrix(typo, *MODES)
    (driver,) = json.loads(matrix(typo, *MODES, options=("-o", "json")).stdout)["drivers"]

    (literal, *_) = [entry for entry in driver["findings"] if entry["code"] == "unknownLiteral"]
    assert literal["path"] == "spec.rules[1].selectors[0].cel.expression"
    assert (
        "warning unknownLiteral at spec.rules[1].selectors[0].cel.expression: "
        f'rule mbs compares {DRIVER}/mode with "mbs", which no published device has; they have "mig", "mps"'
    ) in result.stdout.splitlines()


def test_a_policy_as_groups() -> None:
    result = matrix(POLICY, *MODES, options=("--as-groups",))
    document = json.loads(matrix(POLICY, *MODES, options=("--as-groups", "-o", "json")).stdout)

    (driver,) = document["drivers"]
    groups = driver["devices"]
    assert result.stdout.splitlines()[2:] == [
        f"{device}: {', '.join(names)}" for device, names in groups.items()
    ]
    assert groups[f"{DRIVER}/node-a/a"] == groups[f"{DRIVER}/node-a/b"]
    assert groups[f"{DRIVER}/node-a/a"] != groups[f"{DRIVER}/node-a/c"]


def test_a_policy_that_groups_cannot_express() -> None:
    pool_wide = {**POLICY, "spec": {**POLICY["spec"], "scope": "Pool"}}

    result = matrix(pool_wide, *MODES, options=("--as-groups",))

    assert "not expressible as groups: scope Pool" in result.stdout


def test_groups_that_slices_declare() -> None:
    partitions_ = partitions(partition("a", "mig", ["mig"]), partition("c", "mps", ["mps"]))

    result = matrix(*partitions_)

    assert result.stdout.startswith("gpu.example.com, groups that slices declare\n")
    assert "| mig | ✓   | ✗   | 1       |" in result.stdout


def test_neither_policies_nor_groups() -> None:
    result = matrix(*STATE)

    assert result.exit_code == 0
    assert result.stderr == "note: no driver has a policy, and no slice declares groups\n"


@pytest.mark.parametrize(
    ("fail_on", "status"), [("error", 0), ("warning", 1), ("info", 1), (None, 0)]
)
def test_the_exit_status_depends_on_the_worst_finding(fail_on: str | None, status: int) -> None:
    typo = {**POLICY, "spec": {"driver": DRIVER, "rules": [rule("mig"), rule("mbs")]}}
    options = () if fail_on is None else (f"--fail-on={fail_on}",)

    assert status == matrix(typo, *MODES, options=options).exit_code


def test_a_rule_that_does_not_compile_fails_on_error() -> None:
    broken = {"name": "a", "compatibleOnlyWith": {"cel": {"expression": "device."}}}
    policy = {**POLICY, "spec": {"driver": DRIVER, "rules": [broken]}}

    assert 1 == matrix(policy, *MODES, options=("--fail-on=error",)).exit_code
    assert 0 == matrix(POLICY, *MODES, options=("--fail-on=error",)).exit_code


def test_groups_name_their_feature_gate_while_it_is_off() -> None:
    partitions_ = partitions(partition("a", "mig", ["mig"]), partition("c", "mps", ["mps"]))
    gate = "Feature gate DRADeviceCompatibilityGroups is off"
    is_on = ("--feature-gates", "DRADeviceCompatibilityGroups=true")

    assert gate in matrix(*partitions_).stdout
    assert gate not in matrix(*partitions_, options=is_on).stdout
    assert gate not in matrix(POLICY, *MODES).stdout
    (document,) = json.loads(matrix(*partitions_, options=("-o", "json")).stdout)["drivers"]
    assert "DRADeviceCompatibilityGroups" == document["disabledGate"]
