"""Koordinator: shares of GPUs, RDMA NICs and FPGAs, their joint allocation, and its hints.

Amounts are totals of the pod, divided by the number of devices; all containers of the pod see all
of the devices. Source: koordinator-sh/koordinator, pkg/scheduler/plugins/deviceshare (utils.go,
devicehandler_gpu.go, devicehandler_default.go, device_allocator.go), apis/extension, and
pkg/webhook/pod/mutating/device_resource_spec.go, whose defaults (on, unless the gate
DisableDeviceResourceSpec is) are applied here.
Not translated: the keys of other vendors that Koordinator reads (Huawei, AMD, Hygon), labels of its
Device objects, presets of devices, and restricted partitions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.quantity import Format, Quantity
from webhook.amounts import whole
from webhook.findings import Code, Finding, error, has_errors, shown, warning
from webhook.intents import (
    Alignment,
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Scope,
    Translation,
    Vocabulary,
)
from webhook.keys import Place, annotations, names
from webhook.vocabularies.koordinator_keys import (
    ALLOCATED,
    CORE,
    FOREIGN_GPUS,
    FPGA,
    GPU_KEYS,
    HINT,
    ISOLATION_LABEL,
    JOINT,
    MEMORY,
    OWN_KEYS,
    PARTITION,
    PERCENT,
    RATIO,
    RDMA,
    REPLACE,
    SHARED,
    TABLE,
    WHOLE_GPU,
)

MAX_AMOUNT: Final = 2**63 - 1
"""What the API server's quantities hold."""
WHOLE: Final = 100
"""Percent of one device."""

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
"""The sets of GPU keys that the scheduler takes, once its webhook has written `gpu` as core and
ratio and added `gpu.shared`. Of the seventeen that its code lists, {gpu}, {gpu-memory}, {ratio},
{core, memory} and {core, ratio} become these; {fpga} and {rdma} are other devices; {amd}, {dcu} and
the three with npu-core are other vendors'."""


class _Hint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the hint says of one type of device; a missing selector is None, an empty one is not."""

    selector: Mapping[str, Any] | None = None
    vf_selector: Mapping[str, Any] | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _Joint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The joint-allocate annotation; the first of the types is the primary one."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class _PartitionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The partition annotation."""

    allocate_policy: str = ""
    ring_bus_bandwidth: str = ""


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations say, decoded."""

    hints: Mapping[str, _Hint] = {}
    joint: _Joint | None = None


class _Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod asks for in all.

    Attributes:
        amounts: Key to the pod's amount; bytes, percent or number.
        paths: Key to the first place that says it.
        said_shared: The pod itself says how many GPUs share its totals.
    """

    amounts: Mapping[str, int]
    paths: Mapping[str, str]
    said_shared: bool = False

    def path(self, *keys: str) -> str:
        """Return the place of the first of the keys that the pod says."""
        return next((self.paths[key] for key in keys if key in self.paths), "spec")


def takes_whole_gpus(pod: LegacyPod) -> bool:
    """Whether `nvidia.com/gpu` is Koordinator's in this pod.

    It is where an annotation says something of GPUs that only Koordinator knows: how to allocate
    them jointly, by which partition, or which key stands for them.
    """
    named = {key for container in pod.containers for key in container.limits}
    return (
        (JOINT in pod.annotations and any(key in named for key in OWN_KEYS))
        or PARTITION in pod.annotations
        or any(WHOLE_GPU in pair for pair in _replacements(pod.annotations.get(REPLACE, "")))
    )


def translate(pod: LegacyPod) -> Translation:
    """Return the devices of the pod, for all of its containers."""
    findings: list[Finding] = []
    replaced = _replaced(pod, findings)
    totals = _totals(replaced, findings)
    if has_errors(findings):
        return Translation(findings=tuple(findings))
    wishes = _read_annotations(pod.annotations, findings)
    users = _users(pod)
    intents = [
        intent
        for intent in (
            _gpus(totals, wishes.hints.get("gpu", _Hint()), findings),
            _others(DeviceKind.NIC, RDMA, totals, wishes.hints.get("rdma", _Hint()), findings),
            _others(DeviceKind.FPGA, FPGA, totals, wishes.hints.get("fpga", _Hint()), findings),
        )
        if intent is not None
    ]
    if not intents and not has_errors(findings):
        return Translation()  # Annotations mean nothing to a pod that asks for no device.
    findings += _isolation(pod, intents)
    return Translation(
        intents=tuple(
            msgspec.structs.replace(intent, container=users[0], also=users[1:])
            for intent in intents
        ),
        alignment=_alignment(wishes.joint, intents, findings),
        findings=tuple(findings),
    )


def _users(pod: LegacyPod) -> tuple[str, ...]:
    """Return who uses the devices, first one that asks for them.

    Every app container, as koordlet opens them to each; of the init containers those that ask.
    """
    ordered = sorted(pod.containers, key=lambda one: (not one.limits, one.init))
    return tuple(dict.fromkeys(one.name for one in ordered if one.limits or not one.init))


# --- totals ---------------------------------------------------------------------------------------


def _totals(pod: LegacyPod, findings: list[Finding]) -> _Totals:
    """Return the pod's amounts: the larger of what runs first and the sum of what runs together.

    Source: k8s.io/component-helpers/resource, PodRequests.
    """
    paths: dict[str, str] = {}
    running: dict[str, int] = {}
    first: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in pod.containers:
        if not container.limits:
            continue
        for key in container.limits:
            paths.setdefault(key, container.limit_path(key))
        amounts = _defaulted(_read(container, findings))
        runs_first = container.init and not container.sidecar
        if runs_first:
            for key, amount in amounts.items():
                first[key] = max(first.get(key, 0), amount + beside.get(key, 0))
            continue
        for key, amount in amounts.items():
            running[key] = running.get(key, 0) + amount
            if container.sidecar:
                beside[key] = beside.get(key, 0) + amount
    totals = {
        key: max(running.get(key, 0), first.get(key, 0)) for key in sorted({*running, *first})
    }
    for key in (CORE, RATIO):
        if PERCENT in paths:
            paths.setdefault(key, paths[PERCENT])
    return _Totals(amounts=totals, paths=paths, said_shared=SHARED in paths)


def _read(container: LegacyContainer, findings: list[Finding]) -> Mapping[str, int]:
    """Return the amounts of one container; what is wrong with them by themselves is told."""
    amounts: dict[str, int] = {}
    for key in sorted(container.limits):
        path = container.limit_path(key)
        amount = whole(container, key)
        if isinstance(amount, Finding):
            findings.append(amount)
        elif key in FOREIGN_GPUS:
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    path,
                    "a device that Koordinator shares beside its own keys, and no driver here has",
                    "ask for the vendor's device without Koordinator's keys",
                )
            )
        elif amount is not None and amount > MAX_AMOUNT:
            findings.append(
                error(
                    Code.OUT_OF_RANGE,
                    path,
                    f"Invalid value: {container.limits[key]}: must be at most {MAX_AMOUNT}",
                    "ask for less",
                )
            )
        elif amount is not None:
            amounts[key] = amount
    beside = [key for key in GPU_KEYS if key in amounts and key != PERCENT]
    if PERCENT in amounts and beside:
        findings.append(
            error(
                Code.INVALID_COMBINATION,
                container.limit_path(PERCENT),
                f"stands for gpu-core and gpu-memory-ratio, so {beside[0]} cannot stand beside it",
                f"write {CORE} and {RATIO} instead",
            )
        )
    return amounts


def _defaulted(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return one container's amounts as Koordinator's webhook writes them.

    Unlike there, init containers get the same defaults: sums of two spellings fit no legal set.
    """
    defaulted = {key: amount for key, amount in amounts.items() if key != PERCENT}
    if PERCENT in amounts:
        defaulted |= {CORE: amounts[PERCENT], RATIO: amounts[PERCENT]}
    if SHARED in defaulted or not any(key in defaulted for key in GPU_KEYS):
        return defaulted
    percent = defaulted.get(RATIO, defaulted.get(CORE, 0))
    several = percent > WHOLE and percent % WHOLE == 0
    return defaulted | {SHARED: percent // WHOLE if several else 1}


# --- GPUs -----------------------------------------------------------------------------------------


def _gpus(totals: _Totals, hint: _Hint, findings: list[Finding]) -> Intent | None:
    asked = {
        key: totals.amounts[key]
        for key in (WHOLE_GPU, CORE, MEMORY, RATIO, SHARED)
        if key in totals.amounts
    }
    if not any(amount for key, amount in asked.items() if key != SHARED or totals.said_shared):
        return None
    # Both halves of the deprecated spelling have the same faults.
    faults = dict.fromkeys(_illegal(asked, totals))
    if faults:
        findings += faults
        return None
    count = asked.get(WHOLE_GPU) or asked[SHARED]
    intent = Intent(
        container="",
        kind=DeviceKind.GPU,
        count=count,
        paths={
            "count": totals.path(SHARED, WHOLE_GPU, PERCENT, RATIO, MEMORY),
            "memory": totals.path(MEMORY, RATIO, PERCENT),
            "cores": totals.path(CORE, PERCENT),
            "scope": _path(HINT),
        },
    )
    if WHOLE_GPU in asked:
        intent = msgspec.structs.replace(intent, exclusive=True, cores_percent=WHOLE)
    else:
        intent = _share(intent, asked, count)
    return _hinted(intent, hint, findings)


def _share(intent: Intent, asked: Mapping[str, int], count: int) -> Intent:
    """Return the intent with what each of the GPUs gives: the totals, divided and rounded down."""
    cores = asked[CORE] // count if CORE in asked else None
    if MEMORY in asked:
        memory = Quantity.from_int(asked[MEMORY] // count, Format.BINARY)
        return msgspec.structs.replace(intent, memory=memory, cores_percent=cores or 0)
    percent = asked[RATIO] // count
    if percent < WHOLE:
        return msgspec.structs.replace(intent, memory_percent=percent, cores_percent=cores or 0)
    # All of the memory leaves nothing for anybody else, whatever was said of the cores.
    takes_all = cores is None or cores == WHOLE
    return msgspec.structs.replace(
        intent, exclusive=takes_all, cores_percent=WHOLE if takes_all else cores
    )


def _illegal(asked: Mapping[str, int], totals: _Totals) -> Iterator[Finding]:
    """Yield why the scheduler would not take these GPU keys.

    Source: ValidateDeviceRequest.
    """
    if frozenset(asked) not in _LEGAL:
        yield _not_together(asked, totals)
        return
    if WHOLE_GPU in asked:
        return
    count = asked[SHARED]
    if count == 0:
        yield error(
            Code.OUT_OF_RANGE,
            totals.path(SHARED),
            "Invalid value: 0: must be at least 1 GPU",
            "write the number of GPUs that share the amounts",
        )
        return
    for key in (CORE, RATIO):
        if key in asked:
            yield from _indivisible(key, asked[key], count, totals)
    per_gpu = asked[MEMORY if MEMORY in asked else RATIO] // count
    if per_gpu == 0:
        yield error(
            Code.OUT_OF_RANGE,
            totals.path(MEMORY, RATIO, PERCENT),
            "leaves no memory for each GPU",
            "ask for memory, or leave the other GPU keys out, too",
        )


def _indivisible(key: str, amount: int, count: int, totals: _Totals) -> Iterator[Finding]:
    path = totals.path(key, PERCENT)
    if not totals.said_shared and amount // count > WHOLE:
        yield _not_a_multiple(path, amount)
    elif amount % count:
        yield error(
            Code.OUT_OF_RANGE,
            path,
            f"{amount} percent in all of the pod's containers cannot be divided by {count} GPUs",
            f"ask for a multiple of {count}",
        )
    elif amount // count > WHOLE:
        yield error(
            Code.OUT_OF_RANGE,
            path,
            f"{amount} percent are {amount // count} for each of {count} GPUs, at most 100",
            f"ask for at most {count * WHOLE}",
        )


def _not_a_multiple(path: str, amount: int) -> Finding:
    return error(
        Code.OUT_OF_RANGE,
        path,
        f"Invalid value: {amount}: above 100 percent must be a multiple of 100",
        f"write {-(-amount // WHOLE) * WHOLE} for whole devices",
    )


def _not_together(asked: Mapping[str, int], totals: _Totals) -> Finding:
    named = [key for key in asked if key in totals.paths or key != SHARED]
    if WHOLE_GPU in asked:
        fix = f"ask for whole GPUs with {WHOLE_GPU}, or for shares with Koordinator's keys"
    elif MEMORY in asked and RATIO in asked:
        fix = f"say the memory once: {MEMORY} in bytes, or {RATIO} in percent"
    else:
        fix = f"say the memory, too: {MEMORY} in bytes, or {RATIO} in percent"
    return error(
        Code.INVALID_COMBINATION,
        totals.path(*named),
        f"Koordinator takes no pod that asks for {' and '.join(named)}",
        fix,
    )


# --- NICs and FPGAs -------------------------------------------------------------------------------


def _others(
    kind: DeviceKind, key: str, totals: _Totals, hint: _Hint, findings: list[Finding]
) -> Intent | None:
    """Return the wish for devices of which each is 100 percent.

    Source: DefaultDeviceHandler. The strategies mean nothing to an amount above 100 percent.
    """
    amount = totals.amounts.get(key, 0)
    path = totals.path(key)
    if not amount:
        return None
    if amount > WHOLE and amount % WHOLE:
        findings.append(_not_a_multiple(path, amount))
        return None
    several = amount > WHOLE
    as_count = hint.allocate_strategy == "RequestsAsCount" and not several
    percent = WHOLE if several else (1 if as_count else amount)
    intent = Intent(
        container="",
        kind=kind,
        count=amount // WHOLE if several else (amount if as_count else 1),
        every=hint.allocate_strategy == "ApplyForAll" and not several,
        exclusive=percent == WHOLE,
        cores_percent=percent,
        filter=DeviceFilter(resource=key if kind is DeviceKind.NIC else None),
        paths={"count": path, "cores": path, "memory": path, "scope": _path(HINT)},
    )
    return _hinted(intent, hint, findings)


# --- annotations ----------------------------------------------------------------------------------

_STRATEGIES: Final = ("", "ApplyForAll", "RequestsAsCount")
_SCOPES: Final[Mapping[str, Scope | None]] = {
    "": None,
    "Node": None,
    "NUMANode": Scope.NUMA_NODE,
    "PCIe": Scope.PCIE_ROOT,
    "Device": None,
}
_POLICIES: Final = ("", "DeviceLevel", "PCIeLevel")
_TYPES: Final = {"gpu": DeviceKind.GPU, "rdma": DeviceKind.NIC, "fpga": DeviceKind.FPGA}
_SAME_PCIE: Final = "SamePCIe"


def _hinted(intent: Intent, hint: _Hint, findings: list[Finding]) -> Intent:
    """Return the intent with what its hint asks for."""
    scope = hint.required_topology_scope
    is_gpu = intent.kind is DeviceKind.GPU
    if hint.selector:
        findings.append(_labels_of_devices("selector"))
    if hint.vf_selector:
        findings.append(_labels_of_devices("vfSelector"))
    elif hint.vf_selector is not None:
        findings.append(
            _dropped("vfSelector: whether devices are virtual functions is the class's")
        )
    if is_gpu and hint.allocate_strategy:
        findings.append(_dropped(f"{hint.allocate_strategy} means nothing to GPUs"))
    if hint.exclusive_policy == "PCIeLevel":
        findings.append(_dropped("PCIeLevel: other pods may come under the same PCIe root"))
    if scope == "Device" and (intent.count > 1 or intent.every):
        findings.append(_unfit_scope(f"{scope} holds one device, {intent.count} are asked for"))
    if is_gpu and _SCOPES.get(scope) and intent.count > 1 and not _whole_gpus(intent):
        findings.append(_unfit_scope("Koordinator gives shares of several GPUs no common scope"))
    if hint.exclusive_policy == "DeviceLevel" and not intent.exclusive:
        findings.append(
            warning(
                Code.WHOLE_DEVICE,
                intent.path("count"),
                "exclusivePolicy DeviceLevel wants devices to itself: all of each is claimed",
            )
        )
        intent = msgspec.structs.replace(
            intent, exclusive=True, memory=None, memory_percent=None, cores_percent=WHOLE
        )
    return msgspec.structs.replace(intent, within=_SCOPES.get(scope))


def _whole_gpus(intent: Intent) -> bool:
    return intent.memory is None and intent.memory_percent is None


def _labels_of_devices(name: str) -> Finding:
    return error(
        Code.CANNOT_EXPRESS,
        _path(HINT),
        f"{name} matches labels of Koordinator's Device objects, which drivers do not publish",
        "give the devices a DeviceClass of their own, and a profile that names it",
    )


def _unfit_scope(message: str) -> Finding:
    return error(Code.OUT_OF_RANGE, _path(HINT), message, "leave requiredTopologyScope out")


def _dropped(message: str) -> Finding:
    return warning(Code.POLICY_DROPPED, _path(HINT), message)


def _read_annotations(annotations: Mapping[str, str], findings: list[Finding]) -> _Wishes:
    hints = _decoded(annotations, HINT, dict[str, _Hint], findings) or {}
    for kind, hint in sorted(hints.items()):
        _known(HINT, f"{kind}.allocateStrategy", hint.allocate_strategy, _STRATEGIES, findings)
        scope = hint.required_topology_scope
        _known(HINT, f"{kind}.requiredTopologyScope", scope, tuple(_SCOPES), findings)
        _known(HINT, f"{kind}.exclusivePolicy", hint.exclusive_policy, _POLICIES, findings)
    joint = _decoded(annotations, JOINT, _Joint, findings)
    if joint is not None:
        _known(JOINT, "requiredScope", joint.required_scope, ("", _SAME_PCIE), findings)
    partition = _decoded(annotations, PARTITION, _PartitionSpec, findings)
    if partition is not None:
        _partition(partition, findings)
    if annotations.get(ALLOCATED, "").strip():
        findings.append(
            error(
                Code.CANNOT_EXPRESS,
                _path(ALLOCATED),
                "presets devices by number, which only Koordinator's scheduler can obey",
                "remove the annotation, so that any devices that fit will do",
            )
        )
    return _Wishes(hints=hints, joint=joint)


def _partition(spec: _PartitionSpec, findings: list[Finding]) -> None:
    policies = ("", "BestEffort", "Restricted")
    _known(PARTITION, "allocatePolicy", spec.allocate_policy, policies, findings)
    if spec.allocate_policy == "Restricted":
        findings.append(
            error(
                Code.CANNOT_EXPRESS,
                _path(PARTITION),
                "no driver publishes Koordinator's table of partitions, which Restricted demands",
                "write BestEffort, or remove the annotation",
            )
        )
    else:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                _path(PARTITION),
                "a claim cannot prefer a partition of GPUs; the preference is dropped",
            )
        )


def _alignment(
    joint: _Joint | None, intents: Sequence[Intent], findings: list[Finding]
) -> Alignment | None:
    if joint is None:
        return None
    # Source: tryJointAllocate and its callers: ApplyForAll takes a type out of it.
    asked = {intent.kind for intent in intents if not intent.every}
    kinds = tuple(
        dict.fromkeys(_TYPES[name] for name in joint.device_types if _TYPES.get(name) in asked)
    )
    if len(kinds) > 1:
        required = joint.required_scope == _SAME_PCIE
        return Alignment(kinds=kinds, required=required, path=_path(JOINT))
    if not has_errors(findings):
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                _path(JOINT),
                "the pod asks for fewer than two of its deviceTypes: there is nothing to align",
            )
        )
    return None


def _decoded(
    annotations: Mapping[str, str], key: str, type_: type[Any], findings: list[Finding]
) -> Any:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as fault:
        findings.append(
            error(
                Code.MALFORMED_ANNOTATION,
                _path(key),
                f"{shown(text)} is not what Koordinator reads: {shown(str(fault))}",
                "write the JSON that Koordinator documents",
            )
        )
        return None


def _known(
    annotation: str, field: str, value: str, known: Iterable[str], findings: list[Finding]
) -> None:
    if value not in known:
        findings.append(
            error(
                Code.MALFORMED_ANNOTATION,
                _path(annotation),
                f"{shown(field)}: there is no {shown(value)}",
                f"write one of {', '.join(filter(None, known))}",
            )
        )


def _isolation(pod: LegacyPod, intents: Sequence[Intent]) -> Iterator[Finding]:
    provider = pod.labels.get(ISOLATION_LABEL)
    if provider and any(not one.exclusive for one in intents if one.kind is DeviceKind.GPU):
        yield warning(
            Code.NOT_INJECTED,
            f"metadata.labels[{ISOLATION_LABEL}]",
            f"koordlet sets the variables of {shown(provider)}, and sees no claims: limits of "
            "memory and cores are kept where the driver sets them itself, as HAMi's does",
        )


# --- replaced keys --------------------------------------------------------------------------------


def _replacements(text: str) -> list[tuple[str, str]]:
    """Return old and new key of each pair; an empty new one deletes.

    >>> _replacements("a:b,c:,d")
    [('a', 'b'), ('c', '')]
    """
    split = (pair.strip().partition(":") for pair in text.split(","))
    return [(old.strip(), new.strip()) for old, colon, new in split if colon]


def _replaced(pod: LegacyPod, findings: list[Finding]) -> LegacyPod:
    """Return the pod with its keys renamed as an annotation wants, which Koordinator does first."""
    pairs = _replacements(pod.annotations.get(REPLACE, ""))
    if not pairs:
        return pod
    known = {WHOLE_GPU, *OWN_KEYS, *FOREIGN_GPUS}
    named = {key for container in pod.containers for key in container.limits}
    for old, new in pairs:
        if new and new not in known and old in named:
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    _path(REPLACE),
                    f"{shown(old)} would become {shown(new)}, which is none of Koordinator's keys",
                    "write the resource that the pod needs, and remove the annotation",
                )
            )
        elif old not in named and new in known:
            findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    _path(REPLACE),
                    f"{shown(old)} is not read here, so it does not become {shown(new)}",
                )
            )
    return msgspec.structs.replace(
        pod,
        containers=tuple(
            msgspec.structs.replace(one, limits=_renamed(one.limits, pairs))
            for one in pod.containers
        ),
    )


def _renamed(
    limits: Mapping[str, Quantity], pairs: Iterable[tuple[str, str]]
) -> Mapping[str, Quantity]:
    renamed = dict(limits)
    for old, new in pairs:
        amount = renamed.pop(old, None)
        if amount is not None and new:
            renamed[new] = amount
    return renamed


def _path(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


VOCABULARY: Final = Vocabulary(
    name="koordinator",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    foreign=names(TABLE, Place.FOREIGN),
    annotations=annotations(TABLE),
    labels=names(TABLE, Place.LABEL),
    whole_pod=True,
    translate=translate,
)
