"""The reasons that pods are not ready, in the words of kubelet and scheduler. Read-only."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from findings.text import printable, shorten
from kube.api.core import PodCondition
from kube.api.meta import ApiStruct, ObjectMeta, decode_pruned
from kube.api.urls import PODS
from kube.client.client import Client
from kube.errors import Forbidden, NotFound

_USUAL: Final = {"ContainerCreating", "PodInitializing"}
"""Reasons of every container that starts; the true one is told soon, or is an event."""
MAX_MESSAGE: Final = 240
"""Characters of a message of kubelet or of the scheduler."""
MAX_TROUBLES: Final = 3
"""The largest number of reasons named for a component; its pods mostly have the same."""


class _Waiting(ApiStruct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class _Terminated(ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _ContainerState(ApiStruct, frozen=True, kw_only=True):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[PodCondition, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class ComponentPod(ApiStruct, frozen=True, kw_only=True):
    """The parts of a pod of ours that explain its lack of readiness."""

    metadata: ObjectMeta = ObjectMeta()
    status: _PodStatus = _PodStatus()


async def read_component_pods(client: Client, namespace: str, labels: str) -> list[ComponentPod]:
    """Return the pods of components in a namespace; none if the user may not list them."""
    pods: list[ComponentPod] = []
    try:
        async for page in client.pages(PODS, namespace=namespace, label_selector=labels):
            pods += [decode_pruned(bytes(raw), ComponentPod) for raw in page.items]
    except (Forbidden, NotFound):
        return []
    return pods


def troubles_of(pods: Iterable[ComponentPod]) -> tuple[str, ...]:
    """Return the reasons that pods are not ready, as printable sentences, the most frequent first.

    >>> back_off = _Waiting(reason="ImagePullBackOff", message="Back-off pulling image")
    >>> container = _ContainerStatus(name="webhook", state=_ContainerState(waiting=back_off))
    >>> troubles_of([ComponentPod(status=_PodStatus(container_statuses=(container,)))] * 2)
    ('container webhook: ImagePullBackOff: Back-off pulling image (2 pods)',)
    """
    # A pod says the same of each of its containers once.
    counts = Counter(trouble for pod in pods for trouble in dict.fromkeys(_troubles(pod.status)))
    return tuple(
        f"{trouble} ({count} pods)" if count > 1 else trouble
        for trouble, count in counts.most_common(MAX_TROUBLES)
    )


def _troubles(status: _PodStatus) -> Iterator[str]:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            yield _sentence(condition.reason or "Unschedulable", condition.message)
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting, last = container.state.waiting, container.last_state.terminated
        if waiting is None or waiting.reason in _USUAL:
            continue
        ended = container.state.terminated or last
        if waiting.reason == "CrashLoopBackOff" and ended is not None:
            # Kubelet's own message has the name of the pod and a time, and not the cause.
            cause = f"{ended.reason}, exit code {ended.exit_code}".removeprefix(", ")
            words = _sentence(waiting.reason, cause)
            words = f"{words}: {_cut(ended.message)}" if ended.message else words
        else:
            words = _sentence(waiting.reason, waiting.message)
        yield f"container {_cut(container.name)}: {words}"


def _sentence(reason: str, message: str) -> str:
    return ": ".join(filter(None, (_cut(reason), _cut(message))))


def _cut(text: str) -> str:
    return shorten(printable(" ".join(text.split())), MAX_MESSAGE)
