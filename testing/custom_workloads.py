"""Objects of other projects' kinds with pods."""

import copy
from collections.abc import Mapping
from typing import Any

from translation.reading.workload_kinds import ANY, Shape, WorkloadKind


def pod_of(shape: Shape, spec: Mapping[str, Any]) -> Any:
    match shape:
        case Shape.TEMPLATE:
            return {"spec": spec}
        case Shape.POD_SPEC:
            return spec
        case Shape.STEP:
            return {"name": "a", "container": spec["containers"][0]}
        case Shape.RESOURCES:
            return spec["containers"][0]["resources"]


def workload_of(kind: WorkloadKind, spec: Mapping[str, Any]) -> dict[str, Any]:
    """An object of a kind with pods at all of its paths: in each list and map two of them."""
    document: dict[str, Any] = {
        "apiVersion": kind.api_versions[0],
        "kind": kind.kind,
        "metadata": {"name": "train", "namespace": "team"},
    }
    is_map = kind.api_versions[0].startswith("kubeflow.org")
    for path in kind.paths:
        put(document, path, copy.deepcopy(pod_of(kind.shape, spec)), is_map=is_map)
    if kind.scheduler:
        put(document, kind.scheduler_path, "default-scheduler", is_map=False)
    return document


def put(place: Any, path: tuple[str, ...], value: Any, *, is_map: bool) -> None:
    step, *rest = path
    following = rest[0] if rest else None
    if step == ANY:
        for index in (0, 1):
            key: Any = ("Master", "Worker")[index] if is_map else index
            if not is_map:
                place.append({})
            if rest:
                place[key] = place[key] if not is_map else {}
                put(place[key], tuple(rest), value, is_map=is_map)
            else:
                place[key] = value
        return
    if not rest:
        place[step] = value if not isinstance(place.get(step), dict) else {**place[step], **value}
        return
    empty: Any = [] if following == ANY and not is_map else {}
    put(place.setdefault(step, empty), tuple(rest), value, is_map=is_map)
