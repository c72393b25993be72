"""DeviceTranslationProfiles in manifests and snapshots: commands translate by them, check validates them."""

import json
from pathlib import Path

import msgspec
import yaml

from answers.model.profiles import stored_profiles_in_force
from answers.model.snapshot_kinds import KINDS
from answers.model.translation_snapshot import find_wide_mappings
from kube.api.meta import convert
from kube.api.resource import DeviceClass
from kube.api.translation_profile import DeviceTranslationProfile
from process.profiles.profile_files import load_profiles
from testing.builders import driver_slice
from testing.command import EXAMPLES, ROOT, drawbridge, finding_lines
from translation.cluster.snapshot import TranslationOptions

FOLDER = EXAMPLES / "profile"
PROFILE = FOLDER / "profile.yaml"
POD = FOLDER / "pod.yaml"
CLUSTER = FOLDER / "cluster.yaml"
"""The files of the example."""
PROFILES = ROOT / "translation" / "profiles"
"""The shipped profiles."""


def test_the_example_is_translated_by_the_profile_of_the_cluster() -> None:
    result = drawbridge(
        "translate", "-f", POD, "--snapshot", CLUSTER, "--snapshot", PROFILE, "-o", "text"
    )

    assert result.exit_code == 0, result.stderr
    assert "2 devices of class npu.example.com, where size is large" in result.stdout
    assert "served by npu.example.com" in result.stdout


def test_a_profile_among_the_manifests_is_in_force_too() -> None:
    result = drawbridge("translate", "-f", PROFILE, "-f", POD, "-o", "json")

    kinds = [object_["kind"] for object_ in json.loads(result.stdout)["objects"]]
    assert kinds == ["DeviceTranslationProfile", "ResourceClaimTemplate", "Pod"]


def test_an_object_and_a_file_mean_the_same(tmp_path: Path) -> None:
    spec = yaml.load(PROFILE.read_text(), Loader=yaml.CSafeLoader)["spec"]
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(spec))

    by_object = drawbridge("translate", "-f", POD, "--snapshot", CLUSTER, "--snapshot", PROFILE)
    by_file = drawbridge("translate", "-f", POD, "--snapshot", CLUSTER, "--profiles", tmp_path)

    assert by_object.exit_code == 0
    assert by_object.stdout == by_file.stdout


def test_a_driver_of_an_object_can_be_chosen_for_a_vocabulary() -> None:
    chosen = ("--profile", "resources=npu.example.com")

    known = drawbridge("translate", "-f", POD, "--snapshot", PROFILE, *chosen)
    unknown = drawbridge("translate", "-f", POD, *chosen)

    assert known.exit_code == 0, known.stderr
    assert unknown.exit_code == 2
    assert "unknown driver 'npu.example.com'" in unknown.stderr


def test_check_tells_what_is_wrong_with_a_profile(tmp_path: Path) -> None:
    document = yaml.load(PROFILE.read_text(), Loader=yaml.CSafeLoader)
    document["spec"]["devices"]["device"]["attributes"]["model"] = 'x"] || true'
    hostile = tmp_path / "profile.yaml"
    hostile.write_text(yaml.safe_dump(document))

    good = drawbridge("check", "-f", PROFILE, "--snapshot", CLUSTER)
    bad = drawbridge("check", "-f", hostile, "--snapshot", CLUSTER)

    assert good.exit_code == 0, good.stdout
    assert bad.exit_code == 1
    assert "invalidProfile" in bad.stdout
    assert "is not in force" in bad.stderr


def test_check_tells_a_missing_class_a_replaced_profile_and_a_type(tmp_path: Path) -> None:
    text = PROFILE.read_text().replace("npu.example.com", "gpu.intel.com")
    (tmp_path / "replacing.yaml").write_text(text.replace("class: gpu.intel", "class: npu.intel"))
    (tmp_path / "typed.yaml").write_text(
        text.split("spec:", maxsplit=1)[0].replace("gpu.intel.com", "a.example.com") + "spec: []\n"
    )

    result = drawbridge("check", "-f", tmp_path, "--snapshot", CLUSTER, "-o", "json")

    lines = finding_lines(json.loads(result.stdout))
    assert any("shippedProfileReplaced" in line for line in lines), lines
    assert any("deviceClassMissing" in line for line in lines), lines
    assert any("spec" in line and "a.example.com" in line for line in lines), lines


def test_inventory_and_assess_read_profiles() -> None:
    for command in ("inventory", "assess"):
        result = drawbridge(command, "--snapshot", CLUSTER, "--snapshot", PROFILE)

        assert result.exit_code == 0, result.stderr


def test_a_snapshot_holds_profiles() -> None:
    assert KINDS["DeviceTranslationProfile"].plural == "devicetranslationprofiles"
    assert msgspec.to_builtins(KINDS["DeviceTranslationProfile"])["namespaced"] is False


def test_the_mappings_of_a_cluster_are_validated_by_its_profiles() -> None:
    """`status` knew only the shipped profiles, and so said nothing of a class of another driver."""
    spec = yaml.load((PROFILES / "gpu.example.com.yaml").read_text(), Loader=yaml.CSafeLoader)
    stored = convert(
        {"metadata": {"name": "gpu.acme.example"}, "spec": {**spec, "driver": "gpu.acme.example"}},
        DeviceTranslationProfile,
    )
    selector = {"cel": {"expression": "device.driver == 'gpu.acme.example'"}}
    document = {
        "metadata": {"name": "acme"},
        "spec": {"selectors": [selector], "extendedResourceName": "nvidia.com/gpu"},
    }
    files = load_profiles()
    arguments = (
        [convert(document, DeviceClass)],
        [driver_slice("gpu.acme.example", {"attributes": {"partition": {"string": "half"}}})],
        TranslationOptions(),
    )

    profiles = stored_profiles_in_force(files, [stored]).profiles

    assert () == find_wide_mappings(*arguments, files)
    (wide,) = find_wide_mappings(*arguments, profiles)
    assert ("nvidia.com/gpu", "acme") == (wide.resource, wide.device_class)
