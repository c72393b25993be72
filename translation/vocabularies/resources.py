"""Whole devices of any vendor: a resource name, and the devices that a profile says it means.

The names, the DeviceClass of each, how devices are selected and what a container misses are data: the
`resources` of devices of kind `device` in translation/profiles, and in the profiles of a cluster. So a
device plugin needs no Python here. A name that no profile has is not read. HAMi's annotations choose
devices among those of AMD and of Neuron.

Source of each name: the profile that has it; of annotations: Project-HAMi/HAMi v2.10,
pkg/device/amd/device.go and pkg/device/awsneuron/device.go, and its documentation of version 2.8.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from findings.field_path import FieldPath
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
    annotation_path,
)
from translation.model.keys import (
    KeyOutcome,
    Place,
    Table,
    annotation,
    annotations,
    limit,
    names,
    prefixes,
)
from translation.model.share_amounts import list_items, listed_devices, lower_ascii

NAME: Final = "resources"
TPU: Final = "google.com/tpu"
_WHOLE: Final = "N devices of class `{}`"
_PARTITIONS: Final = (
    "N partitions of class `gpu.amd.com` whose `partitionProfile` is the name after the slash"
)

_AMD: Final = "amd.com/"
_NEURON: Final = "aws.amazon.com/"
_UUIDS: Final = {
    f"{_AMD}use-gpu-uuid": f"{_AMD}nouse-gpu-uuid",
    f"{_NEURON}use-neuron-uuid": f"{_NEURON}nouse-neuron-uuid",
    f"{_NEURON}use-gpuuuid": f"{_NEURON}nouse-gpuuuid",
}
"""Annotations with the only devices to those with excluded ones; the last are of older versions."""
_USE_TYPE: Final = f"{_AMD}use-gputype"
_NO_USE_TYPE: Final = f"{_AMD}nouse-gputype"
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
    annotation(_USE_TYPE, KeyOutcome.SELECTOR, "the product name contains one of the items"),
    annotation(_NO_USE_TYPE, KeyOutcome.SELECTOR, "the product name contains none of the items"),
    *(
        annotation(
            name,
            KeyOutcome.REFUSED,
            "HAMi's identifiers of devices, which the driver does not publish",
        )
        for pair in _UUIDS.items()
        for name in pair
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the devices that each container requests, one intent per name."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    selections = [_selection(pod, domain) for domain in (_AMD, _NEURON)]
    for container in pod.containers:
        for key, count in requested_amounts(container):
            if isinstance(count, Finding):
                findings.append(count)
            else:
                selection = next((s for s in selections if key.startswith(s.domain)), _EVERY_DEVICE)
                intents.append(_intent(container, key, count, selection))
    findings += _check_together(pod)
    for selection in selections:
        if any(str(intent.filter.resource).startswith(selection.domain) for intent in intents):
            findings += selection.faults
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


class _Selection(NamedTuple):
    """The devices of a vendor that annotations of a pod choose.

    Attributes:
        paths: Aspect of the filter to its annotation.
    """

    domain: str
    filter: DeviceFilter = DeviceFilter()
    paths: Mapping[str, FieldPath] = {}
    faults: tuple[Finding, ...] = ()


_EVERY_DEVICE: Final = _Selection(domain="")


def _selection(pod: LegacyPod, domain: str) -> _Selection:
    """Return the devices of a vendor that the annotations of a pod choose."""
    names_in_pod = {name for name in pod.annotations if name.startswith(domain)}
    if not names_in_pod:
        return _Selection(domain=domain)
    faults: list[Finding] = []
    use = next((name for name in _UUIDS if name in names_in_pod), "")
    no_use = next((name for name in _UUIDS.values() if name in names_in_pod), "")
    names_of_aspects = {"uuids": use, "not_uuids": no_use}
    models: tuple[str, ...] | None = None
    not_models: tuple[str, ...] = ()
    if domain == _AMD:
        names_of_aspects |= {"models": _USE_TYPE, "not_models": _NO_USE_TYPE}
        models = listed_devices(pod.annotations, _USE_TYPE, faults)
        not_models = list_items(pod.annotations.get(_NO_USE_TYPE, ""))
    return _Selection(
        domain=domain,
        filter=DeviceFilter(
            models=None if models is None else tuple(map(lower_ascii, models)),
            not_models=tuple(map(lower_ascii, not_models)),
            uuids=listed_devices(pod.annotations, use, faults),
            not_uuids=list_items(pod.annotations.get(no_use, "")),
        ),
        paths={aspect: annotation_path(name) for aspect, name in names_of_aspects.items() if name},
        faults=tuple(faults),
    )


def _intent(container: LegacyContainer, key: str, count: int, selection: _Selection) -> Intent:
    return Intent(
        container=container.name,
        kind=DeviceKind.DEVICE,
        count=count,
        exclusive=True,
        filter=msgspec.structs.replace(selection.filter, resource=key),
        paths={"count": container.limit_path(key), **selection.paths},
    )


VOCABULARY: Final = Vocabulary(
    name=NAME,
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    takes_names=True,
    translate=translate,
)
