"""HAMi on Hygon's DCUs: hygon.com/dcunum, dcumem and dcucores, or hcunum, hcumem and hcucores.

Amounts are per device. Without memory or cores a device is taken as a whole.

Source: Project-HAMi/HAMi v2.10, pkg/device/hygon, for the names with dcu; Project-HAMi/HAMi-DRA 052848d,
pkg/config/dra_device.go, for those with hcu; HYGON-AI/k8s-hcu-dra-driver 643ba6d,
internal/driver/allocatable_device.go: the capacity of cores counts compute units, of which a card has a
number of its own, so a percentage needs published devices, or a profile that says the number
(`cores.whole`), as it needs referenceComputeUnits there.
"""

from typing import Final

from findings.finding import Code, Finding, has_errors, warning
from translation.model.card_types import HYGON_PREFIXES, excluded_models, wanted_models
from translation.model.device_policies import TABLE as POLICIES
from translation.model.device_policies import as_unused, read_policies
from translation.model.init_containers import check_sidecars
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
from translation.model.keys import KeyOutcome, Place, Table, annotation, annotations, limit, names
from translation.model.share_amounts import (
    MIB,
    AmountReader,
    in_bytes,
    list_items,
    listed_devices,
    lower_ascii,
    with_pod_findings,
)

PREFIXES: Final = ("hygon.com/dcu", "hygon.com/hcu")
USE_TYPE: Final = "hygon.com/use-dcutype"
NO_USE_TYPE: Final = "hygon.com/nouse-dcutype"
USE_UUID: Final = "hygon.com/use-gpuuuid"
NO_USE_UUID: Final = "hygon.com/nouse-gpuuuid"

TABLE: Final[Table] = (
    *(
        row
        for prefix in PREFIXES
        for row in (
            limit(
                f"{prefix}num",
                "devices",
                KeyOutcome.COUNT,
                "N distinct devices. Without an amount the whole of each; `0` requests nothing",
            ),
            limit(
                f"{prefix}mem",
                "MiB",
                KeyOutcome.CAPACITY,
                "`memory: <M>Mi`; absent or `0` it is all of it. Alone it requests no device",
            ),
            limit(
                f"{prefix}cores",
                "percent",
                KeyOutcome.CAPACITY,
                "below 100 it is a number of compute units, with one alternative per number that devices "
                "publish, or of the number that a profile says (`cores`); rejected where neither is known; "
                "absent or `100` it is all of them. `0`, which sets no limit, is all of them, too, with a "
                "warning, where no profile says it",
                depends_on_device=True,
            ),
        )
    ),
    annotation(USE_UUID, KeyOutcome.SELECTOR, "the UUID is one of the items, less HAMi's `DCU-`"),
    annotation(
        NO_USE_UUID, KeyOutcome.SELECTOR, "the UUID is none of the items, less HAMi's `DCU-`"
    ),
    annotation(
        USE_TYPE,
        KeyOutcome.SELECTOR,
        "the product name contains one of the items, less HAMi's `DCU-`",
    ),
    annotation(
        NO_USE_TYPE,
        KeyOutcome.SELECTOR,
        "the product name contains none of the items, less HAMi's `DCU-`",
    ),
    *POLICIES,
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the devices and shares of devices that each container requests."""
    findings: list[Finding] = []
    pod_findings: list[Finding] = []
    uuids = listed_devices(pod.annotations, USE_UUID, pod_findings)
    device_filter = DeviceFilter(
        models=wanted_models(pod.annotations, USE_TYPE, HYGON_PREFIXES, pod_findings),
        not_models=excluded_models(pod.annotations, NO_USE_TYPE, HYGON_PREFIXES, pod_findings),
        uuids=None if uuids is None else tuple(map(_serial_number, uuids)),
        not_uuids=tuple(map(_serial_number, list_items(pod.annotations.get(NO_USE_UUID, "")))),
    )
    intents = [
        intent
        for container in pod.containers
        for prefix in PREFIXES
        for intent in _intents(container, prefix, device_filter, findings)
    ]
    if read_policies(pod.annotations, pod_findings):
        exclusivity = pod.choices.exclusivity
        intents = [as_unused(intent, exclusivity, "DCU", findings) for intent in intents]
    findings = with_pod_findings(intents, pod_findings, findings)
    findings += check_sidecars(intents, pod.containers)
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _serial_number(item: str) -> str:
    """Return the identifier of a device as its driver publishes it: HAMi writes `DCU-` before it."""
    has_prefix = lower_ascii(item).startswith(HYGON_PREFIXES)
    return item.partition("-")[2] if has_prefix else item


def _intents(
    container: LegacyContainer, prefix: str, device_filter: DeviceFilter, findings: list[Finding]
) -> list[Intent]:
    keys = {"count": f"{prefix}num", "memory": f"{prefix}mem", "cores": f"{prefix}cores"}
    present = [key for key in keys.values() if key in container.limits]
    if not present:
        return []
    faults: list[Finding] = []
    reader = AmountReader(container, faults)
    count = reader.integer(keys["count"])
    memory, cores = reader.memory(keys["memory"], MIB), reader.cores(keys["cores"], count, "DCU")
    findings += faults
    if has_errors(faults):
        return []
    if not count:
        if keys["count"] not in present or len(present) > 1:
            message = f"{', '.join(present)} requests no device without {keys['count']}"
            findings.append(
                warning(Code.NO_DEVICE_REQUESTED, container.limit_path(present[0]), message)
            )
        return []
    aspects = {
        "uuids": USE_UUID,
        "not_uuids": NO_USE_UUID,
        "models": USE_TYPE,
        "not_models": NO_USE_TYPE,
    }
    return [
        Intent(
            container=container.name,
            kind=DeviceKind.HCU,
            count=count,
            memory=in_bytes(memory, MIB) if memory else None,
            # All of them is the default of the driver, whatever the card has.
            cores_percent=cores if cores is not None and cores < 100 else None,
            filter=device_filter,
            paths={
                **container.limit_paths(keys),
                **{aspect: annotation_path(key) for aspect, key in aspects.items()},
            },
        )
    ]


VOCABULARY: Final = Vocabulary(
    name="hygon",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    annotations=annotations(TABLE),
    translate=translate,
)
