"""Variables of a pod that ask the device plugin for more than its keys."""

from collections.abc import Iterator
from typing import Final

from findings.finding import Code, Finding, warning
from translation.preflight.model.inputs import PreflightInput
from translation.vocabularies.nvidia import PLUGIN_VARIABLES, VISIBLE_DEVICES

NO_DEVICES: Final = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that expose no device."""


def check_environment(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each variable that requests further devices from the device plugin."""
    for container in inputs.legacy.containers:
        if not container.limits:
            continue
        visible = container.environment.get(VISIBLE_DEVICES)
        if visible is not None and visible not in NO_DEVICES:
            yield warning(
                Code.DEVICES_EXPOSED_BY_ENV,
                container.path.child("env"),
                f"{VISIBLE_DEVICES} in the manifest may expose GPUs that are not in the claim",
                "remove it; the driver injects the claimed devices",
            )
        for name in PLUGIN_VARIABLES:
            if container.environment.get(name) == "enabled":
                yield warning(
                    Code.NOT_INJECTED,
                    container.path.child("env"),
                    f"{name} requests device nodes from the device plugin that a claim does not "
                    "provide",
                )
