"""The pod, claim or workload that a call of `drawbridge why` is about."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from answers.model.findings import namespace_of
from answers.model.inputs import Inputs
from answers.model.pod_owners import WORKLOAD_NAMES
from findings.text import join_names, printable
from kube.manifests.source import SourceObject

KINDS: Final[Mapping[str, str]] = {
    **WORKLOAD_NAMES,
    **dict.fromkeys(("po", "pod", "pods"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
}
"""Names by which kubectl knows the kinds."""

_KINDS_OF_OBJECTS: Final[Mapping[str, str]] = {
    **{kind: kind for kind in WORKLOAD_NAMES.values()},
    "Pod": "pod",
    "ResourceClaim": "claim",
}
"""Kinds of objects to those kinds."""

_NAMES_SHOWN: Final = 10
_NAME_LENGTH: Final = 253
"""The longest name of an object, in characters (API limit)."""


def find_target(words: Sequence[str], inputs: Inputs | None) -> tuple[str, str]:
    """Return the kind and name of the object that a call is about, as `parse_target` does.

    Args:
        words: The words of the call; without any it is about the only object of the manifests.
        inputs: The manifests of -f; None without.

    Raises:
        click.UsageError: The words, or without words the manifests, name no single pod, claim or workload.
    """
    return _only_target(inputs) if inputs is not None and not words else parse_target(words)


def parse_target(words: Sequence[str]) -> tuple[str, str]:
    """Return "pod", "claim" or the kind of a workload, and the name, as kubectl would understand them.

    >>> parse_target(["po/share"]), parse_target(["deploy", "web"])
    (('pod', 'share'), ('Deployment', 'web'))

    Raises:
        click.UsageError: The words name no single pod, claim or workload.
    """
    if not words:
        raise click.UsageError(
            "Which pod or claim? kubectl get pods -A --field-selector=status.phase=Pending lists those that wait"
        )
    parts = words[0].split("/", 1) if len(words) == 1 else words
    if len(parts) != 2 or not all(parts):
        raise click.UsageError(f"expected pod NAME or claim NAME, found {' '.join(words)!r}")
    kind = KINDS.get(parts[0].lower())
    if kind is None:
        raise click.UsageError(
            f"only pods, claims and workloads with pods of their own can be explained, not {parts[0]!r}"
        )
    return kind, parts[1]


def _only_target(inputs: Inputs) -> tuple[str, str]:
    """Return the only pod or workload of manifests, or their only claim if they have neither.

    Raises:
        click.UsageError: They have none, or several to choose from.
    """
    targets = list(dict.fromkeys(_targets(inputs.manifests, inputs.namespace)))
    own = [target for target in targets if target[0] == inputs.namespace]
    with_pods = [target for target in own if target[1] != "claim"]
    candidates = with_pods or own
    if len(candidates) == 1:
        _, kind, name = candidates[0]
        return kind, name
    if candidates:
        names = [_target_text(kind, name) for _, kind, name in candidates]
        raise click.UsageError(f"Which one of -f? {join_names(names, _NAMES_SHOWN)}")
    if targets:
        names = [
            f"{_target_text(kind, name)} -n {printable(namespace[:_NAME_LENGTH])}"
            for namespace, kind, name in targets
        ]
        raise click.UsageError(
            f"-f has nothing to explain in namespace {inputs.namespace}; "
            f"choose from {join_names(names, _NAMES_SHOWN)}"
        )
    kinds = sorted({printable(source.kind[:_NAME_LENGTH]) for source in inputs.manifests})
    raise click.UsageError(
        "-f has no pod, claim or workload with pods of its own, "
        f"only {join_names(kinds, _NAMES_SHOWN)}; name a pod or claim of the cluster"
    )


def _targets(manifests: Sequence[SourceObject], namespace: str) -> Iterator[tuple[str, str, str]]:
    """Yield the namespace, kind and name of each object that can be explained."""
    for source in manifests:
        kind = _KINDS_OF_OBJECTS.get(source.kind)
        if kind is not None and source.name:
            yield namespace_of(source, namespace), kind, source.name


def _target_text(kind: str, name: str) -> str:
    """Return a target as a call names it, such as `pod/trainer`."""
    return f"{kind.lower()}/{printable(name[:_NAME_LENGTH])}"
