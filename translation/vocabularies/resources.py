"""Whole devices of any vendor: a resource name, and the devices that a profile says it means.

The names, the DeviceClass of each, how devices are selected and what a container misses are data: the
`resources` of devices of kind `device` in translation/profiles, and in the profiles of a cluster. So a
device plugin needs no Python here. A name that no profile has is not read.

Source of each name: the profile that has it.
"""

from collections.abc import Iterator
from typing import Final

from findings.finding import Code, Finding, error
from kube.quantity import ZERO
from translation.model.amounts import requested_amounts
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from translation.model.keys import KeyOutcome, Place, Table, limit, names, prefixes

NAME: Final = "resources"
TPU: Final = "google.com/tpu"
_WHOLE: Final = "N devices of class `{}`"
_PARTITIONS: Final = (
    "N partitions of class `gpu.amd.com` whose `partitionProfile` is the name after the slash"
)

TABLE: Final[Table] = (
    limit("amd.com/gpu", "devices", KeyOutcome.COUNT, _WHOLE.format("gpu.amd.com")),
    *(
        limit(f"amd.com/{mode}_*", "devices", KeyOutcome.COUNT, _PARTITIONS)
        for mode in ("spx", "dpx", "qpx", "cpx")
    ),
    *(
        limit(name, unit, KeyOutcome.REFUSED, "a share of HAMi's; the driver shares no GPU")
        for name, unit in (
            ("amd.com/gpumem", "MiB"),
            ("amd.com/gpucores", "percent"),
        )
    ),
    *(
        limit(
            f"gpu.intel.com/{module}",
            "devices",
            KeyOutcome.COUNT,
            f"N devices of class `gpu.intel.com` whose `driver` is `{module}`",
        )
        for module in ("i915", "xe")
    ),
    limit("intel.com/gpu", "devices", KeyOutcome.COUNT, _WHOLE.format("gpu.intel.com")),
    *(
        limit(name, unit, KeyOutcome.REFUSED, "a share; the driver shares no GPU")
        for name, unit in (
            ("gpu.intel.com/millicores", "1/1000"),
            ("gpu.intel.com/memory.max", "bytes"),
            ("gpu.intel.com/tiles", "tiles"),
        )
    ),
    *(
        limit(
            f"gpu.intel.com/{prefix}monitoring",
            "",
            KeyOutcome.REFUSED,
            "access to all GPUs of a node, which is an administrator's to give: `adminAccess`",
        )
        for prefix in ("", "i915_", "xe_")
    ),
    *(
        limit(name, "devices", KeyOutcome.COUNT, _WHOLE.format("gaudi.intel.com"))
        for name in ("habana.ai/gaudi", "intel.com/gaudi")
    ),
    limit("intel.com/qat", "devices", KeyOutcome.COUNT, _WHOLE.format("qat.intel.com")),
    limit(
        TPU,
        "chips",
        KeyOutcome.SELECTOR,
        "all devices of class `tpu.google.com` on a node (`allocationMode: All`) whose `chipCount` is "
        "N: the driver gives the chips of a node only together, so two containers that run at the same "
        "time are rejected",
    ),
    *(
        limit(
            f"aws.amazon.com/{name}",
            "devices",
            KeyOutcome.COUNT,
            "N devices of class `neuron.aws.com`; 4, 8 and 16 are connected ones where the driver "
            "publishes their group, else any",
        )
        for name in ("neuron", "neurondevice")
    ),
    limit(
        "aws.amazon.com/neuroncore",
        "cores",
        KeyOutcome.REFUSED,
        "the driver gives whole devices; it publishes no cores",
    ),
    *(
        limit(
            f"rebellions.ai/{name}", "devices", KeyOutcome.COUNT, _WHOLE.format("npu.rebellions.ai")
        )
        for name in ("npu", "*")
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the devices that each container requests, one intent per name."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    for container in pod.containers:
        for key, count in requested_amounts(container):
            if isinstance(count, Finding):
                findings.append(count)
            else:
                intents.append(_intent(container, key, count))
    findings += _check_together(pod)
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _check_together(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each further container that would need all chips of a node at the same time."""
    running = [
        container
        for container in pod.containers
        if container.limits.get(TPU, ZERO) > ZERO and (not container.init or container.sidecar)
    ]
    for container in running[1:]:
        yield error(
            Code.CANNOT_EXPRESS,
            container.limit_path(TPU),
            f"container {running[0].name} has all chips of the node: the driver does not divide them among "
            "containers",
            "request the chips of all containers in one of them, or keep the device plugin for this pod: "
            'label drawbridge.internal/translate: "false"',
        )


def _intent(container: LegacyContainer, key: str, count: int) -> Intent:
    return Intent(
        container=container.name,
        kind=DeviceKind.DEVICE,
        count=count,
        exclusive=True,
        filter=DeviceFilter(resource=key),
        paths={"count": container.limit_path(key)},
    )


VOCABULARY: Final = Vocabulary(
    name=NAME,
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    takes_names=True,
    translate=translate,
)
