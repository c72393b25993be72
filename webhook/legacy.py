"""A live pod as translations read it: what they may look at is what `legacy_pod` returns.

Names that are not listed here or in a vocabulary do not reach a translation, so two pods that
differ in nothing else become the same, and the result of one can be remembered for the other.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeVar

from kube.api.core import Container, EnvVar, Pod
from kube.product import TRANSLATE_LABEL
from webhook.findings import Code, Finding, amount_path, error
from webhook.intents import LegacyContainer, LegacyPod, Vocabulary
from webhook.quotas import scopes_of
from webhook.vocabularies import arbiter, hami
from webhook.vocabularies.arbiter import VOCABULARIES
from webhook.vocabularies.nvidia import DISCOVERY_PREFIX, PLUGIN_VARIABLES, VISIBLE_DEVICES

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
OPT_OUT_LABELS: Final = {TRANSLATE_LABEL: "false"}
HAMI_OPT_OUT_LABELS: Final = {hami.OPT_OUT: "ignore"}
CONVERTED_LABELS: Final = {hami.CONVERTED: "true"}
"""Labels of other converters on pods that they made claims for."""

_Value = TypeVar("_Value")
_ANNOTATIONS: Final = frozenset(
    {MIRROR_ANNOTATION, *(name for v in VOCABULARIES.values() for name in v.annotations)}
)
_LABELS: Final = frozenset(
    {
        *OPT_OUT_LABELS,
        *HAMI_OPT_OUT_LABELS,
        *CONVERTED_LABELS,
        *(name for vocabulary in VOCABULARIES.values() for name in vocabulary.labels),
    }
)
_VARIABLES: Final = frozenset(
    {
        VISIBLE_DEVICES,
        *PLUGIN_VARIABLES,
        *(name for vocabulary in VOCABULARIES.values() for name in vocabulary.variables),
    }
)


def containers(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Yield path and container: init containers first, as they run.

    Ephemeral containers cannot carry resources.
    """
    for field, found in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(found or ()):
            yield f"spec.{field}[{index}]", container


def device_keys(
    container: Container, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> frozenset[str]:
    """Return the device keys that stand in limits or requests."""
    return arbiter.device_keys({*container.limits, *container.requests}, vocabularies)


def has_device_keys(pod: Pod, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES) -> bool:
    """Whether any container asks for devices the legacy way."""
    return any(device_keys(container, vocabularies) for _, container in containers(pod))


def legacy_pod(pod: Pod, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES) -> LegacyPod:
    """Return all that a translation may look at.

    Args:
        vocabularies: With the resource names that profiles give them.
    """
    found = [(path, each, device_keys(each, vocabularies)) for path, each in containers(pod)]
    beside = arbiter.companions({key for _, _, keys in found for key in keys})
    return LegacyPod(
        containers=tuple(
            _legacy_container(path, each, keys | beside) for path, each, keys in found
        ),
        annotations=_named(pod.annotations, _ANNOTATIONS),
        labels=_named(pod.labels, _LABELS),
        node_selector={
            label: text
            for label, text in sorted((pod.spec.node_selector or {}).items())
            if label.startswith(DISCOVERY_PREFIX)
        },
        node_name=pod.spec.node_name,
        scheduler_name=pod.spec.scheduler_name,
        scopes=scopes_of(pod),
    )


def _legacy_container(path: str, container: Container, keys: Collection[str]) -> LegacyContainer:
    init = path.startswith("spec.initContainers")
    return LegacyContainer(
        name=container.name,
        path=path,
        limits=_named(container.limits, keys),
        requests=_named(container.requests, keys),
        init=init,
        sidecar=init and container.restart_policy == "Always",
        privileged=bool(container.security_context and container.security_context.privileged),
        environment=_environment(container.env or ()),
    )


def _named(values: Mapping[str, _Value], names: Collection[str]) -> Mapping[str, _Value]:
    return {name: values[name] for name in sorted(values) if name in names}


def _environment(variables: Collection[EnvVar]) -> Mapping[str, str]:
    return {each.name: each.value for each in variables if each.name in _VARIABLES}


def unequal(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield the faults of requests and limits that the API server would find, in its words.

    It looks after mutation, when the keys are gone, so it would not find them any more.

    Source:
        k8s.io/kubernetes pkg/apis/core/validation, ValidateContainerResourceRequirements.
    """
    for container in legacy.containers:
        for key, request in container.requests.items():
            limit = container.limits.get(key)
            if limit is None:
                yield error(
                    Code.LIMIT_REQUIRED,
                    container.limit_path(key),
                    "Required value: Limit must be set for non overcommitable resources",
                    f"set the limit to {request}, too",
                )
            elif request != limit:
                yield error(
                    Code.LIMIT_DIFFERS,
                    amount_path(container.path, "requests", key),
                    f"Invalid value: {request}: must be equal to {key} limit of {limit}",
                    "use one amount for both",
                )
