"""ResourceQuotas of device keys, extended so that they count the claims of translated pods. Pure.

A quota of a resource name counts pods with that name, and no claims. A quota of a DeviceClass counts
the devices that claims request of it (KEP-4381), and nothing in Kubernetes counts shares of a device.
One of the implicit name of a class counts claims from Kubernetes 1.35 on (KEP-5004), and gets the line, too.
Both kinds of line can stand in one quota, so a quota works before, during and after a migration.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from answers.manifests.translate import translate_objects
from kube.api.extended_resources import implicit_class
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity, format_count
from migration.conversion.quota_amounts import (
    DeviceUse,
    InvalidAmount,
    NamespaceUse,
    classes_of_line,
    devices_fault,
    divide_amount,
    limiting_amounts,
    read_amount,
    resource_name,
)
from quotas.resource_quotas.scopes import devices_of_class
from translation.cluster.snapshot import (
    Mode,
    QuotaPolicy,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.model.dimensions import counts_devices
from translation.model.intents import Vocabulary
from translation.profiles.profile import Profile
from translation.reading.arbiter import find_device_keys

_Selectors = frozenset[str]
"""The expressions by which requests of a resource name choose devices of a class."""
_OWNERS: Final = ("nvidia", "hami", "koordinator")
"""The vocabularies that `nvidia.com/gpu` may belong to, by the other keys of a pod."""
_EXCEEDED: Final = (
    "{amount}, and the pods and claims of today use {used}: new pods wait for their claims until these use less, or the "
    "amount is raised"
)
_NO_START: Final = (
    "{amount}, and the pods and claims of today use {used}: a workload without pods needs {start} for one, which waits for its claim until "
    "less is used, or the amount is raised"
)
_OTHERS: Final = (
    "{amount}, {number} of them for pods with other keys, which this quota did not count: twice what they use today; raise it if "
    "they may need more, since they wait for their claims above it"
)
_USING_KINDS: Final = {
    "Pod": "pods",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    DAEMON_SET: "daemonsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
    "ReplicationController": "replicationcontrollers",
}
"""Kinds that show what a namespace uses, to the resources that list them."""


class Split(StrEnum):
    """The amounts of the lines for claims, if a key may become devices of several classes."""

    WHOLE = "whole"
    """The whole amount for each class, so that every mix fits; together they are more than the old line."""
    USED = "used"
    """The amount that the namespace's pods use of each class today, with keys or claims, that workloads without pods
    need to start, and an equal part of the rest; together they are the old line."""


class QuotaEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The total that a line, and the lines that are added for it, allow together.

    Attributes:
        allows: The total as text.
        is_more: The total is more than the line allows alone.
        counts_claims: The line counts claims itself, those of the class that maps its key.
    """

    line: str
    allows: str
    is_more: bool
    counts_claims: bool = False


class ConvertedQuota(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A quota that names device keys.

    Attributes:
        object: `ResourceQuota/namespace/name`.
        added: Lines to be added to `spec.hard`.
        not_convertible: Line that stays alone to the reason.
        document: The quota with the added lines; None where none is added.
        effects: The total that each line and the lines that are added for it allow together.
    """

    object: str
    added: Mapping[str, str]
    not_convertible: Mapping[str, str]
    document: Mapping[str, Any] | None
    effects: tuple[QuotaEffect, ...] = ()


def knows_use(objects: Iterable[SourceObject], unreadable: Iterable[str]) -> bool:
    """Return True if objects include all pods, so that they show the present use of namespaces.

    Args:
        unreadable: Resources that could not be read.
    """
    if not set(unreadable).isdisjoint(_USING_KINDS.values()):
        return False
    return any(source.kind in _USING_KINDS for source in objects)


def convert_quotas(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
    usage: Mapping[str, NamespaceUse] | None = None,
    *,
    later_mappings: Mapping[str, str] = {},
    absent: Collection[str] = (),
    left_lines: Collection[tuple[str, str]] = (),
    unclaimed: Mapping[str, Collection[str]] = {},
) -> list[ConvertedQuota]:
    """Return each quota with device keys, in order.

    A class that maps the key of a line gets none: the line counts its claims itself, and a second one would
    count those that Kubernetes makes for pods with the key, which would wait above it. Of a size of MIG
    devices such a class is the only one that counts, since the class of all sizes counts others, too.

    Args:
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
        usage: Namespace to the devices that its pods use, by which amounts are divided (`Split.USED`); None for whole
            amounts.
        later_mappings: DeviceClass to the resource name that it maps by the time of its use, beside those
            that the objects have.
        absent: The DeviceClasses that are nowhere in the cluster, which get no part where a key may become devices of others.
        left_lines: Namespaces, each with a line of a class that their quotas do not get.
        unclaimed: Namespace to the DeviceClasses of native pods that keep their keys, which get no part of these.
    """
    mappings = {**later_mappings, **_class_mappings(objects)}
    snapshot = TranslationSnapshot(profiles=profiles)
    vocabularies = vocabularies_in_force(options, profiles)
    with_lines = [
        (source, lines)
        for source in objects
        if (source.api_version, source.kind) == ("v1", "ResourceQuota") and source.is_named
        if (lines := _device_lines(source, vocabularies))
    ]
    keys_of: dict[str, set[str]] = {
        source.namespace or namespace: set() for source, _ in with_lines
    }
    for source, lines in with_lines:
        keys_of[source.namespace or namespace].update(map(resource_name, lines))
    for source in objects:
        if (place := source.namespace or namespace) in keys_of and source.kind in _USING_KINDS:
            keys_of[place].update(find_device_keys(_requested_names(source), vocabularies))
    counted: dict[str, Mapping[str, _Selectors]] = {
        key: _classes_of(key, snapshot, options)
        if counts_devices(key, vocabularies.values())
        else {}
        for key in sorted(set().union(*keys_of.values()))
    }
    converted_quotas = []
    for source, lines in with_lines:
        place = source.namespace or namespace
        own_keys = keys_of[place]
        used = None if usage is None else usage.get(place, NamespaceUse())
        parts_of: dict[str, Mapping[str, Quantity]] = {}
        limiting = limiting_amounts(lines)
        missing: dict[str, str] = {}
        effects: list[QuotaEffect] = []
        for line, value in lines.items():
            key, amount = resource_name(line), read_amount(value)
            reason = _reason(source, line, amount, vocabularies.values())
            if not reason:
                reason = _sharing_reason(key, own_keys, counted)
                if reason and key in mappings.values():
                    continue  # Kubernetes counts the claims of the class that maps this size under the line.
            if reason or isinstance(amount, InvalidAmount):
                missing[line] = reason
                continue
            claimed = _claimed_classes(counted[key], key, mappings, unclaimed.get(place, ()))
            # The webhook asks for a line of each class, whichever key pods have for it.
            counts_others = options.quota is QuotaPolicy.DENY
            own_classes = classes_of_line(claimed, absent, key, used, counts_others=counts_others)
            mapped = {name for name in own_classes if mappings.get(name) == key}
            divided = divide_amount(
                *(limiting[key], own_classes, used.of(key) if used else None),
                with_lines=_classes_with_lines(source, own_classes),
                mapped=mapped,
            )
            parts_of[key] = parts = {
                name: part
                for name, part in divided.items()
                if name not in mapped and (place, devices_of_class(name)) not in left_lines
            }
            own = [name for name in own_classes if name in mapped]
            effects.append(
                QuotaEffect(
                    line=line,
                    allows=_effect(amount, own, parts),
                    is_more=any(part > ZERO for part in parts.values()),
                    counts_claims=bool(own),
                )
            )
        beside = _room_for_others(lines.keys() - missing.keys(), used)
        added_amounts = _with_room(_amounts_of_classes(parts_of.values()), beside)
        converted_quota = _convert_quota(source, namespace, added_amounts, missing)
        effects += _lines_of_others(converted_quota.added, beside)
        effects += _exceeded_lines(converted_quota.added, used.all if used else DeviceUse())
        converted_quotas.append(
            msgspec.structs.replace(
                converted_quota, effects=tuple(effects) if converted_quota.added else ()
            )
        )
    return converted_quotas


def _amounts_of_classes(parts: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    """Return the line of each class to the sum of its parts."""
    amounts: dict[str, Quantity] = {}
    for name, part in (entry for own in parts for entry in own.items()):
        of_class = devices_of_class(name)
        amounts[of_class] = amounts.get(of_class, ZERO) + part
    return amounts


def _device_lines(
    source: SourceObject, vocabularies: Mapping[str, Vocabulary]
) -> Mapping[str, object]:
    """Return the lines of a quota that name device keys, with their amounts as they are written."""
    hard = _hard(source)
    names = {resource_name(line) for line in hard}
    keys = {*find_device_keys(names, vocabularies), *filter(implicit_class, names)}
    return {line: amount for line, amount in hard.items() if resource_name(line) in keys}


def _reason(
    source: SourceObject,
    line: str,
    amount: Quantity | InvalidAmount,
    vocabularies: Iterable[Vocabulary],
) -> str:
    """Explain that no quota can count a line for claims; empty if one can."""
    spec = source.document["spec"]
    if spec.get("scopes") or spec.get("scopeSelector"):
        return "a quota with scopes counts no claims"
    if isinstance(amount, InvalidAmount):
        return amount.reason
    if not counts_devices(resource_name(line), vocabularies):
        return "no ResourceQuota counts shares of a device; a DeviceQuota does: drawbridge quota convert --to device"
    return devices_fault(amount)


def _requested_names(source: SourceObject) -> set[str]:
    """Return the resource names that the containers of a pod, or of a workload's pods, request."""
    path = pod_path(source.api_version, source.kind)
    if path is None:
        return set()
    _, spec = resolve_path(source.document, (*path, "spec"))
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        _, containers = resolve_path(spec, (field,))
        for container in containers if isinstance(containers, list) else ():
            for amounts in ("limits", "requests"):
                _, by_name = resolve_path(container, ("resources", amounts))
                names.update(map(str, by_name) if isinstance(by_name, Mapping) else ())
    return names


def _sharing_reason(
    key: str, keys: Iterable[str], counted: Mapping[str, Mapping[str, _Selectors]]
) -> str:
    """Explain that a line for claims would not limit a key alone; empty if it would.

    A quota of a class counts all its devices, whatever a claim selects of them: small MIG devices, too,
    where the old line was about large ones.

    Args:
        key: The resource name of the line.
        keys: The resource names of the quotas and of the pods of its namespace.
        counted: Resource name to its classes.
    """
    if not counted[key]:
        return "no driver serves this resource name"
    for name, selectors in counted[key].items():
        others = sorted(other for other in keys if counted[other].get(name, selectors) != selectors)
        if others:
            return (
                f"a quota of class {name} counts devices of all sizes, also those of {', '.join(others)}; "
                "create a DeviceClass for each size that maps its resource name, have a DeviceQuota count both (drawbridge quota convert --to device), or give the limit up (translation.quota: warn)"
            )
    return ""


def _effect(amount: Quantity, own: Sequence[str], parts: Mapping[str, Quantity]) -> str:
    """Return the total that a line and the lines for claims allow together.

    Args:
        amount: The amount of the line.
        own: The classes whose claims the line counts itself.
        parts: Class to the amount of its own line.
    """
    claims = ZERO
    for part in parts.values():
        claims += part
    texts = ", ".join(f"{format_count(part)} of class {name}" for name, part in parts.items())
    with_own = f" and claims of class {', '.join(own)} together" if own else ""
    text = format_count(amount)
    allows = f"pods with the key{with_own} {text}"
    if not parts:
        return allows
    together = format_count(amount + claims)
    return (
        f"{allows}, claims {format_count(claims)} ({texts}); together {together}, and {text} before"
    )


def _classes_with_lines(source: SourceObject, classes: Iterable[str]) -> frozenset[str]:
    """Return the classes that a quota has a line for already."""
    hard = _hard(source)
    return frozenset(name for name in classes if devices_of_class(name) in hard)


def _claimed_classes(
    classes: Iterable[str], key: str, mappings: Mapping[str, str], unclaimed: Collection[str]
) -> list[str]:
    """Return the classes of a key that claims may have, or pods by the key."""
    return [name for name in classes if mappings.get(name) == key or name not in unclaimed]


def _room_for_others(lines: Iterable[str], used: NamespaceUse | None) -> Mapping[str, int]:
    """Return the line of each class to its room for pods that the old lines did not count."""
    rooms = used.beside(set(map(resource_name, lines))) if used else {}
    return {devices_of_class(name): number for name, number in rooms.items()}


def _with_room(amounts: Mapping[str, Quantity], rooms: Mapping[str, int]) -> dict[str, Quantity]:
    """Return the amounts of added lines with the room for others."""
    return {line: amount + Quantity(rooms.get(line, 0)) for line, amount in amounts.items()}


def _lines_of_others(added: Mapping[str, str], beside: Mapping[str, int]) -> Iterator[QuotaEffect]:
    """Yield the added lines that count pods with other keys, too."""
    for line in sorted(added.keys() & beside.keys()):
        allows = _OTHERS.format(amount=format_count(Quantity(added[line])), number=beside[line])
        yield QuotaEffect(line=line, allows=allows, is_more=False)


def _exceeded_lines(added: Mapping[str, str], use: DeviceUse) -> Iterator[QuotaEffect]:
    """Yield the added lines that are less than a namespace uses of their classes, or needs to start pods of a workload."""
    for name in sorted({*use.now}.union(*(start.of_pod for start in use.starts))):
        line, number = devices_of_class(name), use.now.get(name, 0)
        start = max((start.of_pod.get(name, 0) for start in use.starts), default=0)
        if line not in added:
            continue
        amount = Quantity(added[line])
        if Quantity(number + start) <= amount:
            continue
        text = _EXCEEDED if Quantity(number) > amount else _NO_START
        allows = text.format(amount=format_count(amount), used=number, start=start)
        yield QuotaEffect(line=line, allows=allows, is_more=False)


def _class_mappings(objects: Iterable[SourceObject]) -> Mapping[str, str]:
    """Return DeviceClass to the resource name that it maps."""
    mappings = {}
    for source in objects:
        spec = source.document.get("spec") if source.kind == "DeviceClass" else None
        name = spec.get("extendedResourceName") if isinstance(spec, Mapping) else None
        if isinstance(name, str) and name:
            mappings[source.name] = name
    return mappings


def _convert_quota(
    source: SourceObject,
    namespace: str,
    added_amounts: Mapping[str, Quantity],
    not_convertible: Mapping[str, str],
) -> ConvertedQuota:
    present = {
        line for line, value in _hard(source).items() if isinstance(read_amount(value), Quantity)
    }
    lines = {line: str(amount) for line, amount in added_amounts.items() if line not in present}
    return ConvertedQuota(
        object=_reference(source, namespace),
        added=lines,
        not_convertible=not_convertible,
        document=_with_lines(source, lines) if lines else None,
    )


def _hard(source: SourceObject) -> dict[str, object]:
    """Return the lines of a quota with their amounts as they are written."""
    spec = source.document.get("spec")
    hard = spec.get("hard") if isinstance(spec, Mapping) else None
    return {str(line): value for line, value in hard.items()} if isinstance(hard, Mapping) else {}


def _classes_of(
    key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Mapping[str, _Selectors]:
    """Return the DeviceClasses of the claims of a pod with this key of any system.

    A quota is converted before its namespace takes part, so the mode does not matter.
    """
    if implicit_class(key):
        return {implicit_class(key): frozenset()}
    classes: dict[str, set[str]] = {}
    container = {"name": "probe", "image": "probe", "resources": {"limits": {key: "1"}}}
    probe = SourceObject(
        document={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {"containers": [container]},
        },
        source="a probe",
        line=0,
    )
    for owner in _OWNERS:
        owner_options = msgspec.structs.replace(options, default_gpu_owner=owner, mode=Mode.OPT_OUT)
        (result,) = translate_objects(
            [probe], snapshot=snapshot, options=owner_options, namespace="probe"
        )
        for claim in result.claims:
            for request in claim.requests():
                classes.setdefault(request["deviceClassName"], set()).update(
                    selector["cel"]["expression"] for selector in request.get("selectors") or ()
                )
    return {name: frozenset(expressions) for name, expressions in classes.items()}


def _with_lines(source: SourceObject, lines: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the quota to apply, without the API server's additions."""
    document = copy.deepcopy(source.document)
    document.pop("status", None)
    document["metadata"] = {
        field: value
        for field, value in document["metadata"].items()
        if field in {"name", "namespace", "labels", "annotations"}
    }
    document["spec"]["hard"] = {**document["spec"]["hard"], **lines}
    return document


def with_converted_quotas(
    objects: Iterable[SourceObject], quotas: Iterable[ConvertedQuota], namespace: str
) -> tuple[SourceObject, ...]:
    """Return objects with their quotas as they would be, once the added lines are applied.

    Args:
        namespace: The namespace for objects that name none.
    """
    documents = {quota.object: quota.document for quota in quotas if quota.document is not None}
    return tuple(
        source
        if source.kind != "ResourceQuota"
        or (document := documents.get(_reference(source, namespace))) is None
        else msgspec.structs.replace(source, document=dict(document))
        for source in objects
    )


def _reference(source: SourceObject, namespace: str) -> str:
    return f"ResourceQuota/{source.namespace or namespace}/{source.name}"
