"""The quotas of a cluster that name devices: ResourceQuotas, and those of other schedulers.

Sources: see `kube.api.foreign_quotas`. tensor-fusion: a quota that has a struct with zero in it allows
nothing of it, so only amounts that are there are read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from allocator.declarations.read import VOLCANO_NAMES
from answers.model.findings import namespace_of
from answers.model.views import decode_view
from kube.api.foreign_quotas import BY_TYPE, IS_PARENT, ForeignQuota, ForeignQuotaObject
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.conversion.quota_amounts import InvalidAmount, devices_fault, read_amount
from migration.quotas.measures import Measures
from migration.quotas.model import FoundQuota, Part, QuotaLine, free_name, name_of
from translation.reading.claim_blind_objects import find_named_keys
from translation.reading.foreign_quotas import summarize_foreign_quota
from translation.vocabularies import tensorfusion

_RESOURCE_QUOTA: Final = ("v1", "ResourceQuota")
_PREFIXES: Final = ("requests.", "limits.")
_SCOPES: Final = "a quota with scopes counts no claims"
_FAIR_SHARE: Final = "guarantees, weights and trees are of a queue: Kueue's or Volcano's"
_QUEUE_NAMES: Final = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
"""Annotations and labels of pods with their queue; the second is of pods of Volcano's Jobs."""
_POD_GROUP: Final = ("scheduling.volcano.sh/v1beta1", "PodGroup")
_OF_ELASTIC_QUOTA: Final = "those of Koordinator's scheduler that are in it"
_OF_QUEUE: Final = "those in it"
_TREE: Final = "quota.scheduling.koordinator.sh/"
_KEYS: Final[Mapping[str, str]] = {
    "vram": tensorfusion.MEMORY[0],
    "tflops": tensorfusion.TFLOPS[0],
}
"""Words of tensor-fusion's quotas to the annotation by which pods request them."""


class _Surroundings(NamedTuple):
    """The context that the reading of a quota depends on."""

    namespace: str
    measures: Measures
    namespaces_of_queues: Mapping[str, Sequence[str]]


class _ReadLines(NamedTuple):
    """The lines of a resource list, and those without a valid amount to the reason."""

    lines: tuple[QuotaLine, ...]
    invalid: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all lines."""
        return (*(line.name for line in self.lines), *self.invalid)


def find_quotas(
    objects: Sequence[SourceObject], measures: Measures, namespace: str
) -> Iterator[FoundQuota]:
    """Yield the quotas that name devices, in order.

    Args:
        namespace: The namespace for objects that name none.
    """
    surroundings = _Surroundings(namespace, measures, _namespaces_of_queues(objects, namespace))
    names: set[str] = set()
    for source in objects:
        spec = source.document.get("spec")
        if not source.is_named or not isinstance(spec, Mapping):
            continue
        foreign = BY_TYPE.get((source.api_version, source.kind))
        if (source.api_version, source.kind) == _RESOURCE_QUOTA:
            quota = _resource_quota(source, spec, measures, namespace)
        elif foreign is not None:
            quota = _foreign_quota(source, foreign, surroundings)
        else:
            continue
        if quota.lines or quota.dropped:
            name = free_name(quota.name, names)
            names.add(name)
            yield replace(quota, name=name)


def _resource_quota(
    source: SourceObject, spec: Mapping[str, Any], measures: Measures, namespace: str
) -> FoundQuota:
    place = namespace_of(source, namespace)
    hard = _read_lines(spec.get("hard"), "", measures)
    found_quota = FoundQuota(
        object=_reference(source, place), name=name_of(place, source.name), is_core=True
    )
    if spec.get("scopes") or spec.get("scopeSelector"):
        return replace(found_quota, dropped=dict.fromkeys(hard.names, _SCOPES))
    lines = tuple(_counted_lines(hard.lines, measures))
    return replace(found_quota, namespaces=(place,), lines=lines, dropped=hard.invalid)


def _counted_lines(lines: Iterable[QuotaLine], measures: Measures) -> Iterator[QuotaLine]:
    """Yield the lines of a ResourceQuota, those beside a valid one that Kubernetes counts with the amount of that.

    HAMi's scheduler counts `limits.` of its own pods, which are all that have amounts of devices.

    Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core/pods.go, isExtendedResourceNameForQuota: of extended
    resources `requests.` alone is counted.
    """
    own = tuple(lines)
    counting = {
        line.key: line
        for line in own
        if line.name == f"{_PREFIXES[0]}{line.key}"
        and measures.counts_devices(line.key)
        and not devices_fault(line.amount)
    }
    for line in own:
        other = counting.get(line.key, line)
        yield line if other is line else replace(line, amount=other.amount, counted_by=other.name)


def _foreign_quota(
    source: SourceObject, kind: ForeignQuota, surroundings: _Surroundings
) -> FoundQuota:
    spec, measures = source.document["spec"], surroundings.measures
    place = namespace_of(source, surroundings.namespace) if kind.namespaced else ""
    found_quota = FoundQuota(object=_reference(source, place), name=name_of(place, source.name))
    match kind.kind, kind.owner:
        case "ElasticQuota", _:
            return _elastic_quota(found_quota, source, place, measures)
        case "GPUResourceQuota", _:
            return _gpu_resource_quota(found_quota, spec, place)
        case "Queue", "Volcano":
            namespaces = surroundings.namespaces_of_queues.get(source.name, ())
            return _volcano_queue(found_quota, spec, namespaces, measures)
        case _:
            names = sorted(find_named_keys(source.document, measures.vocabularies))
            why = f"the {kind.kind} of {kind.owner} names no namespace"
            return replace(found_quota, dropped=dict.fromkeys(names, why))


def _elastic_quota(
    found_quota: FoundQuota, source: SourceObject, place: str, measures: Measures
) -> FoundQuota:
    spec = source.document["spec"]
    dropped = dict.fromkeys(_read_lines(spec.get("min"), "min.", measures).names, _FAIR_SHARE)
    metadata = source.document.get("metadata")
    of_object: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    for field in ("labels", "annotations"):
        names = of_object.get(field)
        for name in sorted(map(str, names)) if isinstance(names, Mapping) else ():
            if name.startswith(_TREE) and name not in _HARMLESS:
                dropped[name] = _FAIR_SHARE
    most = _read_lines(spec.get("max"), "max.", measures)
    labels = of_object.get("labels")
    if isinstance(labels, Mapping) and labels.get(IS_PARENT) == "true":
        of_parent = dict.fromkeys(most.names, "no pod is counted by a parent directly")
        return replace(found_quota, dropped=dropped | of_parent)
    view = decode_view(source.document, ForeignQuotaObject)
    summary = summarize_foreign_quota(view) if isinstance(view, ForeignQuotaObject) else None
    others = summary.namespaces if summary is not None else ()
    namespaces = tuple(dict.fromkeys((place, *others)))
    dropped = {**dropped, **most.invalid} if most.names else {}
    return replace(
        found_quota,
        namespaces=namespaces,
        lines=most.lines,
        counted_pods=_OF_ELASTIC_QUOTA,
        dropped=dropped,
    )


_HARMLESS: Final = frozenset({f"{_TREE}namespaces", f"{_TREE}name"})


def _gpu_resource_quota(found_quota: FoundQuota, spec: Mapping[str, Any], place: str) -> FoundQuota:
    total, single = _mapping(spec.get("total")), _mapping(spec.get("single"))
    lines: list[QuotaLine] = []
    dropped: dict[str, str] = {}
    for part, field, scope in (
        (total, "requests", Part.TOTAL),
        (total, "limits", Part.TOTAL),
        (single, "maxRequests", Part.DEVICE),
        (single, "maxLimits", Part.DEVICE),
    ):
        prefix = "total" if scope is Part.TOTAL else "single"
        for word, value in _mapping(part.get(field)).items():
            name, key = f"{prefix}.{field}.{word}", _KEYS.get(str(word), "")
            amount = read_amount(value)
            if not key:
                dropped[name] = "a claim has no such amount"
            elif isinstance(amount, InvalidAmount):
                dropped[name] = amount.reason
            elif any(line.key == key and line.part is scope for line in lines):
                dropped[name] = "a claim has one amount, which is the request"
            else:
                lines.append(QuotaLine(name=name, key=key, amount=amount, part=scope))
    counts = _read_counts(total, single)
    lines += counts.lines
    dropped |= counts.invalid
    for field in ("defaultLimits", "defaultRequests"):
        if single.get(field):
            dropped[f"single.{field}"] = "a quota sets no defaults"
    percent = total.get("alertThresholdPercent")
    return replace(
        found_quota,
        namespaces=(place,),
        lines=tuple(lines),
        dropped=dropped,
        alert_percent=percent if isinstance(percent, int) and 0 <= percent <= 100 else None,
    )


def _read_counts(total: Mapping[str, Any], single: Mapping[str, Any]) -> _ReadLines:
    """Return the numbers of workers and devices of a GPUResourceQuota."""
    lines: list[QuotaLine] = []
    invalid: dict[str, str] = {}
    for name, key, value, scope in (
        ("total.maxWorkers", "", total.get("maxWorkers"), Part.TOTAL),
        ("single.maxGPUCount", tensorfusion.GPU_COUNT, single.get("maxGPUCount"), Part.REQUEST),
    ):
        amount = read_amount(value)
        if isinstance(amount, Quantity):
            lines.append(QuotaLine(name=name, key=key, amount=amount, part=scope))
        elif value is not None:
            invalid[name] = amount.reason
    return _ReadLines(tuple(lines), invalid)


def _volcano_queue(
    found_quota: FoundQuota,
    spec: Mapping[str, Any],
    namespaces: Sequence[str],
    measures: Measures,
) -> FoundQuota:
    capability = _read_lines(spec.get("capability"), "capability.", measures)
    dropped = {
        name: _FAIR_SHARE
        for field in ("deserved", "guarantee")
        for name in _read_lines(_of_guarantee(spec.get(field)), f"{field}.", measures).names
    }
    why = "no pod that was read is in the queue, or its namespace is in several queues"
    return replace(
        found_quota,
        namespaces=tuple(namespaces),
        unknown_namespaces="" if namespaces else why,
        lines=capability.lines,
        counted_pods=_OF_QUEUE,
        dropped={**dropped, **capability.invalid},
    )


def _of_guarantee(part: object) -> object:
    return part["resource"] if isinstance(part, Mapping) and "resource" in part else part


def _namespaces_of_queues(
    objects: Iterable[SourceObject], namespace: str
) -> Mapping[str, Sequence[str]]:
    """Return each queue of Volcano with the namespaces that have pods in it and in no other."""
    objects = tuple(objects)
    of_groups = {
        (namespace_of(source, namespace), source.name): _text(spec.get("queue"))
        for source in objects
        if (source.api_version, source.kind) == _POD_GROUP
        for spec in [_mapping(source.document.get("spec"))]
    }
    queues: dict[str, set[str]] = defaultdict(set)
    for source in objects:
        path = pod_path(source.api_version, source.kind)
        if path is None:
            continue
        _, metadata = resolve_path(source.document, (*path, "metadata"))
        place = namespace_of(source, namespace)
        groups = _values(metadata, ("annotations",), VOLCANO_NAMES)
        in_groups = {name for group in groups if (name := of_groups.get((place, group), ""))}
        # Volcano goes by the queue of the PodGroup, which it copies from a pod where it makes one itself.
        names = in_groups or set(_values(metadata, ("annotations", "labels"), _QUEUE_NAMES))
        if names:
            queues[place] |= names
    namespaces: dict[str, list[str]] = defaultdict(list)
    for place, names in sorted(queues.items()):
        if len(names) == 1:
            namespaces[next(iter(names))].append(place)
    return namespaces


def _values(metadata: object, fields: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Return the values of labels or annotations of an object."""
    maps = [_mapping(_mapping(metadata).get(field)) for field in fields]
    return [name for names in maps for key in keys if (name := _text(names.get(key)))]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _read_lines(amounts: object, prefix: str, measures: Measures) -> _ReadLines:
    """Return the lines of a resource list that name devices."""
    lines: list[QuotaLine] = []
    invalid: dict[str, str] = {}
    for resource, value in _mapping(amounts).items():
        key = str(resource)
        for of_quota in _PREFIXES:
            key = key.removeprefix(of_quota)
        if not measures.is_device_key(key):
            continue
        name, amount = f"{prefix}{resource}", read_amount(value)
        if isinstance(amount, InvalidAmount):
            invalid[name] = amount.reason
        else:
            lines.append(QuotaLine(name=name, key=key, amount=amount))
    return _ReadLines(tuple(lines), invalid)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _reference(source: SourceObject, namespace: str) -> str:
    return "/".join(part for part in (source.kind, namespace, source.name) if part)
