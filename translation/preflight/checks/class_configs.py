"""DeviceClasses without the configuration that their driver needs."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from translation.compiling.claims import Claim
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.profile import DeviceProfile


def check_class_configs(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each class without the configuration that its driver needs.

    A claim has none: its parameters are objects of the cluster, such as a
    NetworkAttachmentDefinition.
    """
    needed_configs = {
        name: (profile.driver, device.class_config)
        for profile in inputs.providers.values()
        for device in profile.devices.values()
        if isinstance(device.class_config, str)
        for name in _classes_of(device)
    }
    for claim in inputs.claims:
        configured = _configured_requests(claim)
        for index, name in claim.classes_by_request():
            if name not in needed_configs or index in configured:
                continue
            driver, config = needed_configs.pop(name)
            if driver not in inputs.snapshot.class_configs.get(name, ()):
                path = claim.source(FieldPath.of("requests", index))
                yield warning(
                    Code.CLASS_CONFIG_MISSING,
                    path or FieldPath.of("spec"),
                    f"driver {driver} needs {config}, and DeviceClass {name} is not known to have one: "
                    "the pod may never start",
                    f"add the configuration to DeviceClass {name}",
                )


def _configured_requests(claim: Claim) -> frozenset[int]:
    """Return the requests of a claim that have a configuration of their own."""
    devices = claim.spec["spec"]["devices"]
    names = {
        name for config in devices.get("config") or () for name in config.get("requests") or ()
    }
    return frozenset(
        index for index, request in enumerate(devices["requests"]) if request["name"] in names
    )


def _classes_of(device: DeviceProfile) -> frozenset[str]:
    class_names = (resource.class_name for resource in (device.resources or {}).values())
    return frozenset({device.class_name, *(name for name in class_names if name is not None)})
