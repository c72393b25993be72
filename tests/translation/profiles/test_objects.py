"""The DeviceTranslationProfiles in force, the versions that are kept, and the reasons of the others."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from kube.api.meta import ObjectMeta
from kube.api.translation_profile import DeviceTranslationProfile
from testing.builders import profiles
from translation.profiles import names
from translation.profiles.names import name_fault
from translation.profiles.objects import (
    AcceptedReason,
    ProfileObject,
    ProfilePlan,
    plan_profiles,
    read_object,
    read_spec,
)
from translation.profiles.profile import canonical_content, profile_of
from translation.profiles.published import (
    IN_FORCE,
    PublishedProfiles,
    decode_published,
    encode_published,
)

DRIVER: Final = "npu.example.com"
Spec = Mapping[str, Any]


def spec(driver: str = DRIVER, *resource_names: str, **device: Any) -> Spec:
    resources: dict[str, Any] = {name: {} for name in resource_names or (f"{driver}/npu",)}
    fields = {"class": driver, "resources": resources, **device}
    return {"driver": driver, "devices": {"device": fields}}


def object_of(document: Spec, created: str = "") -> ProfileObject:
    return read_spec(document, document["driver"], created)


def version_of(document: Spec) -> str:
    return profile_of(document).content_hash


def published(plan: ProfilePlan) -> PublishedProfiles:
    """Return the part of a plan that processes read, through the ConfigMap."""
    return decode_published(encode_published(plan.published))


def test_an_object_says_what_a_file_says() -> None:
    for driver, profile in profiles().items():
        document = msgspec.json.decode(canonical_content(profile))

        object_ = read_object(
            DeviceTranslationProfile(metadata=ObjectMeta(name=driver), spec=document)
        )

        assert object_.findings == ()
        assert object_.profile == profile


class Fault(NamedTuple):
    name: str
    spec: Spec
    want: str


FAULTS: Final = (
    Fault("no profile", {"driver": DRIVER}, "missing required field `devices`"),
    Fault("an unknown field", {**spec(), "klass": "a"}, 'unknown field "klass"'),
    Fault("the name of no driver", spec("UPPER.example.com"), "is not the name of a driver"),
    Fault("the name of no class", spec(**{"class": "a b"}), "is not the name of a DeviceClass"),
    Fault(
        "text that would leave a literal",
        spec(attributes={"model": 'x"] || true || ["'}),
        "is not the name of an attribute",
    ),
    Fault("a capacity", spec(memory="a.b()"), "is not the name of an attribute or a capacity"),
    Fault("a filter", spec(where={"a-b": "c"}), "is not the name of an attribute"),
    Fault("a label", spec(labels={"a": "a-b"}), "is not the name of an attribute"),
    Fault("functions", spec(virtualFunctions={"a-b": True}), "is not the name of an attribute"),
    Fault("a lacking attribute", spec(lacks=["a b"]), "is not the name of an attribute"),
    Fault(
        "a filter of a name",
        spec(resources={"example.com/a": {"where": {"a b": 1}}}),
        "is not the name of an attribute",
    ),
    Fault(
        "the attribute with a name",
        spec(resources={"example.com/a": {"shortName": "a b"}}),
        "is not the name of an attribute",
    ),
    Fault(
        "the class of a name",
        spec(resources={"example.com/a": {"class": "a_b"}}),
        "is not the name of a DeviceClass",
    ),
    Fault(
        "a number that CEL does not have",
        spec(resources={"example.com/a": {"where": {"size": 2**63}}}),
        "64 bits",
    ),
    Fault("a long value", spec(where={"size": "a" * 65}), "longer than the 64 characters"),
    Fault(
        "control characters",
        spec(resources={"example.com/a": {"rejected": "a\x1b[2J"}}),
        "printable characters",
    ),
    Fault(
        "advice about nothing",
        spec(resources={"example.com/a": {"advice": "b"}}),
        "only beside rejected",
    ),
    Fault("a name of Kubernetes", spec(DRIVER, "kubernetes.io/batch-cpu"), "Kubernetes' own"),
    Fault("a name of a quota", spec(DRIVER, "requests.example.com/a"), "ResourceQuotas"),
    Fault("a name without a domain", spec(DRIVER, "npu"), "has no domain"),
    Fault("every name", spec(DRIVER, "*"), "has no domain"),
    Fault("a star inside", spec(DRIVER, "example.com/*/a"), "has a * before its end"),
    Fault("two slashes", spec(DRIVER, "example.com/a/b"), "does not end in a resource name"),
    Fault("a quote", spec(DRIVER, 'example.com/a"'), "does not end in a resource name"),
    Fault(
        "too many names",
        spec(DRIVER, *(f"example.com/{number}" for number in range(65))),
        "has 65 names",
    ),
    Fault(
        "deep parameters",
        spec(mps={"parameters": msgspec.json.decode('{"a":' * 20 + "1" + "}" * 20)}),
        "deeper than 16 levels",
    ),
    Fault(
        "too large", spec(mps={"parameters": {"a": "b" * names.MAX_PROFILE_BYTES}}), "bytes as JSON"
    ),
)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_what_cannot_be_in_force_is_reported_and_is_not(row: Fault) -> None:
    object_ = object_of({"driver": DRIVER, **row.spec})

    plan = plan_profiles([object_])

    (verdict,) = plan.verdicts.values()
    assert any(row.want in finding.message for finding in object_.findings), object_.findings
    assert verdict.reason is AcceptedReason.INVALID
    assert plan.published == PublishedProfiles()


def test_an_unknown_field_is_named_at_its_place_with_the_nearest() -> None:
    (finding,) = object_of(spec(memroy="memory")).findings

    assert str(finding.path) == "spec.devices.device.memroy"
    assert finding.message.endswith('unknown field "memroy"; did you mean memory?')


def test_an_object_of_another_name_is_not_accepted() -> None:
    plan = plan_profiles([read_spec(spec(), "other.example.com")])

    assert "named" in plan.verdicts["other.example.com"].message
    assert not plan.published.in_force


@pytest.mark.parametrize(
    "name", ["example.com/*", "example.com/a", "example.com/a-*", "a.example.com/B_c.d-1"]
)
def test_names_that_a_device_plugin_could_have_are_accepted(name: str) -> None:
    assert name_fault(name) is None


def test_an_edit_keeps_the_version_that_pods_name() -> None:
    older, newer = spec(), spec(DRIVER, "example.com/new")
    first = plan_profiles([object_of(older)])
    used = {(DRIVER, version_of(older))}

    second = plan_profiles([object_of(newer)], before=published(first), used_versions=used)
    third = plan_profiles([object_of(newer)], before=published(second))
    gone = plan_profiles([], before=published(second), used_versions=used)

    assert second.published.in_force == {DRIVER: version_of(newer)}
    assert set(second.published.versions) == {version_of(older), version_of(newer)}
    assert set(third.published.versions) == {version_of(newer)}
    assert gone.published.in_force == {}
    assert set(gone.published.versions) == {version_of(older)}


def test_a_version_is_kept_for_pods_of_its_driver_only() -> None:
    first = plan_profiles([object_of(spec())])

    plan = plan_profiles(
        [], before=published(first), used_versions={("other.example.com", version_of(spec()))}
    )

    assert plan.published == PublishedProfiles()


def test_versions_of_files_are_kept_once_pods_name_them() -> None:
    profile = profiles()["gpu.nvidia.com"]
    known = {profile.content_hash: profile}

    plan = plan_profiles(
        [], known_versions=known, used_versions={(profile.driver, profile.content_hash)}
    )

    assert published(plan).versions == known


def test_an_unreadable_edit_leaves_the_version_in_force() -> None:
    first = plan_profiles([object_of(spec())])

    plan = plan_profiles(
        [read_spec({"driver": DRIVER, "devices": {}}, DRIVER)], before=published(first)
    )

    assert plan.verdicts[DRIVER].reason is AcceptedReason.INVALID
    assert plan.verdicts[DRIVER].version == version_of(spec())
    assert plan.published.is_same(published(first))


def many(number: int, resource_names: int = 1, first: int = 0) -> list[ProfileObject]:
    return [
        object_of(
            spec(
                f"npu-{index}.example.com",
                *(f"example.com/npu-{index}-{name}" for name in range(resource_names)),
            ),
            created=f"2026-11-20T00:{index:02d}:00Z",
        )
        for index in range(first, first + number)
    ]


def test_younger_objects_do_not_push_older_ones_out() -> None:
    objects = many(names.MAX_PROFILES + 1)

    plan = plan_profiles(reversed(objects))

    youngest = objects[-1].name
    assert plan.verdicts[youngest].reason is AcceptedReason.TOO_MANY_PROFILES
    assert set(plan.published.in_force) == {object_.name for object_ in objects[:-1]}


def test_a_larger_older_object_does_not_push_out_what_is_in_force() -> None:
    full = many(names.MAX_NAMES // names.MAX_RESOURCES, names.MAX_RESOURCES - 1)
    before = published(plan_profiles(full))
    (small,) = many(1, 4, first=40)
    with_small = published(plan_profiles([*full, small], before=before))
    (grown,) = many(1, names.MAX_RESOURCES)

    plan = plan_profiles([grown, *full[1:], small], before=with_small)

    assert plan.verdicts[grown.name].reason is AcceptedReason.TOO_MANY_NAMES
    assert plan.published.is_same(with_small)


def test_no_further_version_is_accepted_than_can_be_kept() -> None:
    number = names.MAX_VERSIONS
    all_versions = [profile_of(spec(DRIVER, f"example.com/v{index}")) for index in range(number)]
    versions = {profile.content_hash: profile for profile in all_versions}
    before = PublishedProfiles(versions=versions)
    used = {(DRIVER, version) for version in versions}

    plan = plan_profiles(
        [object_of(spec(DRIVER, "example.com/last"))], before=before, used_versions=used
    )

    assert plan.verdicts[DRIVER].reason is AcceptedReason.TOO_MANY_VERSIONS
    assert plan.published.is_same(before)


def test_what_is_published_is_read_as_it_was() -> None:
    plan = plan_profiles(many(3))

    assert published(plan) == plan.published


def test_a_text_without_the_hash_of_its_key_is_ignored() -> None:
    data = dict(encode_published(plan_profiles([object_of(spec())]).published))
    forged = canonical_content(profile_of(spec(**{"class": "stolen.example.com"}))).decode()

    read = decode_published({**data, version_of(spec()): forged})

    assert read.in_force == {}
    assert read.versions == {}
    assert any("has the hash" in fault for fault in read.faults)


@pytest.mark.parametrize(
    "data",
    [
        {IN_FORCE: "{"},
        {IN_FORCE: '{"a": 1}'},
        {IN_FORCE: '{"a": "0123456789abcdef"}'},
        {"0123456789abcdef": "no profile"},
        {"0123456789abcdef": "[" * 10_000},
        {"other": "\x1b[2J"},
    ],
    ids=["no JSON", "no hash", "an unknown version", "no profile", "too deep", "an unknown key"],
)
def test_a_text_that_makes_no_sense_is_reported_and_ignored(data: Mapping[str, str]) -> None:
    read = decode_published(data)

    assert (read.in_force, read.versions) == ({}, {})
    assert len(read.faults) == 1
    assert all(fault.isprintable() for fault in read.faults)
