"""HAMi on Huawei's Ascend NPUs: huawei.com/Ascend<chip>, with -memory and -core.

Amounts are per NPU. Without the annotation `huawei.com/vnpu-mode: hami-core` HAMi makes virtual NPUs of
templates, which the driver does not: a share is limited in software, with the amounts of the template.

Huawei's own device plugin has names of virtual NPUs, too, such as huawei.com/Ascend310P-4c.3cpu; these
are rejected, because an amount of them is no number of NPUs.

Source: Project-HAMi/HAMi v2.10, pkg/device/ascend/device.go; Project-HAMi/HAMi-DRA 052848d,
pkg/config/dra_device.go; Project-HAMi/ascend-dra-driver dc1db52, cmd/ascend-dra-kubeletplugin;
Ascend/mind-cluster, component/ascend-device-plugin/pkg/common/constants.go, Core1 to Core16.
Not translated: the modules of two NPUs of a SuperPod, which no driver publishes; the number is even.
"""

import re
from typing import Final

from findings.finding import Code, Finding, error, has_errors, warning
from findings.text import printable, quote_text
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
from translation.model.keys import KeyOutcome, Table, annotation, annotations, limit
from translation.model.npu_chips import CHIPS, NpuChip
from translation.model.npu_shares import CORES, MEMORY, SOFT_MODE, ShareReader, read_share
from translation.model.share_amounts import (
    MIB,
    in_bytes,
    list_items,
    listed_devices,
    lower_ascii,
    with_pod_findings,
)

PREFIX: Final = "huawei.com/Ascend"
DOMAIN: Final = "huawei.com/"
USE_TYPE: Final = "hami.io/use-nputype"
MODE: Final = "huawei.com/vnpu-mode"
_VIRTUAL: Final = re.compile(r"-([0-9]{1,3})c(\.[0-9a-z.]*)?")
"""The end of a name of virtual NPUs: their cores, and often their CPUs and memory."""
_UUIDS: Final = "HAMi's identifiers of devices, which the driver does not publish"
TABLE: Final[Table] = (
    limit(
        f"{PREFIX}*",
        "devices",
        KeyOutcome.COUNT,
        "N distinct NPUs, the whole of each without an amount. The driver does not publish which chip "
        "a name means, so any is accepted, with a warning; a profile may say it. Of a SuperPod "
        "(`Ascend910C`) 1 is 2, and another odd number is rejected",
    ),
    limit(
        f"{PREFIX}*",
        "virtual NPUs",
        KeyOutcome.REFUSED,
        "virtual NPUs of Huawei's own device plugin, of that many cores: write the key of the chip with "
        "`-memory`",
        case="a number of cores at the end, as in `-2c` or `-4c.3cpu`",
    ),
    limit(
        f"{PREFIX}*{MEMORY}",
        "MiB",
        KeyOutcome.CAPACITY,
        "with `huawei.com/vnpu-mode: hami-core` `memory: <M>Mi`; else that of the smallest template with "
        "as much, and its cores, or the whole NPU where none has; with more than one NPU a template is "
        "rejected",
    ),
    limit(
        f"{PREFIX}*{CORES}",
        "percent",
        KeyOutcome.CAPACITY,
        "`cores: <C>`; absent or `0` beside a part of the memory it is the same part of the cores. "
        "Rejected without `huawei.com/vnpu-mode: hami-core`, as a template fixes the cores",
    ),
    *(
        row
        for chip in CHIPS
        for row in (
            annotation(f"hami.io/use-{chip}-uuid", KeyOutcome.REFUSED, _UUIDS),
            annotation(f"hami.io/no-use-{chip}-uuid", KeyOutcome.REFUSED, _UUIDS),
        )
    ),
    annotation(USE_TYPE, KeyOutcome.SELECTOR, "the product name contains one of the items"),
    annotation(
        MODE,
        KeyOutcome.READING,
        "amounts are those of the keys, not of templates",
        case=f"`{SOFT_MODE}`",
    ),
    annotation(
        MODE,
        KeyOutcome.DROPPED,
        "as without it: amounts are those of a template, and limited in software",
        case="any other",
    ),
    *POLICIES,
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the NPUs and shares of NPUs that each container requests."""
    findings: list[Finding] = []
    pod_findings: list[Finding] = []
    models = listed_devices(pod.annotations, USE_TYPE, pod_findings)
    mutex = read_policies(pod.annotations, pod_findings)
    mode = pod.annotations.get(MODE)
    if mode is not None and mode != SOFT_MODE:
        pod_findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(MODE),
                f"the driver divides NPUs only as in {SOFT_MODE}; {quote_text(mode)} is dropped",
            )
        )
    intents: list[Intent] = []
    for container in pod.containers:
        for key in sorted(container.limits):
            virtual = _VIRTUAL.search(key)
            if virtual is not None and virtual.end() == len(key):
                findings += _check_virtual(pod, container, key, virtual)
            elif not key.endswith((MEMORY, CORES)):
                for intent in _intents(pod, container, key, models, findings):
                    exclusivity = pod.choices.exclusivity
                    intents.append(
                        as_unused(intent, exclusivity, "NPU", findings) if mutex else intent
                    )
            elif key.removesuffix(MEMORY).removesuffix(CORES) not in container.limits:
                findings.append(_alone(pod, container, key))
    findings = with_pod_findings(intents, pod_findings, findings)
    findings += check_sidecars(intents, pod.containers)
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _alone(pod: LegacyPod, container: LegacyContainer, key: str) -> Finding:
    """Return the warning about an amount without the key of its chip.

    Where another container has that key and no amount of its own, the amount was probably meant for it.
    """
    suffix = MEMORY if key.endswith(MEMORY) else CORES
    chip_key = key.removesuffix(suffix)
    others = [
        other
        for other in pod.containers
        if other.limits.get(chip_key) and not other.limits.get(key)
    ]
    message, fix = f"{printable(key)} requests no NPU without the key of its chip", ""
    if others:
        name = quote_text(others[0].name)
        whole = "all memory" if suffix == MEMORY else "all cores"
        message = f"{message}; container {name}, which has that key, gets {whole} of the NPU without an amount"
        fix = f"write {printable(key)} in container {name}"
    return warning(Code.NO_DEVICE_REQUESTED, container.limit_path(key), message, fix)


def _check_virtual(
    pod: LegacyPod, container: LegacyContainer, key: str, name: re.Match[str]
) -> list[Finding]:
    """Return an error about a key of virtual NPUs; none for an amount of zero."""
    if not container.limits[key]:
        return []
    cores = int(name[1])
    chip_key = key[: name.start()]
    chip = _chip(pod, chip_key)
    template = None if chip is None else chip.template_of_cores(cores)
    amount = "in MiB" if template is None else str(template.memory)
    message = f"counts virtual NPUs of {cores} cores, and the driver makes none of templates"
    fix = (
        f"write {printable(chip_key)}: 1 and {printable(chip_key)}{MEMORY}: {amount}, or keep the device "
        "plugin for this pod"
    )
    return [error(Code.CANNOT_EXPRESS, container.limit_path(key), message, fix)]


def _chip(pod: LegacyPod, key: str) -> NpuChip | None:
    name = key.removeprefix(DOMAIN)
    return pod.choices.ascend_chips.get(name, CHIPS.get(name))


def _intents(
    pod: LegacyPod,
    container: LegacyContainer,
    key: str,
    models: tuple[str, ...] | None,
    findings: list[Finding],
) -> list[Intent]:
    faults: list[Finding] = []
    chip = key.removeprefix(DOMAIN)
    share = read_share(
        ShareReader(
            container=container,
            key=key,
            chip=_chip(pod, key),
            is_soft=pod.annotations.get(MODE) == SOFT_MODE,
            findings=faults,
        )
    )
    use, no_use = f"hami.io/use-{chip}-uuid", f"hami.io/no-use-{chip}-uuid"
    uuids = listed_devices(pod.annotations, use, faults)
    findings += faults
    if share is None or has_errors(faults):
        return []
    keys = {"count": key, "memory": f"{key}{MEMORY}", "cores": f"{key}{CORES}"}
    aspects = {"uuids": use, "not_uuids": no_use, "models": USE_TYPE}
    return [
        Intent(
            container=container.name,
            kind=DeviceKind.NPU,
            count=share.count,
            memory=in_bytes(share.memory, MIB) if share.memory else None,
            cores_percent=share.cores_percent,
            filter=DeviceFilter(
                resource=key,
                models=None if models is None else tuple(map(lower_ascii, models)),
                uuids=uuids,
                not_uuids=list_items(pod.annotations.get(no_use, "")),
            ),
            paths={
                **container.limit_paths(keys),
                **{aspect: annotation_path(name) for aspect, name in aspects.items()},
            },
        )
    ]


VOCABULARY: Final = Vocabulary(
    name="ascend",
    table=TABLE,
    keys=(),
    key_prefixes=(PREFIX,),
    annotations=annotations(TABLE),
    translate=translate,
)
