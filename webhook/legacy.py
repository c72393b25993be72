"""A live pod as the vocabularies read it, and the checks that stripping its keys would bypass."""

from collections.abc import Iterator, Mapping

from kube.api.core import Container, Pod
from kube.quantity import Quantity
from webhook.findings import Code, Finding, amount_path, error
from webhook.intents import LegacyContainer, LegacyPod
from webhook.vocabularies.arbiter import is_device_key


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


def device_keys(container: Container) -> frozenset[str]:
    """Return the device keys that stand in limits or requests."""
    return frozenset(filter(is_device_key, {*container.limits, *container.requests}))


def has_device_keys(pod: Pod) -> bool:
    """Whether any container asks for devices the legacy way."""
    return any(device_keys(container) for _, container in containers(pod))


def legacy_pod(pod: Pod) -> LegacyPod:
    """Return what vocabularies may look at."""
    return LegacyPod(
        containers=tuple(
            LegacyContainer(
                name=container.name,
                path=path,
                limits=_device_limits(container.limits),
                init=_is_init(path),
                sidecar=_is_init(path) and container.restart_policy == "Always",
                privileged=bool(
                    container.security_context and container.security_context.privileged
                ),
                environment={variable.name: variable.value for variable in container.env or ()},
            )
            for path, container in containers(pod)
        ),
        annotations=pod.annotations,
    )


def _is_init(path: str) -> bool:
    return path.startswith("spec.initContainers")


def _device_limits(limits: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    return {key: amount for key, amount in sorted(limits.items()) if is_device_key(key)}


def unequal(pod: Pod) -> Iterator[Finding]:
    """Yield the faults of requests and limits that the API server would find, in its words.

    It looks after mutation, when the keys are gone, so it would not find them any more.

    Source:
        k8s.io/kubernetes pkg/apis/core/validation, ValidateContainerResourceRequirements.
    """
    for path, container in containers(pod):
        for key in sorted(device_keys(container)):
            request, limit = container.requests.get(key), container.limits.get(key)
            if limit is None:
                yield error(
                    Code.LIMIT_REQUIRED,
                    amount_path(path, "limits", key),
                    "Required value: Limit must be set for non overcommitable resources",
                    f"set the limit to {request}, too",
                )
            elif request is not None and request != limit:
                yield error(
                    Code.LIMIT_DIFFERS,
                    amount_path(path, "requests", key),
                    f"Invalid value: {request}: must be equal to {key} limit of {limit}",
                    "use one amount for both",
                )
