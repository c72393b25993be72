"""The quotas of a cluster that name devices: ResourceQuotas, and those of other schedulers.

Sources: see `kube.api.foreign_quotas`. tensor-fusion: a quota that has a struct with zero in it allows
nothing of it, so only amounts that are there are read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from answers.model.findings import namespace_of
from answers.model.views import decode_view
from kube.api.foreign_quotas import BY_TYPE, IS_PARENT, ForeignQuota, ForeignQuotaObject
from kube.api.workloads import pod_path, resolve_path
from kube.errors import QuantityError
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.quotas.measures import Measures
from migration.quotas.model import FoundQuota, Part, QuotaLine, free_name, name_of
from translation.reading.foreign_quotas import summarize_foreign_quota
from translation.vocabularies import tensorfusion

_RESOURCE_QUOTA: Final = ("v1", "ResourceQuota")
_PREFIXES: Final = ("requests.", "limits.")
_SCOPES: Final = "a quota with scopes counts no claims"
_FAIR_SHARE: Final = "guarantees, weights and trees are of a queue: Kueue's or Volcano's"
_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
_TREE: Final = "quota.scheduling.koordinator.sh/"
_KEYS: Final[Mapping[str, str]] = {
    "vram": tensorfusion.MEMORY[0],
    "tflops": tensorfusion.TFLOPS[0],
}
"""Words of tensor-fusion's quotas to the annotation by which pods request them."""


class _Surroundings(NamedTuple):
    """Beside a quota, what its reading depends on."""

    namespace: str
    measures: Measures
    namespaces_of_queues: Mapping[str, Sequence[str]]


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
    lines = tuple(_lines(spec.get("hard"), "", measures))
    found_quota = FoundQuota(
        object=_reference(source, place), name=name_of(place, source.name), is_core=True
    )
    if spec.get("scopes") or spec.get("scopeSelector"):
        return replace(found_quota, dropped={line.name: _SCOPES for line in lines})
    return replace(found_quota, namespaces=(place,), lines=lines)


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
            names = sorted(
                line.name for part in spec.values() for line in _lines(part, "", measures)
            )
            why = f"it is of a {kind.kind} of {kind.owner}, which names no namespace"
            return replace(found_quota, dropped=dict.fromkeys(names, why))


def _elastic_quota(
    found_quota: FoundQuota, source: SourceObject, place: str, measures: Measures
) -> FoundQuota:
    spec = source.document["spec"]
    dropped = {line.name: _FAIR_SHARE for line in _lines(spec.get("min"), "min.", measures)}
    metadata = source.document.get("metadata")
    of_object: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    for field in ("labels", "annotations"):
        names = of_object.get(field)
        for name in sorted(map(str, names)) if isinstance(names, Mapping) else ():
            if name.startswith(_TREE) and name not in _HARMLESS:
                dropped[name] = _FAIR_SHARE
    lines = tuple(_lines(spec.get("max"), "max.", measures))
    labels = of_object.get("labels")
    if isinstance(labels, Mapping) and labels.get(IS_PARENT) == "true":
        of_parent = {line.name: "no pod is counted by a parent directly" for line in lines}
        return replace(found_quota, dropped=dropped | of_parent)
    view = decode_view(source.document, ForeignQuotaObject)
    summary = summarize_foreign_quota(view) if isinstance(view, ForeignQuotaObject) else None
    others = summary.namespaces if summary is not None else ()
    namespaces = tuple(dict.fromkeys((place, *others)))
    return replace(
        found_quota, namespaces=namespaces, lines=lines, dropped=dropped if lines else {}
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
        for word, amount in _amounts(part.get(field)):
            name, key = f"{prefix}.{field}.{word}", _KEYS.get(word, "")
            if not key:
                dropped[name] = "a claim has no such amount"
            elif any(line.key == key and line.part is scope for line in lines):
                dropped[name] = "a claim has one amount, which is the request"
            else:
                lines.append(QuotaLine(name=name, key=key, amount=amount, part=scope))
    workers = _amount(total.get("maxWorkers"))
    if workers is not None:
        lines.append(QuotaLine(name="total.maxWorkers", key="", amount=workers))
    count = _amount(single.get("maxGPUCount"))
    if count is not None:
        lines.append(
            QuotaLine(
                name="single.maxGPUCount",
                key=tensorfusion.GPU_COUNT,
                amount=count,
                part=Part.REQUEST,
            )
        )
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


def _volcano_queue(
    found_quota: FoundQuota,
    spec: Mapping[str, Any],
    namespaces: Sequence[str],
    measures: Measures,
) -> FoundQuota:
    lines = tuple(_lines(spec.get("capability"), "capability.", measures))
    dropped = {
        line.name: _FAIR_SHARE
        for field in ("deserved", "guarantee")
        for line in _lines(_of_guarantee(spec.get(field)), f"{field}.", measures)
    }
    why = "no pod that was read is in the queue, or its namespace is in several queues"
    return replace(
        found_quota,
        namespaces=tuple(namespaces),
        unknown_namespaces="" if namespaces else why,
        lines=lines,
        dropped=dropped,
    )


def _of_guarantee(part: object) -> object:
    return part["resource"] if isinstance(part, Mapping) and "resource" in part else part


def _namespaces_of_queues(
    objects: Iterable[SourceObject], namespace: str
) -> Mapping[str, Sequence[str]]:
    """Return each queue of Volcano with the namespaces whose pods are in it and in no other."""
    queues: dict[str, set[str]] = defaultdict(set)
    for source in objects:
        path = pod_path(source.api_version, source.kind)
        if path is None:
            continue
        _, metadata = resolve_path(source.document, (*path, "metadata"))
        for field in ("annotations", "labels"):
            _, names = resolve_path(metadata, (field,))
            name = names.get(_QUEUE_NAME) if isinstance(names, Mapping) else None
            if isinstance(name, str):
                queues[namespace_of(source, namespace)].add(name)
    namespaces: dict[str, list[str]] = defaultdict(list)
    for place, names in sorted(queues.items()):
        if len(names) == 1:
            namespaces[next(iter(names))].append(place)
    return namespaces


def _lines(amounts: object, prefix: str, measures: Measures) -> Iterator[QuotaLine]:
    """Yield the lines of a resource list that name devices."""
    for name, amount in _amounts(amounts):
        key = name
        for of_quota in _PREFIXES:
            key = key.removeprefix(of_quota)
        if measures.is_device_key(key):
            yield QuotaLine(name=f"{prefix}{name}", key=key, amount=amount)


def _amounts(amounts: object) -> Iterator[tuple[str, Quantity]]:
    for name, text in _mapping(amounts).items():
        amount = _amount(text)
        if amount is not None:
            yield str(name), amount


def _amount(text: object) -> Quantity | None:
    if not isinstance(text, str | int | float) or isinstance(text, bool):
        return None
    try:
        return Quantity(str(text))
    except QuantityError:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _reference(source: SourceObject, namespace: str) -> str:
    return "/".join(part for part in (source.kind, namespace, source.name) if part)
