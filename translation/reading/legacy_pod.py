"""The part of a live pod that translations read.

Names that are listed neither here nor in a vocabulary do not reach a translation. So pods that
differ only in those are translated equally, and their translation can be cached.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from findings.equal_requests import IN_BOTH
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import printable
from kube.api.core import Container, EnvVar, Pod
from kube.api.foreign_quotas import GANG_NAMES, QUOTA_NAMES
from kube.api.network_attachments import NETWORKS, POD_BANDWIDTHS
from kube.names import TRANSLATE_LABEL
from kube.quantity import ZERO, Quantity, format_count
from quotas.resource_quotas.scopes import scopes_of
from translation.model.intents import LegacyContainer, LegacyPod, Vocabulary
from translation.model.required_labels import RequiredLabel, affinity_terms
from translation.reading import arbiter
from translation.reading.arbiter import VOCABULARIES
from translation.vocabularies.hami.keys import CONVERTED, OPT_OUT
from translation.vocabularies.kai import SHARED_CONFIG_MAP
from translation.vocabularies.nvidia import (
    DISCOVERY_PREFIX,
    NODE_LABELS,
    PLUGIN_VARIABLES,
    VISIBLE_DEVICES,
)

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
OPT_OUT_LABELS: Final = {TRANSLATE_LABEL: "false"}
HAMI_OPT_OUT_LABELS: Final = {OPT_OUT: "ignore"}
CONVERTED_LABELS: Final = {CONVERTED: "true"}
"""Labels that other converters set on the pods that they converted."""

_Value = TypeVar("_Value")
_MAX_TERMS: Final = 32
"""Terms of a node affinity that are read."""
READ_ANNOTATIONS: Final = frozenset(
    {
        MIRROR_ANNOTATION,
        NETWORKS,
        *POD_BANDWIDTHS,
        *QUOTA_NAMES,
        *GANG_NAMES,
        SHARED_CONFIG_MAP,
        *(name for vocabulary in VOCABULARIES.values() for name in vocabulary.annotations),
    }
)
_OWN_NETWORK: Final = frozenset({NETWORKS, *POD_BANDWIDTHS})
"""The annotations about networks that no pod in the network of its node has."""
_LABELS: Final = frozenset(
    {
        *OPT_OUT_LABELS,
        *HAMI_OPT_OUT_LABELS,
        *CONVERTED_LABELS,
        *QUOTA_NAMES,
        *GANG_NAMES,
        *(name for vocabulary in VOCABULARIES.values() for name in vocabulary.labels),
    }
)
READ_VARIABLES: Final = frozenset(
    {
        VISIBLE_DEVICES,
        *PLUGIN_VARIABLES,
        *(name for vocabulary in VOCABULARIES.values() for name in vocabulary.variables),
    }
)


def containers(pod: Pod) -> Iterator[tuple[FieldPath, Container]]:
    """Yield path and container, init containers first.

    Ephemeral containers cannot have resources.
    """
    for field, field_containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(field_containers or ()):
            yield FieldPath.of("spec", field, index), container


def container_paths(pod: Pod) -> Mapping[str, FieldPath]:
    """Return container name to path; of equal names, invalid in any pod, the first."""
    paths: dict[str, FieldPath] = {}
    for path, container in containers(pod):
        paths.setdefault(container.name, path)
    return paths


def device_keys(
    container: Container, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> frozenset[str]:
    """Return the device keys in the limits and requests of a container."""
    return frozenset(_find_device_keys(container, vocabularies))


def _find_device_keys(
    container: Container, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[str]:
    names = container.limits.keys() | container.requests.keys()
    return arbiter.find_device_keys(names, vocabularies)


def containers_with_devices(
    every: Iterable[Container], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> Iterator[Container]:
    """Yield the containers with device keys, of a pod with any number of containers and keys."""
    return (container for container in every if any(_find_device_keys(container, vocabularies)))


def has_device_keys(pod: Pod, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES) -> bool:
    """Return True if any container has a device key."""
    return any(
        key
        for _, container in containers(pod)
        for key in _find_device_keys(container, vocabularies)
    )


def legacy_pod(pod: Pod, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES) -> LegacyPod:
    """Return the part of a pod that a translation reads.

    Args:
        vocabularies: Extended by the resource names in profiles.
    """
    with_keys = [
        (path, container, device_keys(container, vocabularies))
        for path, container in containers(pod)
    ]
    companions = arbiter.companions(frozenset().union(*[keys for _, _, keys in with_keys]))
    return LegacyPod(
        containers=tuple(
            _legacy_container(path, container, keys | companions)
            for path, container, keys in with_keys
        ),
        # CNI attaches no network to a pod in the network of its node.
        annotations=_select_named(
            pod.annotations,
            READ_ANNOTATIONS - _OWN_NETWORK if pod.spec.host_network else READ_ANNOTATIONS,
        ),
        labels=_select_named(pod.labels, _LABELS),
        node_selector={
            label: text
            for label, text in sorted((pod.spec.node_selector or {}).items())
            if _is_read(label)
        },
        affinity_terms=_affinity_terms(pod),
        node_name=pod.spec.node_name,
        scheduler_name=pod.spec.scheduler_name,
        scopes=scopes_of(pod),
        is_scheduled=_is_scheduled(pod),
    )


def _affinity_terms(pod: Pod) -> tuple[tuple[RequiredLabel, ...], ...]:
    """Return the terms of the required node affinity; none if no requirement is read."""
    if pod.spec.affinity is None:
        return ()  # As of most pods.
    terms = tuple(
        tuple(entry for entry in term if _is_read(entry.key))
        for term in affinity_terms(pod.spec)[:_MAX_TERMS]
    )
    return terms if any(terms) else ()


def _is_read(label: str) -> bool:
    """Return True for a label of nodes that a preflight check reads."""
    return label.startswith(DISCOVERY_PREFIX) or label in NODE_LABELS


def _is_scheduled(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any(entry.type == "PodScheduled" and entry.status == "True" for entry in conditions)


_INIT_CONTAINERS: Final = FieldPath.of("spec", "initContainers")


def _legacy_container(
    path: FieldPath, container: Container, keys: frozenset[str]
) -> LegacyContainer:
    init = path.relative_to(_INIT_CONTAINERS) is not None
    return LegacyContainer(
        name=container.name,
        path=path,
        limits=_select_named(container.limits, keys),
        requests=_select_named(container.requests, keys),
        init=init,
        sidecar=init and container.restart_policy == "Always",
        privileged=bool(container.security_context and container.security_context.privileged),
        environment=_environment(container.env or ()),
    )


def _select_named(values: Mapping[str, _Value], names: frozenset[str]) -> Mapping[str, _Value]:
    selected = names.intersection(values)
    return {name: values[name] for name in sorted(selected)} if selected else {}


def _environment(variables: Collection[EnvVar]) -> Mapping[str, str]:
    return {
        variable.name: variable.value for variable in variables if variable.name in READ_VARIABLES
    }


def find_label(labels: Mapping[str, str], patterns: Mapping[str, str]) -> str | None:
    """Return the first of some labels that is set to its value, as `key=value`; None without one.

    Args:
        patterns: The labels to look for, each with its value.
    """
    for key, value in patterns.items():
        if labels.get(key) == value:
            return f"{key}={value}"
    return None


def check_requests(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each request of a device key that does not equal its limit.

    The API server validates after mutation, when the keys are gone.
    """
    for container in legacy.containers:
        yield from check_amounts(container.path, container.requests, container.limits)


def check_amounts(
    container: FieldPath, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]
) -> Iterator[Finding]:
    """Yield an error for each request of an extended resource that does not equal its limit.

    The messages are those of the API server.

    Args:
        container: The path of the container.

    Source:
        k8s.io/kubernetes pkg/apis/core/validation, ValidateContainerResourceRequirements.
    """
    for key, request in requests.items():
        limit = limits.get(key)
        if limit is None:
            missing = error(
                Code.LIMIT_REQUIRED,
                container.child("resources", "limits").key(key),
                "Required value: Limit must be set for non overcommitable resources",
            )
            yield (
                replace(
                    missing, fix=f"also set limits[{printable(key)}] to {format_count(request)}"
                ).corrected_by(request)
                if _is_count(request)
                else replace(missing, fix=_COUNT_IN_BOTH)
            )
        elif request != limit:
            differing = error(
                Code.LIMIT_DIFFERS,
                container.child("resources", "requests").key(key),
                f"Invalid value: {request}: must be equal to {printable(key)} limit of {limit}",
            )
            yield (
                replace(
                    differing,
                    fix=f"write {format_count(limit)} in both, or leave it out of requests",
                ).corrected_by(limit)
                if _is_count(limit)
                else replace(differing, fix=_COUNT_IN_BOTH)
            )


_COUNT_IN_BOTH: Final = f"write a whole number, 0 or more,{IN_BOTH}"


def _is_count(amount: Quantity) -> bool:
    """Return True for an amount that an extended resource may have."""
    return amount.is_whole and amount >= ZERO
