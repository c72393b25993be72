"""HAMi on Huawei's Ascend NPUs: huawei.com/Ascend<chip>, with -memory and -core.

Amounts are per NPU. As in HAMi-DRA, every share is a soft one: the driver limits exactly the amounts that
were requested, while HAMi's templates round memory up.

Source: Project-HAMi/HAMi v2.10, pkg/device/ascend/device.go; Project-HAMi/HAMi-DRA 052848d,
pkg/config/dra_device.go; Project-HAMi/ascend-dra-driver dc1db52, cmd/ascend-dra-kubeletplugin.
Not translated: the modules of two NPUs that Ascend910C has in a SuperPod, which no driver publishes.
"""

from typing import Final

from findings.finding import Code, Finding, warning
from findings.text import printable, quote_text
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
from translation.model.share_amounts import (
    MIB,
    AmountReader,
    in_bytes,
    list_items,
    listed_devices,
    lower_ascii,
    with_pod_findings,
)

PREFIX: Final = "huawei.com/Ascend"
DOMAIN: Final = "huawei.com/"
MEMORY: Final = "-memory"
CORES: Final = "-core"
USE_TYPE: Final = "hami.io/use-nputype"
MODE: Final = "huawei.com/vnpu-mode"
SOFT_MODE: Final = "hami-core"
CHIPS: Final = (
    "Ascend910A",
    "Ascend910B2",
    "Ascend910B3",
    "Ascend910B4-1",
    "Ascend910B4",
    "Ascend310P",
    "Ascend910C",
)
"""The chips of HAMi's chart, whose UUIDs annotations may list."""

TABLE: Final[Table] = (
    limit(
        f"{PREFIX}*",
        "devices",
        KeyOutcome.COUNT,
        "N distinct NPUs, the whole of each without an amount. The driver does not publish which chip "
        "a name means, so any is accepted, with a warning; a profile may say it",
    ),
    limit(
        f"{PREFIX}*{MEMORY}",
        "MiB",
        KeyOutcome.CAPACITY,
        "`memory: <M>Mi`, not rounded up to a template. Without `-core` beside it the share has all "
        "cores, so nobody else gets any, with a warning",
    ),
    limit(f"{PREFIX}*{CORES}", "percent", KeyOutcome.CAPACITY, "`cores: <C>`"),
    *(
        row
        for chip in CHIPS
        for row in (
            annotation(
                f"hami.io/use-{chip}-uuid", KeyOutcome.SELECTOR, "the UUID is one of the items"
            ),
            annotation(
                f"hami.io/no-use-{chip}-uuid", KeyOutcome.SELECTOR, "the UUID is none of the items"
            ),
        )
    ),
    annotation(USE_TYPE, KeyOutcome.SELECTOR, "the product name contains one of the items"),
    annotation(MODE, KeyOutcome.KEPT, "how every share is limited", case=f"`{SOFT_MODE}`"),
    annotation(
        MODE, KeyOutcome.DROPPED, "every share is limited as in `hami-core`", case="any other"
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the NPUs and shares of NPUs that each container requests."""
    findings: list[Finding] = []
    pod_findings: list[Finding] = []
    models = listed_devices(pod.annotations, USE_TYPE, pod_findings)
    mode = pod.annotations.get(MODE, SOFT_MODE)
    if mode != SOFT_MODE:
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
            if not key.endswith((MEMORY, CORES)):
                intents += _intents(pod, container, key, models, findings)
            elif key.removesuffix(MEMORY).removesuffix(CORES) not in container.limits:
                message = f"{printable(key)} requests no NPU without the key of its chip"
                path = container.limit_path(key)
                findings.append(warning(Code.NO_DEVICE_REQUESTED, path, message))
    findings = with_pod_findings(intents, pod_findings, findings)
    findings += check_sidecars(intents, pod.containers)
    return Translation(intents=tuple(intents), findings=tuple(findings))


def _intents(
    pod: LegacyPod,
    container: LegacyContainer,
    key: str,
    models: tuple[str, ...] | None,
    findings: list[Finding],
) -> list[Intent]:
    faults: list[Finding] = []
    reader = AmountReader(container, faults)
    count = reader.integer(key)
    memory, cores = reader.memory(f"{key}{MEMORY}", MIB), reader.percent(f"{key}{CORES}")
    chip = key.removeprefix(DOMAIN)
    use, no_use = f"hami.io/use-{chip}-uuid", f"hami.io/no-use-{chip}-uuid"
    uuids = listed_devices(pod.annotations, use, faults)
    findings += faults
    if faults or not count:
        return []
    keys = {"count": key, "memory": f"{key}{MEMORY}", "cores": f"{key}{CORES}"}
    aspects = {"uuids": use, "not_uuids": no_use, "models": USE_TYPE}
    if memory and not cores:
        findings.append(
            warning(
                Code.WHOLE_DEVICE,
                container.limit_path(keys["memory"]),
                f"without {printable(keys['cores'])} the share has all cores of the NPU, so nobody else "
                "gets any",
                f"set {printable(keys['cores'])}",
            )
        )
    return [
        Intent(
            container=container.name,
            kind=DeviceKind.NPU,
            count=count,
            memory=in_bytes(memory, MIB) if memory else None,
            # All of them is the default of the driver.
            cores_percent=cores or None,
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
