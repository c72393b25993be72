"""Driver profiles: the content of a file, and the meaning of its hash."""

from typing import NamedTuple

import pytest

from kube.errors import ConfigError
from testing.builders import HAMI, NVIDIA, profiles
from translation.model.intents import DeviceKind
from translation.profiles.profile import Granularity, Profile, Sharing, parse_profile

SMALLEST = """
driver: gpu.example.org
devices:
  gpu: {class: gpu.example.org}
"""


def parsed(text: str) -> Profile:
    return parse_profile(text, "profile.yaml")


def test_the_smallest_profile_has_whole_devices_of_one_claim_per_pod() -> None:
    profile = parsed(SMALLEST)

    device = profile.devices[DeviceKind.GPU]
    assert (profile.claims, device.sharing, device.memory) == (Granularity.POD, Sharing.NEVER, None)


class Refusal(NamedTuple):
    name: str
    text: str
    want: str


REFUSALS = (
    Refusal("no YAML", "driver: a\ndevices: {", "profile.yaml: not a driver profile: line 2: "),
    Refusal("a character that YAML does not have", "driver: \0", "special characters"),
    Refusal("a bool of another word", "driver: !!bool x", "'x'"),
    Refusal("a time that is none", "driver: !!timestamp x", "groupdict"),
    Refusal("half a character", 'driver: "\\ud800"\ndevices: {gpu: {class: a}}', "surrogates"),
    Refusal("a day that does not exist", "driver: 2026-02-30", "day is out of range"),
    Refusal("too deep", "[" * 5_000, "recursion"),
    Refusal("no device", "driver: a\ndevices: {}", "devices: at least one kind"),
    Refusal("nothing", "", "Expected `object`, got `null`"),
    Refusal("a list", "[]", "Expected `object`, got `array`"),
    Refusal("no driver", "devices: {}", "missing required field `driver`"),
    Refusal("no devices", "driver: a", "missing required field `devices`"),
    Refusal(
        "a misspelled field",
        f"{SMALLEST}\nclaim: pod",
        "unknown field claim; did you mean claims?",
    ),
    Refusal(
        "a field of a device",
        SMALLEST.replace("class", "klass"),
        "unknown field devices.gpu.klass; did you mean class?",
    ),
    Refusal(
        "a field of a part that may be missing",
        SMALLEST.replace("{class", "{cores: {capacty: cores}, class"),
        "unknown field devices.gpu.cores.capacty; did you mean capacity?",
    ),
    Refusal("a field near no other", f"{SMALLEST}\nxyz: 1", "unknown field xyz"),
    Refusal("a long field", f"{SMALLEST}\n{'c' * 400}: 1", f"unknown field {'c' * 314}..."),
    Refusal(
        "a field of the devices with a name",
        SMALLEST.replace("{class", "{resources: {rdma/a: {clas: b}}, class"),
        "unknown field devices.gpu.resources[rdma/a].clas; did you mean class?",
    ),
    Refusal("a field with control characters", f'{SMALLEST}\n"\\x1b[2J": 1', r"\x1b[2J"),
    Refusal("a kind that does not exist", SMALLEST.replace("gpu:", "tpu:"), "'tpu'"),
    Refusal("a granularity", f"{SMALLEST}claims: node", "'node' - at `$.claims`"),
    Refusal(
        "a wrong type", SMALLEST.replace("{class", "{memory: 1, class"), "Expected `str | null`"
    ),
    Refusal(
        "a path that leads through a text",
        SMALLEST.replace("{class", "{mps: {parameters: {kind: GpuConfig}, threads: kind.x}, class"),
        "threads",
    ),
    Refusal(
        "a resource's name with a star inside",
        SMALLEST.replace("{class", "{resources: {rdma/*_a: {}}, class"),
        "rdma/*_a has a * before its end",
    ),
    Refusal(
        "no compute at all",
        SMALLEST.replace("{class", "{cores: {capacity: cores, whole: 0}, class"),
        "whole",
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(case.text)

    assert case.want in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


NAMES = (
    ("memory", (NVIDIA, "memory")),
    ("resource.kubernetes.io/numaNode", ("resource.kubernetes.io", "numaNode")),
)


@pytest.mark.parametrize(("name", "want"), NAMES)
def test_qualified(name: str, want: tuple[str, str]) -> None:
    assert want == profiles()[NVIDIA].qualified_name(name)


NAMED = """
driver: nic.example.org
devices:
  nic:
    class: nic.example.org
    resources:
      rdma/hca: {class: exactly}
      rdma/*: {class: pools}
      rdma/hca_*: {class: pools-of-hca}
"""


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        ("rdma/hca", "exactly"),
        ("rdma/ib", "pools"),
        ("rdma/hca_a", "pools-of-hca"),
        ("rdma/", "pools"),
        ("vendor.example/rdma/hca", None),
    ],
)
def test_the_longest_name_that_matches_a_resource_counts(resource: str, want: str | None) -> None:
    resolved = parsed(NAMED).devices[DeviceKind.NIC].find_resource(resource)

    assert want == (resolved and resolved[1].class_name)


def test_a_profile_that_names_no_resource_stands_for_none() -> None:
    assert parsed(SMALLEST).devices[DeviceKind.GPU].find_resource("rdma/hca") is None


def test_a_profile_that_names_no_resource_keeps_its_hash() -> None:
    assert profiles()[HAMI].content_hash == "d3fe8c619266a2b4"


def test_only_the_content_counts_for_the_hash() -> None:
    spread = SMALLEST.replace(
        "{class: gpu.example.org}", "\n    class: 'gpu.example.org' # the same"
    )
    explicit = SMALLEST + "claims: pod"

    assert len({parsed(text).content_hash for text in (SMALLEST, spread, explicit)}) == 1


def test_another_content_is_another_hash() -> None:
    assert parsed(SMALLEST).content_hash != parsed(SMALLEST + "claims: container").content_hash


def test_hamis_driver_gets_a_claim_per_container() -> None:
    assert profiles()[HAMI].claims is Granularity.CONTAINER
