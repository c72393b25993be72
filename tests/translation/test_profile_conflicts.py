"""The resource names that a profile serves, and those that others serve."""

from typing import Any, Final, NamedTuple

import pytest

from findings.finding import Code
from testing.builders import profiles, translation_snapshot
from translation.cluster.profile_conflicts import check_profile, find_conflicts, served_names
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile, profile_of

OPTIONS: Final = TranslationOptions()


def profile(driver: str, resources: dict[str, Any], kind: str = "device") -> Profile:
    device = {"class": driver, "resources": resources}
    return profile_of({"driver": driver, "devices": {kind: device}})


class Row(NamedTuple):
    name: str
    profile: Profile
    conflicts: dict[str, str]
    """Resource name to its owner."""


ROWS: Final = (
    Row("names of its own", profile("z.example.com", {"example.com/a": {}}), {}),
    Row(
        "a name of a profile that precedes",
        profile("z.example.com", {"amd.com/gpu": {}, "example.com/a": {}}),
        {"amd.com/gpu": "gpu.amd.com"},
    ),
    Row(
        "a name of a vocabulary",
        profile("z.example.com", {"nvidia.com/gpu": {}}),
        {"nvidia.com/gpu": "hami"},
    ),
    Row(
        "a pattern over names of a vocabulary",
        profile("z.example.com", {"nvidia.com/mig-*": {}}),
        {"nvidia.com/mig-*": "nvidia"},
    ),
    Row(
        "NICs that no vocabulary gives to the driver",
        profile("z.example.com", {"example.com/nic": {}}, "nic"),
        {"example.com/nic": ""},
    ),
    Row("NICs of the driver that has them", profile("dra.net", {"a.com/nic": {}}, "nic"), {}),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_names_that_others_serve_are_conflicts(row: Row) -> None:
    in_force = {**profiles(), row.profile.driver: row.profile}

    conflicts = find_conflicts(row.profile, in_force, OPTIONS)

    assert row.conflicts == {conflict.key: conflict.owner for conflict in conflicts}
    assert set(served_names(row.profile, in_force, OPTIONS)) == (
        set(row.profile.resource_names()) - row.conflicts.keys()
    )


def test_no_shipped_profile_has_conflicts() -> None:
    for shipped in profiles().values():
        assert find_conflicts(shipped, profiles(), OPTIONS) == (), shipped.driver


def test_a_setting_gives_a_name_to_another_profile() -> None:
    mine = profile("z.example.com", {"amd.com/gpu": {}})
    in_force = {**profiles(), mine.driver: mine}

    by_vocabulary = TranslationOptions(profiles={**OPTIONS.profiles, "resources": mine.driver})
    by_key = TranslationOptions(drivers={"amd.com/gpu": "gpu.amd.com"})

    assert find_conflicts(mine, in_force, by_vocabulary) == ()
    assert [c.owner for c in find_conflicts(mine, in_force, by_key)] == ["gpu.amd.com"]


def test_a_profile_has_a_condition_for_what_it_will_not_do() -> None:
    mine = profile("gpu.amd.com", {"nvidia.com/gpu": {}})
    snapshot = translation_snapshot(classes=frozenset({"other"}))

    findings = list(check_profile(mine, snapshot, OPTIONS, frozenset({"gpu.amd.com"})))

    assert [finding.code for finding in findings] == [
        Code.PROFILE_KEY_NOT_SERVED,
        Code.DEVICE_CLASS_MISSING,
        Code.SHIPPED_PROFILE_REPLACED,
    ]
    assert not any(finding.is_error for finding in findings)
