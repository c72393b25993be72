"""Totals of Koordinator's keys, and the reasons that its scheduler rejects those of GPUs.

Source: koordinator-sh/koordinator, pkg/scheduler/plugins/deviceshare/utils.go, ValidateDeviceRequest.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from findings.equal_requests import IN_BOTH
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, error, warning
from findings.fitting import Correction
from findings.text import printable
from kube.api.resource import MAX_RESULTS
from kube.quantity import Format, Quantity
from translation.model.intents import SPEC
from translation.vocabularies.koordinator.keys import (
    CORE,
    MEMORY,
    PERCENT,
    RATIO,
    SHARED,
    WHOLE,
    WHOLE_GPU,
)

_LEGAL: Final = frozenset(
    map(
        frozenset,
        (
            {WHOLE_GPU},
            {SHARED, MEMORY},
            {SHARED, RATIO},
            {SHARED, CORE, MEMORY},
            {SHARED, CORE, RATIO},
        ),
    )
)
"""The sets of GPU keys that the scheduler accepts, after its webhook has replaced `gpu` by core and
ratio and added `gpu.shared`. Of the seventeen sets in its code, {gpu}, {gpu-memory}, {ratio},
{core, memory} and {core, ratio} become these; {fpga} and {rdma} are other devices; {amd}, {dcu} and
the three with npu-core are other vendors'."""

MAX_GPUS_OF_NODE: Final = 8
"""The most GPUs of common nodes: up to it a percentage may be meant as a number of GPUs."""
_IN_ALL: Final = " in all of the pod's containers"
_IN_BOTH: Final = f",{IN_BOTH}"
"""Koordinator's pods have these keys in both, and the API server wants them equal."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a pod.

    Attributes:
        amounts: Key to the pod's amount: bytes, percent or a number.
        paths: Key to the path of its first occurrence.
        sets_shared: The pod itself sets the number of GPUs among which the totals are divided.
        is_sum: Several containers request GPUs, so a total is not an amount that someone wrote.
    """

    amounts: Mapping[str, int]
    paths: Mapping[str, FieldPath]
    sets_shared: bool = False
    is_sum: bool = False

    def path(self, *keys: str) -> FieldPath:
        """Return the path of the first of the keys that the pod has."""
        return next((self.paths[key] for key in keys if key in self.paths), SPEC)


def check_gpu_keys(amounts: Mapping[str, int], totals: Totals) -> Iterator[Finding]:
    """Yield the reasons that Koordinator's scheduler rejects these GPU keys.

    Source: ValidateDeviceRequest.
    """
    if frozenset(amounts) not in _LEGAL:
        yield _illegal_combination(amounts, totals)
        return
    if WHOLE_GPU in amounts:
        return
    count = amounts[SHARED]
    for key in (CORE, RATIO):
        if key in amounts:
            yield from _check_divisible(key, amounts[key], count, totals)
    per_gpu = amounts[MEMORY if MEMORY in amounts else RATIO] // count
    if per_gpu == 0:
        yield error(
            Code.OUT_OF_RANGE,
            totals.path(MEMORY, RATIO, PERCENT),
            "leaves no memory for each GPU",
            "request memory, or remove the other GPU keys",
        )


def _check_divisible(key: str, amount: int, count: int, totals: Totals) -> Iterator[Finding]:
    path = totals.path(key, PERCENT)
    per_gpu, rest = divmod(amount, count)
    if per_gpu > WHOLE or (per_gpu == WHOLE and rest):
        if not totals.sets_shared and not totals.is_sum:
            yield _more_than_counted(key, amount, count, totals)
            return
        finding = error(
            Code.OUT_OF_RANGE,
            path,
            f"{amount} percent are {per_gpu} for each of {count} GPUs, at most 100",
            f"request at most {count * WHOLE}{_IN_ALL if totals.is_sum else ''}",
        )
        yield finding if totals.is_sum else finding.corrected_by(Quantity(count * WHOLE))
    elif rest and amount <= WHOLE and totals.sets_shared and not totals.is_sum:
        yield _total_or_part(key, amount, count, totals)
    elif rest:
        multiple = (per_gpu + 1) * count
        finding = error(
            Code.OUT_OF_RANGE,
            path,
            f"{amount} percent in all of the pod's containers cannot be divided by {count} GPUs",
            f"request {multiple}{_IN_ALL if totals.is_sum else ''}, a multiple of {count}",
        )
        yield finding if totals.is_sum else finding.corrected_by(Quantity(multiple))


def _total_or_part(key: str, amount: int, count: int, totals: Totals) -> Finding:
    """Return the error for a percentage that is no total of several GPUs, and may be that of each of them.

    The memory beside it was probably meant alike.
    """
    path = totals.path(key, PERCENT)
    name = _key_at(path)
    of_each = [f"{name}: {amount * count}"]
    parts = [f"{amount} percent"]
    divided = []
    for other in (CORE, RATIO, MEMORY):
        total, place = totals.amounts.get(other), totals.paths.get(other)
        if other == key or not total or place is None or place == path:
            continue
        texts = [_amount_text(other, value) for value in (total, total * count, total // count)]
        of_each.append(f"{_key_at(place)}: {texts[1]}")
        parts.append(f"{texts[0]}{'' if other == MEMORY else ' percent'}")
        divided.append(f"{_key_at(place)}: {texts[0]} is {texts[2]} of each")
    multiple = (amount // count + 1) * count
    beside = f", beside which {' and '.join(divided)}" if divided else ""
    return error(
        Code.OUT_OF_RANGE,
        path,
        f"{amount} percent{_IN_ALL} cannot be divided by {count} GPUs: the amounts are totals, not those of each GPU",
        f"write {' and '.join(of_each)} for {' and '.join(parts)} of each GPU, or {name}: {multiple} for "
        f"{multiple // count} percent of each{beside}",
    )


def _amount_text(key: str, amount: int) -> str:
    return str(Quantity.from_int(amount, Format.BINARY)) if key == MEMORY else str(amount)


def _more_than_counted(key: str, amount: int, count: int, totals: Totals) -> Finding:
    """Return the error for percentages above those of the GPUs that they count as.

    Source: injectGPU, which counts GPUs by gpu-memory-ratio, and by gpu-core only without it.
    """
    ratio = totals.amounts.get(RATIO)
    path, ratio_path = totals.path(key, PERCENT), totals.path(RATIO, PERCENT)
    if ratio is None or ratio_path == path:
        return not_a_multiple(path, amount)
    cores_name, ratio_name = _key_at(path), _key_at(ratio_path)
    gpus = min(-(-max(amount, ratio) // WHOLE), MAX_RESULTS)
    values = {
        cores_name: min(-(-amount // gpus), WHOLE) * gpus,
        ratio_name: gpus * WHOLE,
    }
    old_values = {cores_name: amount, ratio_name: ratio}
    changes = ", ".join(
        f"{name}: {value}" for name, value in values.items() if value != old_values[name]
    )
    counts_whole_gpus = ratio <= WHOLE or ratio % WHOLE == 0
    fewer_cores = f", or {cores_name}: {count * WHOLE}" if counts_whole_gpus else ""
    finding = error(
        Code.OUT_OF_RANGE,
        path,
        f"{amount} percent are more than the {count * WHOLE} of {count} GPU{'s' * (count > 1)}, "
        f"which {ratio_name}: {ratio} counts as",
        f"write {changes} for {gpus} GPUs{fewer_cores}{_IN_BOTH}",
    )
    if fewer_cores:
        return finding  # Fewer cores, or more GPUs.
    corrections = tuple(
        Correction(path=place, amount=Quantity(values[name]))
        for name, place in ((cores_name, path), (ratio_name, ratio_path))
        if values[name] != old_values[name]
    )
    return replace(finding, corrections=corrections)


def _key_at(path: FieldPath) -> str:
    """Return the key of a limit as the pod has it, before an annotation renames it."""
    last = path.steps[-1]
    return printable(last.name) if isinstance(last, Key) else ""


def not_a_multiple(path: FieldPath, amount: int) -> Finding:
    """Return the error for more than one device of 100 percent, and a part of another."""
    devices = min(-(-amount // WHOLE), MAX_RESULTS)
    return error(
        Code.OUT_OF_RANGE,
        path,
        f"{amount} percent is above 100 and not a multiple of 100",
        f"write {devices * WHOLE} for {devices} whole devices{_IN_BOTH}",
    ).corrected_by(Quantity(devices * WHOLE))


def check_few_percent(totals: Totals) -> Iterator[Finding]:
    """Yield a warning about so few percent of a GPU that they probably mean whole GPUs."""
    path, percent = totals.paths.get(PERCENT), totals.amounts.get(RATIO, 0)
    # Without another key, the percentages of cores and memory are those of this one.
    if path is not None and path == totals.paths.get(RATIO) and 0 < percent <= MAX_GPUS_OF_NODE:
        gpus = "one whole GPU" if percent == 1 else f"{percent} whole GPUs"
        yield warning(
            Code.WRONG_UNIT,
            path,
            f"{percent} is {percent} percent of one GPU",
            f"write {percent * WHOLE} for {gpus}",
        )


def _illegal_combination(amounts: Mapping[str, int], totals: Totals) -> Finding:
    combined_keys = [key for key in amounts if key in totals.paths or key != SHARED]
    without = ""
    if WHOLE_GPU in amounts:
        fix = f"request whole GPUs with {WHOLE_GPU}, or shares with Koordinator's keys"
    elif MEMORY in amounts and RATIO in amounts:
        fix = f"request the memory once: {MEMORY} in bytes, or {RATIO} in percent"
    else:
        without = " without memory"
        fix = f"also request memory: {MEMORY} in bytes, or {RATIO} in percent"
    return error(
        Code.INVALID_COMBINATION,
        totals.path(*combined_keys),
        f"Koordinator rejects pods that request {' and '.join(combined_keys)}{without}",
        fix,
    )
