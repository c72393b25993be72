"""DeviceClasses that claims use and the cluster does not have."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from translation.preflight.model.inputs import PreflightInput


def check_device_classes(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each DeviceClass that claims use and the cluster does not have."""
    classes = inputs.snapshot.classes
    if classes is None:
        return
    for name in sorted({name for claim in inputs.claims for name in claim.class_names()}):
        if name not in classes:
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                FieldPath.of("spec", "resourceClaims"),
                f"DeviceClass {name} does not exist: the pod waits until its driver is installed",
                f"install the driver, or choose another: {inputs.options.driver_option}",
            )
