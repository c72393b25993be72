"""Decoding of DeviceCompatibilityPolicies, and the choice of the one in force."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube.api.meta import convert
from kube.api.policy import (
    API_VERSION,
    DeviceCompatibilityPolicy,
    Enforcement,
    Scope,
    Undeclared,
    effective_policies,
)
from kube.manifests.reader import read_paths

EXAMPLE = Path(__file__).parents[3] / "examples" / "compatibility" / "policy.yaml"


def read(**spec: Any) -> DeviceCompatibilityPolicy:
    return convert(
        {"metadata": {"name": "modes"}, "spec": {"driver": "gpu.example.com"} | spec},
        DeviceCompatibilityPolicy,
    )


def test_defaults() -> None:
    spec = read().spec

    assert (Enforcement.ENFORCE, Undeclared.ISOLATED, Scope.PHYSICAL) == (
        spec.enforcement,
        spec.undeclared,
        spec.scope,
    )
    assert (None, None) == (spec.physical_attributes, spec.rules)


def test_the_example_decodes() -> None:
    (path,) = read_paths([str(EXAMPLE)])

    policy = convert(path.document, DeviceCompatibilityPolicy)

    assert (API_VERSION, "DeviceCompatibilityPolicy") == (path.api_version, path.kind)
    assert ["whole", "fraction", "mig", "mps"] == [rule.name for rule in policy.spec.rules or ()]


@pytest.mark.parametrize(
    ("want", "spec"),
    [
        ("Invalid enum value 'Warn' - at `$.spec.enforcement`", {"enforcement": "Warn"}),
        ("Object missing required field `name` - at `$.spec.rules[0]`", {"rules": [{}]}),
    ],
)
def test_invalid_fields(want: str, spec: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError) as excinfo:
        read(**spec)

    assert want == str(excinfo.value)


def policy_of(name: str, driver: str, created: str | None) -> DeviceCompatibilityPolicy:
    return convert(
        {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"driver": driver}},
        DeviceCompatibilityPolicy,
    )


@pytest.mark.parametrize("rotation", [1, -1], ids=["in order", "in reverse"])
def test_the_oldest_policy_of_a_driver_is_in_force(rotation: int) -> None:
    policies = [
        policy_of("a", "x", "2026-11-02T00:00:00Z"),
        policy_of("b", "x", "2026-11-01T00:00:00Z"),
        policy_of("c", "x", None),
        policy_of("e", "y", "2026-11-02T00:00:00Z"),
        policy_of("d", "y", "2026-11-02T00:00:00Z"),
        policy_of("g", "z", None),
        policy_of("f", "z", None),
    ][::rotation]

    assert {"x": "b", "y": "d", "z": "f"} == {
        driver: policy.metadata.name for driver, policy in effective_policies(policies).items()
    }
