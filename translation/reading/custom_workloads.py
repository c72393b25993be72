"""Pod templates in objects of other projects' kinds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.api.workloads import pods_of_job
from translation.reading.workload_kinds import (
    ANY,
    GROUP_SIZE,
    LEADER,
    WORKLOAD_KIND,
    Shape,
    WorkloadKind,
)

MAX_TEMPLATES: Final = 64
"""Pod templates that are read in one object."""
_SCHEDULER: Final = ("spec", "schedulerName")

Path = tuple[str | int, ...]


class EmbeddedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in an object.

    Attributes:
        path: The path of the template, spec or step.
        template: The pod as a template: `metadata` and `spec`.
        places: Path in the template to the path in the object, the longest first.
        number: The number of equal pods at a time.
        number_paths: The paths of the fields that the number is a product of.
    """

    path: Path
    template: Mapping[str, Any]
    places: tuple[tuple[Path, Path], ...]
    number: int = 1
    number_paths: tuple[Path, ...] = ()


def workload_kind(api_version: str, kind: str) -> WorkloadKind | None:
    """Return the row of a kind; None for kinds that are not in the table."""
    return WORKLOAD_KIND.get((api_version, kind))


def embedded_pods(kind: WorkloadKind, document: Mapping[str, Any]) -> Iterator[EmbeddedPod]:
    """Yield the pods of an object, in the order of its kind's paths; others are left out.

    Values of wrong types are left out, too: the API server knows the schema of the kind.
    """
    count = 0
    readers = (
        *((pattern, _READERS[kind.shape]) for pattern in kind.paths),
        *((pattern, _read_container) for pattern in kind.container_paths),
    )
    for index, (pattern, reader) in enumerate(readers):
        for path, value in _expand(document, pattern):
            pod = reader(path, value)
            if pod is not None:
                if inherits_scheduler(kind, pod.template):
                    template = with_scheduler(kind, document, pod.template)
                    places = ((_SCHEDULER, kind.scheduler_path), *pod.places)
                    pod = msgspec.structs.replace(pod, template=template, places=places)
                number_paths = tuple(_number_paths(kind, index, path))
                number = 0 if kind.numbers is None else _number(number_paths, document)
                yield msgspec.structs.replace(pod, number=number, number_paths=number_paths)
                count += 1
                if count == MAX_TEMPLATES:
                    return


def inherits_scheduler(kind: WorkloadKind, template: Mapping[str, Any]) -> bool:
    """Return True if a template names no scheduler, and its kind has a field for its pods' scheduler."""
    return bool(kind.scheduler_path) and not value_at(template, _SCHEDULER)


def with_scheduler(
    kind: WorkloadKind, document: Mapping[str, Any], template: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a template with the scheduler of its pods: its own, else the object's, else its kind's."""
    name = value_at(document, kind.scheduler_path) or kind.scheduler
    spec = template.get("spec")
    if not (inherits_scheduler(kind, template) and isinstance(spec, dict)):
        return template
    if not isinstance(name, str) or not name:
        return template
    return {**template, "spec": {**spec, "schedulerName": name}}


def _number_paths(kind: WorkloadKind, index: int, path: Path) -> Iterator[Path]:
    """Yield the paths of the fields that the number of pods of a template at a path is a product of.

    Args:
        index: The index of the path's pattern in its kind.
    """
    numbers = kind.numbers or ()
    for field in numbers[index] if index < len(numbers) else ():
        yield tuple(path[at] if step == ANY else step for at, step in enumerate(field))


def _number(number_paths: Iterable[Path], document: Mapping[str, Any]) -> int:
    """Return the number of pods at a time that are made of a template."""
    product = 1
    for path in number_paths:
        number = value_at(document, path)
        factor = number if isinstance(number, int) and number >= 0 else 1
        job = value_at(document, path[:-1])
        if path[-1] == "parallelism" and isinstance(job, dict):
            factor = pods_of_job(job)
        if path == GROUP_SIZE and isinstance(value_at(document, LEADER), dict):
            factor = max(factor - 1, 0)
        product *= factor
    return product


def value_at(value: Any, steps: Iterable[str | int]) -> Any:
    """Return the value at a path in a document; None if there is none."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def replace_in(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of a document with another value at a path that exists in it."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, list):
        return [
            replace_in(element, tuple(rest), new) if index == step else element
            for index, element in enumerate(value)
        ]
    return {**value, step: replace_in(value[step], tuple(rest), new)}


def _expand(value: Any, pattern: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if not pattern:
        yield path, value
        return
    step, *rest = pattern
    if step != ANY:
        if isinstance(value, dict) and step in value:
            yield from _expand(value[step], tuple(rest), (*path, step))
        return
    if not isinstance(value, dict | list):
        return
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for child_step, child in children:
        yield from _expand(child, tuple(rest), (*path, child_step))


def _read_template(path: Path, value: Any) -> EmbeddedPod | None:
    spec = value.get("spec") if isinstance(value, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        return None
    return EmbeddedPod(path=path, template=value, places=(((), path),))


def _read_pod_spec(path: Path, value: Any) -> EmbeddedPod | None:
    if not isinstance(value, dict) or not isinstance(value.get("containers"), list):
        return None
    fields = ("annotations", "labels")
    metadata = {field: value[field] for field in fields if isinstance(value.get(field), dict)}
    spec = {field: content for field, content in value.items() if field not in fields}
    places = ((("spec",), path), (("metadata",), path), ((), path))
    return EmbeddedPod(path=path, template={"metadata": metadata, "spec": spec}, places=places)


def _read_step(path: Path, value: Any) -> EmbeddedPod | None:
    if not isinstance(value, dict):
        return None
    places: list[tuple[Path, Path]] = []
    containers: list[Any] = []
    for field in ("container", "script"):
        if isinstance(value.get(field), dict):
            places.append((("spec", "containers", len(containers)), (*path, field)))
            containers.append({"name": "main", **value[field]})
    sidecars = value.get("sidecars")
    for index, sidecar in enumerate(sidecars if isinstance(sidecars, list) else ()):
        places.append((("spec", "containers", len(containers)), (*path, "sidecars", index)))
        containers.append(sidecar)
    if not containers:
        return None
    init = value.get("initContainers")
    spec: dict[str, Any] = {"containers": containers}
    if isinstance(init, list):
        spec["initContainers"] = init
    for field in ("nodeSelector", "schedulerName"):
        if field in value:
            spec[field] = value[field]
    metadata = value.get("metadata")
    template = {"metadata": metadata if isinstance(metadata, dict) else {}, "spec": spec}
    return EmbeddedPod(
        path=path, template=template, places=(*places, (("spec",), path), ((), path))
    )


def _read_container(path: Path, value: Any) -> EmbeddedPod | None:
    resources = value.get("resources") if isinstance(value, dict) else None
    return _read_resources((*path, "resources"), resources)


def _read_resources(path: Path, value: Any) -> EmbeddedPod | None:
    if not isinstance(value, dict):
        return None
    template = {"metadata": {}, "spec": {"containers": [{"name": "node", "resources": value}]}}
    places: tuple[tuple[Path, Path], ...] = (
        (("spec", "containers", 0, "resources"), path),
        ((), path),
    )
    return EmbeddedPod(path=path, template=template, places=places)


_READERS: Final = {
    Shape.TEMPLATE: _read_template,
    Shape.POD_SPEC: _read_pod_spec,
    Shape.STEP: _read_step,
    Shape.RESOURCES: _read_resources,
}
