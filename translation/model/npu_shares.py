"""The amounts of NPUs that one container requests, as HAMi grants them.

Source: Project-HAMi/HAMi v2.10, pkg/device/ascend/device.go, MutateAdmission, GenerateResourceRequests.
"""

from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, has_errors, info, warning
from findings.text import printable
from translation.model.intents import LegacyContainer
from translation.model.npu_chips import NpuChip
from translation.model.share_amounts import MIB, AmountReader

MEMORY: Final = "-memory"
CORES: Final = "-core"
SOFT_MODE: Final = "hami-core"
_SOFT: Final = "huawei.com/vnpu-mode: hami-core"
_ANNOTATIONS: Final = FieldPath.of("metadata", "annotations")
_ADD_SOFT: Final = f"add {_SOFT} to {_ANNOTATIONS}"


class NpuShare(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that each of several NPUs gives.

    Attributes:
        memory: The memory in MiB; None for all of it.
        cores_percent: None for all of them.
    """

    count: int
    memory: int | None = None
    cores_percent: int | None = None


class ShareReader(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one chip in a container.

    Attributes:
        key: The resource name of the number of NPUs.
        chip: None for a chip that nothing describes.
        is_soft: Shares are limited in software, not by templates.
        findings: The list that findings are added to.
    """

    container: LegacyContainer
    key: str
    chip: NpuChip | None
    is_soft: bool
    findings: list[Finding]


def read_share(reader: ShareReader) -> NpuShare | None:
    """Return the NPUs that a container requests; None for none, or if a finding says the fault."""
    container, key, chip = reader.container, reader.key, reader.chip
    faults: list[Finding] = []
    amounts = AmountReader(container, faults)
    count = amounts.integer(key)
    memory, cores = (
        amounts.memory(f"{key}{MEMORY}", MIB),
        amounts.cores(f"{key}{CORES}", count, "NPU"),
    )
    if not has_errors(faults) and count:
        _check(reader, amounts, count, memory, cores)
    reader.findings.extend(faults)
    if has_errors(faults) or not count:
        return None
    share = _soft_share(reader, memory, cores) if reader.is_soft else _hard_share(reader, memory)
    if chip is not None and chip.super_pod:
        reader.findings.append(
            warning(
                Code.NOT_PUBLISHED_BY_DRIVER,
                container.limit_path(key),
                "HAMi allocates modules of two NPUs: "
                f"{'1 becomes 2' if count == 1 else 'the number is kept'}, and the NPUs may be of "
                "different modules, which the driver does not publish",
            )
        )
        count = max(2, count)
    return msgspec.structs.replace(share, count=count)


def _check(
    reader: ShareReader, amounts: AmountReader, count: int, memory: int | None, cores: int | None
) -> None:
    """Add an error for each request that HAMi refuses."""
    chip, key = reader.chip, reader.key
    if chip is not None and chip.super_pod and count > 1 and count % 2:
        amounts.fail(
            Code.OUT_OF_RANGE,
            key,
            f"{count} is neither 1 nor even, and the NPUs are allocated in modules of two",
            f"write {count + 1}",
            right=count + 1,
        )
    if cores and not reader.is_soft:
        amounts.fail(
            Code.INVALID_COMBINATION,
            f"{key}{CORES}",
            f"a template fixes the cores, so HAMi accepts the key only with the annotation {_SOFT}",
            f"{_ADD_SOFT}; or remove the key: the container then gets "
            + (f"the cores of a template for {memory} MiB" if memory else "a whole NPU"),
            fix_place=_ANNOTATIONS,
        )
    if memory is None or chip is None:
        return
    if not reader.is_soft and memory > chip.memory_capacity:
        amounts.fail(
            Code.OUT_OF_RANGE,
            f"{key}{MEMORY}",
            f"{memory} MiB is more than the {chip.memory_capacity} MiB of an NPU",
            f"write at most {chip.memory_capacity}",
            right=chip.memory_capacity,
        )
    if count > 1 and not reader.is_soft and chip.template(memory) is not None:
        amounts.fail(
            Code.INVALID_COMBINATION,
            f"{key}{MEMORY}",
            "HAMi gives several virtual NPUs to a container only with the annotation "
            f"{_SOFT}, as templates divide one NPU",
            f"{_ADD_SOFT}, or write {printable(key)}: 1; or remove the amount: the container then gets "
            f"{count} whole NPUs",
            fix_place=_ANNOTATIONS,
        )


def _soft_share(reader: ShareReader, memory: int | None, cores: int | None) -> NpuShare:
    if not memory or cores:
        return NpuShare(count=1, memory=memory or None, cores_percent=cores or None)
    # HAMi reserves no cores then. The driver makes them the priority of the container, and one of 0
    # would let it starve; all of them, the driver's default, would keep others from the NPU.
    part = 1 if reader.chip is None else reader.chip.percent_of_memory(memory)
    reader.findings.append(
        info(
            Code.AMOUNT_ROUNDED_UP,
            reader.container.limit_path(f"{reader.key}{MEMORY}"),
            f"HAMi reserves no cores without {printable(reader.key)}{CORES}; the claim reserves {part} "
            "percent, the same part as of the memory",
        )
    )
    return NpuShare(count=1, memory=memory, cores_percent=part)


def _hard_share(reader: ShareReader, memory: int | None) -> NpuShare:
    """Return the share of a template; it is limited in software, with a finding."""
    if memory is None:
        return NpuShare(count=1)
    key, chip = reader.key, reader.chip
    path = reader.container.limit_path(f"{key}{MEMORY}")
    if chip is None:
        message = (
            f"the templates of {printable(key)} are not known, and HAMi rounds up to one: the amount is "
            "as written, and limited in software"
        )
        fix = f"describe the chip in the setting translation.ascendChips, or {_ADD_SOFT}"
        reader.findings.append(_with_place(warning(Code.POLICY_DROPPED, path, message, fix)))
        return NpuShare(count=1, memory=memory or None, cores_percent=1 if memory else None)
    template = chip.template(memory)
    if template is None:
        if memory < chip.memory_allocatable:
            message = f"no template has {memory} MiB: the container gets a whole NPU, as in HAMi"
            reader.findings.append(warning(Code.WHOLE_DEVICE, path, message))
        return NpuShare(count=1)
    name = printable(template.name)
    dropped = warning(
        Code.POLICY_DROPPED,
        path,
        f"HAMi makes a virtual NPU of template {name}, {template.memory} MiB and "
        f"{template.ai_core} of {chip.ai_core} cores; the driver limits the same amounts in software",
        f"{_ADD_SOFT} to choose the amounts yourself",
    )
    reader.findings.append(_with_place(dropped))
    if template.memory != memory:
        message = f"{memory} MiB becomes the {template.memory} MiB of template {name}, as in HAMi"
        reader.findings.append(info(Code.AMOUNT_ROUNDED_UP, path, message))
    return NpuShare(
        count=1,
        memory=template.memory,
        cores_percent=chip.percent_of_cores(template.ai_core),
    )


def _with_place(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, fix_place=_ANNOTATIONS)
