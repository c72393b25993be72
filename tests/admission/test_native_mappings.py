"""DeviceClasses that map a resource name: exact ones, and ones that give more than the name means."""

from typing import Final, NamedTuple

import pytest

from admission.native_mappings import with_wide_mappings
from findings.finding import Code
from kube.api.extended_resources import extended_resources
from kube.api.meta import ObjectMeta
from kube.api.resource import CelSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from kube.cel.comparisons import drivers_named_by_class
from rules.context.inventory import Inventory
from testing.builders import (
    NVIDIA,
    container,
    driver_slice,
    finding_codes,
    mig_device,
    nvidia_gpu,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import NativePolicy, TranslationOptions, TranslationSnapshot
from translation.pipeline.translate import Translated, Untouched

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
MIG: Final = "nvidia.com/mig-3g.40gb"
MIG_SHARED: Final = f"{MIG}.shared"
ALL_MIG: Final = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"
ALL_GPUS: Final = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"
OF_PROFILE: Final = f"{ALL_MIG} && device.attributes['{NVIDIA}'].profile == '3g.40gb'"
OF_OTHER: Final = f"{ALL_MIG} && device.attributes['{NVIDIA}'].profile == '3g.40gb+me'"
OF_NO_DRIVER: Final = f"device.attributes['{NVIDIA}'].profile == '3g.40gb'"
SMALL: Final = mig_device("4864Mi", "1g.5gb")
LARGE: Final = mig_device("40192Mi", "3g.40gb")


class Case(NamedTuple):
    """A class that maps a resource name, and published devices of NVIDIA's driver."""

    name: str
    resource: str
    class_name: str
    expression: str
    devices: tuple[Document, ...]
    is_exact: bool


CASES: Final = (
    Case("all GPUs, none published", GPU, NVIDIA, ALL_GPUS, (), True),
    Case("all GPUs", GPU, NVIDIA, ALL_GPUS, (nvidia_gpu(), LARGE), True),
    Case("all of the driver", GPU, NVIDIA, f"device.driver == '{NVIDIA}'", (LARGE,), False),
    Case("GPUs of another name", GPU, "big", ALL_GPUS, (nvidia_gpu("80Gi"), SMALL), True),
    Case("all MIG devices, none published", MIG, "mig.nvidia.com", ALL_MIG, (), False),
    Case("all MIG devices, of one profile", MIG, "mig.nvidia.com", ALL_MIG, (LARGE,), False),
    Case("all MIG devices, of two", MIG, "mig.nvidia.com", ALL_MIG, (LARGE, SMALL), False),
    Case("a class for the profile", MIG, "mig-3g", OF_PROFILE, (LARGE, SMALL), True),
    Case("a class for the profile, none published", MIG, "mig-3g", OF_PROFILE, (), True),
    Case("a class for a profile with the name in its own", MIG, "mig-3g", OF_OTHER, (), False),
    Case("a class with two profiles", MIG, "any-mig", ALL_MIG, (LARGE, SMALL), False),
    Case("a class that names no profile, none published", MIG, "any-mig", ALL_MIG, (), False),
    Case("a class that gives whole GPUs", MIG, "mig-3g", ALL_GPUS, (nvidia_gpu(),), False),
    Case("shares, none published", SHARED, "shares", ALL_GPUS, (), False),
    Case("shares of whole GPUs", SHARED, "shares", ALL_GPUS, (nvidia_gpu(),), False),
    Case("shares", SHARED, "shares", ALL_GPUS, (nvidia_gpu(shared=True, replicas=True),), True),
    Case("shares of MIG devices", MIG_SHARED, "shares", OF_PROFILE, (LARGE,), False),
    Case("shares of MIG devices, none published", MIG_SHARED, "shares", OF_PROFILE, (), False),
    Case("shares of another driver", MIG_SHARED, "shares", "device.driver == 'a'", (LARGE,), True),
    Case("shares of MIG devices, no driver named", MIG_SHARED, "shares", OF_NO_DRIVER, (), False),
    Case("shares of GPUs, no driver named", SHARED, "shares", "true", (), False),
    Case("a name that nothing translates", "example.org/x", "x", ALL_MIG, (LARGE,), True),
    Case("a class that nobody can evaluate", GPU, "odd", "device.nothing", (nvidia_gpu(),), True),
)


def snapshot_of(
    case: Case,
    options: TranslationOptions = TranslationOptions(),  # noqa: B008 - a frozen value
) -> TranslationSnapshot:
    selector = DeviceSelector(cel=CelSelector(expression=case.expression))
    device_class = DeviceClass(
        metadata=ObjectMeta(name=case.class_name),
        spec=DeviceClassSpec(selectors=(selector,), extended_resource_name=case.resource),
    )
    classes = {case.class_name: device_class}
    slices = [driver_slice(NVIDIA, *case.devices)] if case.devices else []
    snapshot = translation_snapshot(
        *slices,
        classes=frozenset(classes),
        extended_resources=extended_resources(classes.values()),
        class_drivers={case.class_name: drivers_named_by_class(device_class)},
    )
    return with_wide_mappings(snapshot, options, classes, Inventory(slices).devices)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_mapping_is_exact_where_every_device_is_what_the_name_means(case: Case) -> None:
    assert (case.resource not in snapshot_of(case).wide_mappings) == case.is_exact


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_pod_stays_as_it_is_where_its_mapping_is_exact(case: Case) -> None:
    outcome = translation_outcome(pod(container(amounts={case.resource: 1})), snapshot_of(case))

    if not case.is_exact:
        assert not isinstance(outcome, Untouched)
        assert "warning mappingTooWide" in finding_codes(outcome.findings)
        return
    assert isinstance(outcome, Untouched)


@pytest.mark.parametrize("devices", [(), (LARGE,)])
def test_a_renamed_name_of_shares_of_mig_devices_means_what_it_stands_for(
    devices: tuple[Document, ...],
) -> None:
    case = Case("renamed", "example.org/small", "shares", OF_PROFILE, devices, is_exact=False)
    options = TranslationOptions(renamed_keys={case.resource: MIG_SHARED})

    snapshot = snapshot_of(case, options)
    outcome = translation_outcome(pod(container(amounts={case.resource: 1})), snapshot, options)

    assert [case.resource] == list(snapshot.wide_mappings)
    assert not isinstance(outcome, Untouched)


WIDE: Final = next(case for case in CASES if case.name == "all MIG devices, of two")
EXACT: Final = next(case for case in CASES if case.name == "all GPUs")


def test_the_setting_mapped_leaves_pods_to_a_wide_class_with_a_warning() -> None:
    options = TranslationOptions(native=NativePolicy.MAPPED)

    outcome = translation_outcome(
        pod(container(amounts={MIG: 1})), snapshot_of(WIDE, options), options
    )

    assert isinstance(outcome, Untouched)
    assert finding_codes(outcome.findings) == ["info passedThrough", "warning mappingTooWide"]


def test_the_setting_translate_leaves_no_pod_to_a_class() -> None:
    options = TranslationOptions(native=NativePolicy.TRANSLATE)

    outcome = translation_outcome(
        pod(container(amounts={GPU: 1})), snapshot_of(EXACT, options), options
    )

    assert isinstance(outcome, Translated)
    assert finding_codes(outcome.findings) == []


def test_a_share_is_not_warned_about_a_class_that_never_served_it() -> None:
    case = next(case for case in CASES if case.name == "all of the driver")

    outcome = translation_outcome(
        pod(container(amounts={GPU: 1, "nvidia.com/gpumem": 1000})), snapshot_of(case)
    )

    assert "warning mappingTooWide" not in finding_codes(outcome.findings)


def test_the_finding_names_a_device_that_the_name_does_not_mean() -> None:
    case = next(case for case in CASES if case.name == "a class with two profiles")

    fault = snapshot_of(case).wide_mappings[MIG]

    assert fault.reason == f"selects more, such as device {NVIDIA}/node-1/gpu-1"


@pytest.mark.parametrize(
    ("name", "renamed_keys"), [(MIG_SHARED, {}), ("a.b/c", {"a.b/c": MIG_SHARED})]
)
def test_the_fix_for_replicas_of_mig_devices_is_no_other_class(
    name: str, renamed_keys: dict[str, str]
) -> None:
    """Nobody publishes devices that such a class could select."""
    options = TranslationOptions(renamed_keys=renamed_keys)
    snapshot = snapshot_of(Case("wide", name, "shares", OF_PROFILE, (), is_exact=False), options)

    findings = translation_outcome(pod(container(amounts={name: 1})), snapshot, options).findings

    (fix,) = (entry.fix for entry in findings if entry.code is Code.MAPPING_TOO_WIDE)
    assert fix == (
        "take the name from the class, since no driver publishes replicas of a MIG device, and request the whole one, "
        f"{MIG}; or leave the name with its device plugin (translation.keep: [{name}])"
    )
