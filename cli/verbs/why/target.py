"""The pod, claim or workload that a call of `drawbridge why` is about."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

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


class WhyTarget(NamedTuple):
    """The object that a call is about.

    Attributes:
        kind: "pod", "claim" or the kind of a workload.
        namespace: The namespace of the call, or of the only object of the manifests.
    """

    kind: str
    name: str
    namespace: str


def find_target(words: Sequence[str], inputs: Inputs | None, namespace: str) -> WhyTarget:
    """Return the object that a call is about.

    Args:
        words: The words of the call; without any it is about the only object of the manifests.
        inputs: The manifests of -f; None without.
        namespace: The namespace of the call.

    Raises:
        click.UsageError: The words, or without words the manifests, name no single pod, claim or workload.
    """
    if inputs is not None and not words:
        return _only_target(inputs)
    return WhyTarget(*parse_target(words), namespace)


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


def _only_target(inputs: Inputs) -> WhyTarget:
    """Return the only pod or workload of manifests, or their only claim if they have neither.

    Of several those in the namespace of the call count; of a single one it does not matter.

    Raises:
        click.UsageError: They have none, or several to choose from.
    """
    targets = list(dict.fromkeys(_targets(inputs.manifests, inputs.namespace)))
    with_pods_or_claims = [target for target in targets if target.kind != "claim"] or targets
    own = [target for target in with_pods_or_claims if target.namespace == inputs.namespace]
    candidates = own or with_pods_or_claims
    if len(candidates) == 1:
        return candidates[0]
    if own:
        names = [_target_text(target) for target in own]
        raise click.UsageError(f"Which one of -f? {join_names(names, _NAMES_SHOWN)}")
    if targets:
        names = [
            f"{_target_text(target)} -n {printable(target.namespace[:_NAME_LENGTH])}"
            for target in targets
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


def _targets(manifests: Sequence[SourceObject], namespace: str) -> Iterator[WhyTarget]:
    """Yield each object that can be explained."""
    for source in manifests:
        kind = _KINDS_OF_OBJECTS.get(source.kind)
        if kind is not None and source.name:
            yield WhyTarget(kind, source.name, namespace_of(source, namespace))


def _target_text(target: WhyTarget) -> str:
    """Return a target as a call names it, such as `pod/trainer`."""
    return f"{target.kind.lower()}/{printable(target.name[:_NAME_LENGTH])}"
