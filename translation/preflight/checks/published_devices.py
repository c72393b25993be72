"""DeviceClasses of drivers without published devices."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from translation.preflight.model.inputs import PreflightInput


def check_published_devices(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each DeviceClass of a driver without published devices."""
    snapshot = inputs.snapshot
    if snapshot.publishes is None or snapshot.classes is None:
        return
    drivers_by_class = {
        name: profile.driver
        for profile in inputs.providers.values()
        if profile.driver not in snapshot.publishes
        for name in profile.class_names() & snapshot.classes
    }
    for claim in inputs.claims:
        for index, name in claim.classes_by_request():
            driver = drivers_by_class.pop(name, None)
            if driver is not None:
                yield warning(
                    Code.NO_DEVICES,
                    claim.source(FieldPath.of("requests", index)) or FieldPath.of("spec"),
                    f"no device of DeviceClass {name} is published: driver {driver} has no "
                    "ResourceSlices, and the pod waits",
                    f"install the driver, or choose another: {inputs.options.driver_option}",
                )
