"""Koordinator's annotations: device hints, joint allocation, partition specs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_origin

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from findings.text import quote_text
from translation.model.choices import Exclusivity
from translation.model.intents import (
    Alignment,
    DeviceKind,
    Intent,
    LegacyPod,
    Scope,
    annotation_path,
)
from translation.vocabularies.koordinator.keys import (
    ALLOCATED,
    HINT,
    ISOLATION_LABEL,
    JOINT,
    PARTITION,
    WHOLE,
)
from translation.vocabularies.koordinator.label_selectors import read_requirements


class Hint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The hint for one type of device; a missing selector is None, an empty one is not."""

    selector: Mapping[str, Any] | None = None
    vf_selector: Mapping[str, Any] | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _JointAllocate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The joint-allocate annotation; the first type is the primary one."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class _PartitionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The gpu-partition-spec annotation."""

    allocate_policy: str = ""
    ring_bus_bandwidth: str | int | float | None = None


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations, decoded."""

    hints: Mapping[str, Hint] = {}
    joint: _JointAllocate | None = None
    partition: bool = False


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


def apply_hint(
    intent: Intent, hint: Hint, exclusivity: Exclusivity, findings: list[Finding]
) -> Intent:
    """Return the intent with the requirements of its hint."""
    scope = hint.required_topology_scope
    is_gpu = intent.kind is DeviceKind.GPU
    intent = _select_labels(intent, hint, findings)
    if is_gpu and hint.allocate_strategy:
        findings.append(_dropped_policy(f"{hint.allocate_strategy} has no effect on GPUs"))
    if hint.exclusive_policy == "PCIeLevel":
        findings.append(_dropped_policy("PCIeLevel: other pods may use the same PCIe root"))
    if scope == "Device" and (intent.count > 1 or intent.every):
        findings.append(_invalid_scope(f"{scope} is one device, {intent.count} are requested"))
    if is_gpu and _SCOPES.get(scope) and intent.count > 1 and not _whole_gpus(intent):
        findings.append(_invalid_scope("Koordinator supports no scope for shares of several GPUs"))
    if hint.exclusive_policy == "DeviceLevel" and not intent.exclusive:
        intent = _at_device_level(intent, hint, exclusivity, findings)
    return msgspec.structs.replace(intent, within=_scope_in_force(intent, scope, findings))


def _select_labels(intent: Intent, hint: Hint, findings: list[Finding]) -> Intent:
    """Return the intent with the requirements of both selectors on labels.

    A claim allocates the virtual function itself, so the labels of its physical function are its own.
    """
    if hint.selector is None and hint.vf_selector is None:
        return intent
    device_filter = msgspec.structs.replace(
        intent.filter,
        labels=(
            *read_requirements("selector", hint.selector, findings),
            *read_requirements("vfSelector", hint.vf_selector, findings),
        ),
        virtual_function=hint.vf_selector is not None,
    )
    path = annotation_path(HINT)
    paths = {**intent.paths, "labels": path, "virtual_function": path}
    return msgspec.structs.replace(intent, filter=device_filter, paths=paths)


def _scope_in_force(intent: Intent, scope: str, findings: list[Finding]) -> Scope | None:
    """Return the scope of the devices; None if Koordinator's code does not read it.

    Source: parseGPURequirements, which reads the hint about GPUs only; GPUAllocator.Allocate, which
    looks for a partition before it looks at topology.
    """
    within = _SCOPES.get(scope)
    if within is None:
        return None
    if intent.kind is not DeviceKind.GPU:
        findings.append(
            _dropped_policy(f"requiredTopologyScope {scope} has an effect on GPUs only")
        )
        return None
    if intent.partition:
        findings.append(
            _dropped_policy(f"requiredTopologyScope {scope} has no effect beside a partition")
        )
        return None
    return within


def _at_device_level(
    intent: Intent, hint: Hint, exclusivity: Exclusivity, findings: list[Finding]
) -> Intent:
    """Return the intent for exclusive devices; unchanged if a share is to stay a share.

    Source: DefaultDeviceHandler. Koordinator's code reads the policy only beside RequestsAsCount, its
    documentation promises exclusive devices everywhere.
    """
    counted = hint.allocate_strategy == "RequestsAsCount" and intent.kind is not DeviceKind.GPU
    if exclusivity is Exclusivity.NEVER and not counted:
        findings.append(
            _dropped_policy(
                "exclusivePolicy DeviceLevel: others may share the devices, as in Koordinator's code"
            )
        )
        return intent
    findings.append(
        warning(
            Code.WHOLE_DEVICE,
            intent.path("count"),
            "exclusivePolicy DeviceLevel requires exclusive devices: the claim requests all of each",
        )
    )
    return msgspec.structs.replace(
        intent, exclusive=True, memory=None, memory_percent=None, cores_percent=WHOLE
    )


def _whole_gpus(intent: Intent) -> bool:
    return intent.memory is None and intent.memory_percent is None


def _invalid_scope(message: str) -> Finding:
    return error(Code.OUT_OF_RANGE, annotation_path(HINT), message, "remove requiredTopologyScope")


def _dropped_policy(message: str) -> Finding:
    return warning(Code.POLICY_DROPPED, annotation_path(HINT), message)


def read_annotations(annotations: Mapping[str, str], findings: list[Finding]) -> Annotations:
    """Decode the annotations; invalid and unsupported values become findings."""
    hints = _decode(annotations, HINT, dict[str, Hint], findings) or {}
    for kind, hint in sorted(hints.items()):
        _check_known(
            HINT, f"{kind}.allocateStrategy", hint.allocate_strategy, _STRATEGIES, findings
        )
        scope = hint.required_topology_scope
        _check_known(HINT, f"{kind}.requiredTopologyScope", scope, tuple(_SCOPES), findings)
        _check_known(HINT, f"{kind}.exclusivePolicy", hint.exclusive_policy, _POLICIES, findings)
    joint_allocate = _decode(annotations, JOINT, _JointAllocate, findings)
    if joint_allocate is not None:
        _check_known(
            JOINT, "requiredScope", joint_allocate.required_scope, ("", _SAME_PCIE), findings
        )
    partition = _decode(annotations, PARTITION, _PartitionSpec, findings)
    if partition is not None:
        _check_partition(partition, findings)
    if annotations.get(ALLOCATED, "").strip():
        findings.append(
            warning(
                Code.ALLOCATION_IGNORED,
                annotation_path(ALLOCATED),
                "assigns the devices of an earlier pod by number; it has no effect, as in Koordinator,"
                " and the scheduler allocates devices anew",
                "remove the annotation",
            )
        )
    return Annotations(hints=hints, joint=joint_allocate, partition=partition is not None)


def _check_partition(spec: _PartitionSpec, findings: list[Finding]) -> None:
    """Add a finding for each part of the spec that partitions of a driver do not have.

    Source: allocateByPartition: the GPUs of a pod must be one partition under every policy.
    """
    policies = ("", "BestEffort", "Restricted")
    _check_known(PARTITION, "allocatePolicy", spec.allocate_policy, policies, findings)
    if spec.allocate_policy == "Restricted":
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(PARTITION),
                "partitions of a driver have no allocation score, so Restricted accepts every partition "
                "of the size",
            )
        )
    if spec.ring_bus_bandwidth not in {None, "", "0"}:
        findings.append(
            error(
                Code.CANNOT_EXPRESS,
                annotation_path(PARTITION),
                "no driver publishes the bandwidth of a partition, which ringBusBandwidth requires",
                "remove ringBusBandwidth",
            )
        )


def apply_partition(intent: Intent, findings: list[Finding]) -> Intent:
    """Return the intent with the requirement of one partition; without effect on shares."""
    if not _whole_gpus(intent):
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(PARTITION),
                "a partition has no effect on shares of GPUs, as in Koordinator",
            )
        )
        return intent
    return msgspec.structs.replace(intent, partition=True)


def hints_gpus(text: str) -> bool:
    """Return True if the hint annotation has a hint about GPUs; also if it cannot be read."""
    findings: list[Finding] = []
    hints = _decode({HINT: text}, HINT, dict[str, Hint], findings)
    return bool(findings) or "gpu" in (hints or {})


def alignment_of(
    joint_allocate: _JointAllocate | None, intents: Sequence[Intent], findings: list[Finding]
) -> Alignment | None:
    """Return the alignment of the intents; None if the pod requests none."""
    if joint_allocate is None:
        return None
    # Source: tryJointAllocate and its callers: ApplyForAll excludes a type.
    requested_kinds = {intent.kind for intent in intents if not intent.every}
    kinds = tuple(
        dict.fromkeys(
            _TYPES[name]
            for name in joint_allocate.device_types
            if _TYPES.get(name) in requested_kinds
        )
    )
    if len(kinds) > 1:
        required = joint_allocate.required_scope == _SAME_PCIE
        return Alignment(kinds=kinds, required=required, path=annotation_path(JOINT))
    if not has_errors(findings):
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(JOINT),
                "the pod requests fewer than two of its deviceTypes: there is nothing to align",
            )
        )
    return None


_EXAMPLES: Final[Mapping[str, str]] = {
    HINT: '{"gpu":{"requiredTopologyScope":"NUMANode"}}',
    JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
    PARTITION: '{"allocatePolicy":"BestEffort"}',
}
"""A value of each annotation that is JSON."""


def _decode(
    annotations: Mapping[str, str], key: str, type_: type[Any], findings: list[Finding]
) -> Any:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return msgspec.convert(_with_go_names(msgspec.json.decode(text), type_), type_)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as fault:
        findings.append(
            error(
                Code.MALFORMED_ANNOTATION,
                annotation_path(key),
                f"{quote_text(text)} is not valid for Koordinator: {quote_text(str(fault))}",
                f"write JSON such as {_EXAMPLES[key]}",
            )
        )
        return None


def _with_go_names(value: Any, type_: type[Any]) -> Any:
    """Return a JSON object with the names of fields as the type has them.

    Source: Go's encoding/json, which ignores the case of names of fields, and not of keys of maps.
    """
    if not isinstance(value, dict):
        return value
    if get_origin(type_) is dict:
        return {key: _with_go_names(item, Hint) for key, item in value.items()}
    names = {
        field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(type_)
    }
    return {names.get(key.lower(), key): item for key, item in value.items()}


def _check_known(
    annotation: str, field: str, value: str, known_values: Iterable[str], findings: list[Finding]
) -> None:
    if value not in known_values:
        findings.append(
            warning(
                Code.POLICY_DROPPED,
                annotation_path(annotation),
                f"{quote_text(field)}: {quote_text(value)} does not exist, and has no effect, as in "
                "Koordinator",
                f"remove {quote_text(field)}, or write {' or '.join(map(quote_text, filter(None, known_values)))}",
            )
        )


def check_isolation(pod: LegacyPod, intents: Sequence[Intent]) -> Iterator[Finding]:
    """Yield a warning for a label that requests an isolation provider; a claim provides none."""
    provider = pod.labels.get(ISOLATION_LABEL)
    if provider and any(
        not intent.exclusive for intent in intents if intent.kind is DeviceKind.GPU
    ):
        yield warning(
            Code.NOT_INJECTED,
            FieldPath.of("metadata", "labels").key(ISOLATION_LABEL),
            f"koordlet sets the variables of {quote_text(provider)}, and ignores claims: memory and cores "
            "are limited only if the driver does so itself, as HAMi's does",
        )
