"""The definition of our own kind says what its types say, and cannot say anything else."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from controllers.policies.conditions import ConditionType
from kube.api.meta import ApiStruct, convert
from kube.api.policy import (
    PHYSICAL_ATTRIBUTES,
    Condition,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
    Enforcement,
)
from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES
from kube.manifests.reader import read_paths
from tests.kube.api.test_policy import EXAMPLE
from tools import policy_crd

DEFINITION = policy_crd.definition()
(VERSION,) = DEFINITION["spec"]["versions"]
ROOT: Mapping[str, Any] = VERSION["schema"]["openAPIV3Schema"]


def schemas(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema below this one with its path."""
    yield path, schema
    for name, schema_node in schema.get("properties", {}).items():
        yield from schemas(schema_node, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


def test_its_names_are_those_that_we_call() -> None:
    spec, definition = DEFINITION["spec"], DEVICE_COMPATIBILITY_POLICIES

    assert f"{definition.plural}.{definition.group}" == DEFINITION["metadata"]["name"]
    assert (
        definition.group,
        definition.plural,
        definition.version,
    ) == (
        spec["group"],
        spec["names"]["plural"],
        VERSION["name"],
    )
    assert ("Cluster", ["dcp"]) == (spec["scope"], spec["names"]["shortNames"])


def test_every_field_is_explained() -> None:
    """But what every object has."""
    fields = [path for path, schema_node in schemas(ROOT) if path and not path.endswith("[]")]

    unexplained = {
        path
        for path, schema_node in schemas(ROOT)
        if path in fields and "description" not in schema_node
    }

    assert {".apiVersion", ".kind", ".metadata"} == unexplained


def test_everything_is_bounded() -> None:
    """A schema without bounds would make rules in CEL too costly, and objects too large."""
    for path, schema_node in schemas(ROOT["properties"]["spec"]):
        if schema_node["type"] == "string" and "enum" not in schema_node:
            assert "maxLength" in schema_node, path
        if schema_node["type"] == "array":
            assert "maxItems" in schema_node, path


def test_defaults_are_those_of_the_types() -> None:
    spec = ROOT["properties"]["spec"]["properties"]
    said_nothing = DeviceCompatibilityPolicySpec(driver="d")

    written = {
        name: schema_node["default"]
        for name, schema_node in spec.items()
        if "default" in schema_node
    }

    assert written == {
        "enforcement": said_nothing.enforcement,
        "undeclared": said_nothing.undeclared,
        "scope": said_nothing.scope,
    }
    assert all(name in spec["physicalAttributes"]["description"] for name in PHYSICAL_ATTRIBUTES)


def test_columns_show_the_conditions_that_there_are() -> None:
    shown = {
        printer_column["name"]
        for printer_column in VERSION["additionalPrinterColumns"]
        if "conditions" in printer_column["jsonPath"]
    }

    assert shown == set(ConditionType)


def test_what_the_example_says_has_a_place() -> None:
    (example,) = read_paths([str(EXAMPLE)])
    known = {path for path, _ in schemas(ROOT)}

    def places(value: object, path: str) -> Iterator[str]:
        yield path
        if isinstance(value, Mapping):
            for name, schema_node in value.items():
                yield from places(schema_node, f"{path}.{name}")
        elif isinstance(value, list):
            for schema_node in value:
                yield from places(schema_node, f"{path}[]")

    assert set(places(example.document["spec"], ".spec")) <= known
    assert (
        convert(example.document, DeviceCompatibilityPolicy).spec.enforcement is Enforcement.ENFORCE
    )


class Changed(ApiStruct, frozen=True, kw_only=True):
    """A type with a field that nobody has written about."""

    driver: str
    fresh: int = 0


@pytest.mark.parametrize("entries", [{}, {"driver": {}, "fresh": {}, "stale": {}}])
def test_a_field_without_words_or_words_without_a_field_is_an_error(
    entries: Mapping[str, Any],
) -> None:
    words = msgspec.structs.replace(policy_crd.WORDS, fields={Changed: entries})

    with pytest.raises(ValueError, match="only on one side"):
        words.object_schema(Changed)


def test_conditions_are_those_of_kubernetes() -> None:
    """Source: meta/v1 Condition, whose five fields are required but for observedGeneration."""
    conditions = ROOT["properties"]["status"]["properties"]["conditions"]

    assert ["type"] == conditions["x-kubernetes-list-map-keys"]
    assert {"type", "status", "reason", "message", "lastTransitionTime"} == set(
        conditions["items"]["required"]
    )
    assert {field.encode_name for field in msgspec.structs.fields(Condition)} == set(
        conditions["items"]["properties"]
    )


def test_it_is_plain_json() -> None:
    assert json.loads(json.dumps(DEFINITION)) == DEFINITION
