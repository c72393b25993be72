"""The fence's text: one list of drivers decides for everybody."""

from typing import Any

import pytest
from cel_expr_python import cel

from admission.fence import OPEN_PATCH, fence_documents, fence_patch, is_fence_of
from kube.names import BRIDGE_LEASE, HOLDER_FENCE, NAMESPACE

GPU = "gpu.nvidia.com"
NIC = "dra.net"
CEL = cel.NewEnv(
    config=cel.NewEnvConfigFromYaml(
        "name: fence\nextensions:\n- name: optional\n- name: strings\n"
    ),
    variables={"object": cel.Type.DYN},
)


def expressions(*drivers: str) -> str:
    policy, *_ = fence_documents(drivers)
    spec = policy["spec"]
    return "\n".join(
        part["expression"] for part in (*spec["matchConditions"], *spec["validations"])
    )


def stored(*drivers: str) -> dict[str, Any]:
    """Return the policy as the API server stores it, with a default of its own."""
    policy, *_ = fence_documents(drivers)
    return {**policy, "spec": {**policy["spec"], "matchPolicy": "Equivalent"}}


def test_the_list_is_sorted_so_that_equal_sets_have_equal_text() -> None:
    assert 'result.driver.lowerAscii() in ["dra.net", "gpu.nvidia.com"]' in expressions(GPU, NIC)
    assert expressions(GPU, NIC) == expressions(NIC, GPU)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [(GPU, True), ("GPU.nvidia.com", True), ("GPU.NVIDIA.COM", True), (NIC, False), ("gpu", False)],
)
def test_a_driver_is_owned_however_its_name_is_spelled(driver: str, *, expected: bool) -> None:
    """The API server takes capitals in the driver of a result."""
    policy, *_ = fence_documents([GPU])
    *_, all_owned = policy["spec"]["validations"]
    allocation = {"devices": {"results": [{"driver": driver}]}}

    verdict = CEL.compile(all_owned["expression"]).eval(
        data={"object": {"status": {"allocation": allocation}}}
    )

    assert verdict.value() is expected


def test_without_owned_drivers_nobody_but_the_bridge_is_asked() -> None:
    assert "result.driver" not in expressions()


def test_a_hostile_name_stays_a_string() -> None:
    assert '["\\"] || true || [\\""]' in expressions('"] || true || ["')


def test_a_missing_lease_refuses_nobody() -> None:
    """A binding that denies without its parameter would refuse every status of every claim."""
    *_, policy, binding = fence_documents([GPU])

    assert (policy["metadata"]["name"], binding["spec"]["policyName"]) == (HOLDER_FENCE,) * 2
    assert binding["spec"]["paramRef"] == {
        "name": BRIDGE_LEASE,
        "namespace": NAMESPACE,
        "parameterNotFoundAction": "Allow",
    }


def test_only_the_second_policy_has_a_parameter_and_it_names_no_driver() -> None:
    first, _, second, _ = fence_documents([GPU])

    assert "params" not in str(first)
    assert GPU not in str(second)


def test_only_the_second_policy_is_about_whom_claims_are_reserved_for() -> None:
    """kube-controller-manager writes consumers of all claims; of the bridge, only the holder may."""
    first, _, second, _ = fence_documents([GPU])

    assert "reservedFor" not in str(first)
    change, is_bridge = second["spec"]["matchConditions"]
    assert "object.?status.?reservedFor != oldObject.?status.?reservedFor" in change["expression"]
    assert "request.userInfo.username ==" in is_bridge["expression"]


@pytest.mark.parametrize(
    ("name", "policy", "drivers", "expected"),
    [
        ("the fence of these drivers", stored(GPU), [GPU], True),
        ("one driver less", stored(GPU), [GPU, NIC], False),
        ("one driver more", stored(GPU, NIC), [GPU], False),
        ("opened by a rescue", {"spec": {**stored(GPU)["spec"], **OPEN_PATCH["spec"]}}, [], False),
        ("something else", {"spec": {}}, [], False),
        ("no spec", {}, [], False),
    ],
)
def test_a_stored_policy_is_compared(
    name: str, policy: dict[str, Any], drivers: list[str], *, expected: bool
) -> None:
    assert is_fence_of(policy, drivers) is expected, name


def test_a_patch_replaces_every_list() -> None:
    after = {**stored(GPU)["spec"], **OPEN_PATCH["spec"], **fence_patch([NIC])["spec"]}

    assert is_fence_of({"spec": after}, [NIC])
