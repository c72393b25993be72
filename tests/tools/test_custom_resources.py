"""Definitions and rights of our kinds are as their types and the table say, and no more."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from controllers.policies.conditions import ConditionType
from kube.api.meta import ApiStruct, ObjectMeta, convert
from kube.api.own_kinds import (
    ALLOCATOR_OWNERSHIP,
    DEVICE_COMPATIBILITY_POLICY,
    DEVICE_TRANSLATION_PROFILE,
    OWN_KINDS,
    Access,
    Account,
    Audience,
    Grant,
    OwnKind,
)
from kube.api.ownership import MAX_DRIVERS, OWNERSHIP
from kube.api.policy import (
    PHYSICAL_ATTRIBUTES,
    Condition,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
    Enforcement,
)
from kube.api.schema import Schema
from kube.api.translation_profile import MAX_LISTED_KINDS
from kube.api.urls import own_resource
from kube.manifests.reader import read_paths
from kube.names import GROUP
from testing.command import EXAMPLES
from tools.custom_resources import aggregated_roles, definition, role_rules
from translation.model.intents import DeviceKind

REPOSITORY: Final = Path(__file__).parents[2]


def root_schema(kind: OwnKind) -> Mapping[str, Any]:
    (version,) = definition(kind)["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


ROOT: Final = root_schema(DEVICE_COMPATIBILITY_POLICY)
for_own_kinds = pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.kind)


def schemas(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema below this one with its path."""
    yield path, schema
    for name, schema_node in schema.get("properties", {}).items():
        yield from schemas(schema_node, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


@for_own_kinds
def test_its_names_are_those_that_we_call(kind: OwnKind) -> None:
    document, resource = definition(kind), own_resource(kind)
    spec = document["spec"]

    assert document["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    assert (resource.group, resource.plural, resource.version) == (
        spec["group"],
        spec["names"]["plural"],
        spec["versions"][0]["name"],
    )
    assert spec["scope"] == ("Namespaced" if resource.namespaced else "Cluster")


@for_own_kinds
def test_every_field_is_explained(kind: OwnKind) -> None:
    """Fields that every object has are left out."""
    unexplained = {
        path
        for path, schema_node in schemas(root_schema(kind))
        if path and not path.endswith("[]") and "description" not in schema_node
    }

    assert {path for path in unexplained if not path.startswith(".spec.devices.")} == {
        ".apiVersion",
        ".kind",
        ".metadata",
    }


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
        column.name
        for column in DEVICE_COMPATIBILITY_POLICY.columns
        if "conditions" in column.json_path
    }

    assert shown == set(ConditionType)


def test_what_the_example_says_has_a_place() -> None:
    (example,) = read_paths([str(EXAMPLES / "compatibility" / "policy.yaml")])
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


class SampleSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a sample."""

    fresh: int = 0


class Sample(ApiStruct, frozen=True, kw_only=True):
    """A sample.

    Attributes:
        spec: The content of the spec.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: SampleSpec


SAMPLE: Final = OwnKind(
    view=Sample, version="v1", plural="samples", short_names=("sm",), columns=()
)


def test_a_field_without_a_description_is_an_error() -> None:
    with pytest.raises(ValueError, match="SampleSpec describes no fresh"):
        definition(SAMPLE)


@pytest.mark.parametrize(
    "schema",
    [
        Schema(limits={DeviceCompatibilityPolicySpec: {"stale": {}}}),
        Schema(required={DeviceCompatibilityPolicySpec: frozenset({"stale"})}),
        Schema(defaulted={DeviceCompatibilityPolicySpec: frozenset({"stale"})}),
    ],
)
def test_a_limit_without_a_field_is_an_error(schema: Schema) -> None:
    kind = msgspec.structs.replace(DEVICE_COMPATIBILITY_POLICY, schema=schema)

    with pytest.raises(ValueError, match="DeviceCompatibilityPolicySpec has no stale"):
        definition(kind)


def test_there_is_one_ownership_with_a_bounded_list_of_different_drivers() -> None:
    schema = root_schema(ALLOCATOR_OWNERSHIP)
    drivers = schema["properties"]["spec"]["properties"]["drivers"]

    assert [f"self.metadata.name == '{OWNERSHIP}'"] == [
        rule["rule"] for rule in schema["x-kubernetes-validations"]
    ]
    assert (drivers["maxItems"], drivers["x-kubernetes-list-map-keys"]) == (MAX_DRIVERS, ["name"])


def test_devices_are_held_back_for_each_pod_of_a_claim() -> None:
    """As `HeldBackDevices` keeps them: an API server refuses a list with two entries of one key."""
    status = root_schema(ALLOCATOR_OWNERSHIP)["properties"]["status"]
    held_back = status["properties"]["heldBack"]

    assert held_back["x-kubernetes-list-map-keys"] == ["claimUID", "podUID"]
    assert {"claimUID", "podUID"} <= set(held_back["items"]["required"])


def test_a_status_has_room_for_all_kinds_of_devices_of_a_profile() -> None:
    assert len(DeviceKind) == MAX_LISTED_KINDS


def test_conditions_are_those_of_kubernetes() -> None:
    """Source: meta/v1 Condition; its five fields are required but for observedGeneration."""
    conditions = ROOT["properties"]["status"]["properties"]["conditions"]

    assert ["type"] == conditions["x-kubernetes-list-map-keys"]
    assert {"type", "status", "reason", "message", "lastTransitionTime"} == set(
        conditions["items"]["required"]
    )
    assert {field.encode_name for field in msgspec.structs.fields(Condition)} == set(
        conditions["items"]["properties"]
    )


@for_own_kinds
def test_it_is_plain_json(kind: OwnKind) -> None:
    document = definition(kind)

    assert json.loads(json.dumps(document)) == document


# --- rights -----------------------------------------------------------------------------------------


def rule(verbs: list[str], *resources: str, **more: Any) -> Mapping[str, Any]:
    return {"apiGroups": [GROUP], "resources": list(resources), **more, "verbs": verbs}


def test_kinds_with_the_same_verbs_share_a_rule() -> None:
    watched = msgspec.structs.replace(
        SAMPLE, access=(Access(account=Account.BRIDGE), Access(account=Account.CERTIFICATES))
    )

    rules = role_rules(Account.BRIDGE, (*OWN_KINDS, watched))

    assert rules == [
        rule(["list", "watch"], "devicecompatibilitypolicies", "devicequotas", "samples"),
        rule(["get", "list", "watch"], "allocatorownerships"),
        rule(["patch"], "allocatorownerships/status"),
    ]
    assert role_rules(Account.CERTIFICATES, (ALLOCATOR_OWNERSHIP, watched)) == [
        rule(["list", "watch"], "allocatorownerships", resourceNames=["default"]),
        rule(["list", "watch"], "samples"),
    ]


def test_people_get_the_rights_of_the_table() -> None:
    written = msgspec.structs.replace(
        SAMPLE, people=(Grant(audience=Audience.EDIT, verbs=("create", "delete")),)
    )

    roles = {
        role["metadata"]["name"]: (role["metadata"]["labels"], role["rules"])
        for role in aggregated_roles((DEVICE_TRANSLATION_PROFILE, written))
    }

    label = "rbac.authorization.k8s.io/aggregate-to-"
    assert roles.keys() == {"drawbridge-view", "drawbridge-edit"}
    assert roles["drawbridge-view"][0][f"{label}view"] == "true"
    assert roles["drawbridge-view"][1] == [
        rule(["get", "list", "watch"], "devicetranslationprofiles")
    ]
    assert roles["drawbridge-edit"][0][f"{label}edit"] == "true"
    assert roles["drawbridge-edit"][1] == [rule(["create", "delete"], "samples")]


# --- a new kind -------------------------------------------------------------------------------------

MODULE: Final = '''"""The DeviceSample API."""

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.schema import Schema, text


class DeviceSampleSpec(ApiStruct, frozen=True, kw_only=True):
    """The sampled device.

    Attributes:
        device: The name of the device.
    """

    device: str


class DeviceSample(ApiStruct, frozen=True, kw_only=True):
    """A sample of a device.

    Attributes:
        spec: The device.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSampleSpec


SCHEMA = Schema(limits={DeviceSampleSpec: {"device": text(63)}})
'''
ROW: Final = """\
DEVICE_SAMPLE: Final = OwnKind(
    view=sample.DeviceSample,
    schema=sample.SCHEMA,
    version="v1alpha1",
    plural="devicesamples",
    short_names=("dsm",),
    namespaced=True,
    columns=(Column("Device", ".spec.device"), AGE),
    is_validated=True,
    access=(Access(account=Account.WEBHOOK), Access(account=Account.OBSERVER)),
    people=(Grant(audience=Audience.VIEW), Grant(audience=Audience.EDIT, verbs=("create",))),
)

OWN_KINDS: Final = (DEVICE_SAMPLE, """
PLURAL: Final = "devicesamples"
DEFINITION: Final = f"manifests/base/{PLURAL}.yaml"
GENERATED: Final = {
    ".gitattributes",
    "charts/drawbridge/templates/account-policies.yaml",
    "charts/drawbridge/templates/aggregated-roles.yaml",
    "charts/drawbridge/templates/crds.yaml",
    "charts/drawbridge/templates/observer.yaml",
    "charts/drawbridge/templates/webhook.yaml",
    "docs/reference/kinds.md",
    "manifests/base/accountpolicies.yaml",
    "manifests/base/aggregatedroles.yaml",
    DEFINITION,
    "manifests/base/kustomization.yaml",
    "manifests/base/webhook.yaml",
    "manifests/observer/observer.yaml",
    "tests/golden/public.txt",
}
MOST_WRITTEN: Final = 12
"""Files that somebody writes for a new kind, generated ones apart."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the repository, with the times of its files and of its compiled files."""
    ignored = shutil.ignore_patterns(".*", "build", "shared")
    return Path(shutil.copytree(REPOSITORY, tmp_path / "repository", ignore=ignored))


def changed_files(copy: Path) -> set[str]:
    paths = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()}
    return {
        str(path)
        for path in paths
        if "__pycache__" not in path.parts
        if not (REPOSITORY / path).is_file() or not filecmp.cmp(REPOSITORY / path, copy / path)
    }


def generate(copy: Path) -> None:
    """Write the generated files of a copy, twice the same."""
    program = "from tools import generate; generate.write(); assert not generate.stale()"
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    subprocess.run([sys.executable, "-c", program], cwd=copy, env=environment, check=True)


def test_a_new_kind_is_a_module_and_a_row(copy: Path) -> None:
    """Its definition, rights, reference and public names are generated."""
    table = copy / "kube/api/own_kinds.py"
    (table.parent / "sample.py").write_text(MODULE)
    imports = "from kube.api import device_quota, ownership, policy"
    text = table.read_text().replace(imports, f"{imports}, sample")
    table.write_text(text.replace("OWN_KINDS: Final = (", ROW, 1))
    written = changed_files(copy)

    generate(copy)

    assert len(written) <= MOST_WRITTEN
    assert changed_files(copy) - written == GENERATED
    page = (copy / "docs/reference/kinds.md").read_text()
    assert "- `spec.device` (string): The name of the device.\n" in page
    golden = (copy / "tests/golden/public.txt").read_text()
    assert "DeviceSample v1alpha1: spec.device\n" in golden
    assert "DeviceSample: name dsm\n" in golden
    created = yaml.load((copy / DEFINITION).read_text(), Loader=yaml.CSafeLoader)
    assert created["spec"]["names"]["kind"] == "DeviceSample"
    for path in ("manifests/base/webhook.yaml", "manifests/observer/observer.yaml"):
        assert PLURAL in (copy / path).read_text()
