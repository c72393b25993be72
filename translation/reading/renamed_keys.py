"""Resource names that a cluster renamed: the name in a pod, and the name that a vocabulary reads.

A pod and its record keep the names that were written, so quotas, patches and the way back see those;
a vocabulary gets its own names, and findings about them point at what was written.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from findings.finding import Code, Finding, error
from findings.text import printable
from translation.model.intents import LegacyPod
from translation.reading.arbiter import owner_of

_NAME: Final = re.compile(
    r"(?=.{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
"""Source: k8s.io/apimachinery pkg/util/validation, IsQualifiedName; an extended resource has a prefix."""


def renaming_fault(name: str, renamed_key: str) -> str | None:
    """Return the reason a name cannot stand for another one; None when it can.

    Args:
        name: The name that pods have.
        renamed_key: The name of a vocabulary that it stands for.
    """
    if not _NAME.fullmatch(name) or name.split("/", maxsplit=1)[0].endswith("kubernetes.io"):
        return "is not the name of an extended resource, such as example.com/gpu"
    if owner_of(renamed_key) is None:
        return f"stands for {printable(renamed_key)}, which is a key of no vocabulary"
    handler = owner_of(name)
    if handler is not None:
        return f"is a key of the vocabulary {handler} already"
    return None


def with_vocabulary_names(pod: LegacyPod, renamed_keys: Mapping[str, str]) -> LegacyPod:
    """Return the pod with the names that vocabularies read."""
    if not renamed_keys or renamed_keys.keys().isdisjoint(pod.keys()):
        return pod
    return msgspec.structs.replace(
        pod,
        containers=tuple(
            msgspec.structs.replace(
                container,
                limits={
                    renamed_keys.get(key, key): amount for key, amount in container.limits.items()
                },
                original_keys={
                    renamed_keys[key]: key for key in container.limits if key in renamed_keys
                },
            )
            for container in pod.containers
        ),
    )


def check_renamed_keys(pod: LegacyPod, renamed_keys: Mapping[str, str]) -> Iterator[Finding]:
    """Yield an error for each key of a container that another one stands for, too."""
    if not renamed_keys:
        return
    for container in pod.containers:
        readers: dict[str, str] = {}
        for key in sorted(container.limits):
            name = renamed_keys.get(key, key)
            if name in readers:
                yield error(
                    Code.INVALID_COMBINATION,
                    container.limit_path(key),
                    f"means {printable(name)} by the settings, as {printable(readers[name])} does",
                    "keep one of the two",
                )
            readers.setdefault(name, key)


def present_names(pod: LegacyPod, renamed_keys: Mapping[str, str]) -> Mapping[str, str]:
    """Return the renamed keys that a pod has."""
    if not renamed_keys:
        return {}
    keys = pod.keys()
    return {name: renamed_key for name, renamed_key in sorted(renamed_keys.items()) if name in keys}
