"""What is asked of a simulation, out of objects that were given and the state of a cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from allocator.pod_claims import allocation_of
from allocator.simulate import Answer, PlacedClaim, PlacedPod, Question
from cli.inputs import Inputs
from cli.manifests import Translated, reported, translated
from cli.objects import joined, of_kind, placed
from cli.reading import STATE_KINDS
from cli.report import Reported, namespace_of
from cli.state import State, housed, is_waiting, state_of
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from kube.files import SourceObject
from webhook.extended_resources import extended_resources

N = TypeVar("N", Pod, ResourceClaim)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question with what it was made of.

    Attributes:
        refused: Pods and claims that are wrong by themselves, and so are not asked about.
        bystanders: Other given objects that make pods, which nobody places.
        unread: Notes on given objects of versions that are not read.
    """

    question: Question
    state: State
    findings: tuple[Reported, ...]
    refused: Answer
    bystanders: tuple[str, ...]
    unread: tuple[str, ...]


def asked_of(inputs: Inputs) -> Asked:
    """Return the question that inputs ask: given pods and claims, on what there is.

    Legacy pods are translated first; what is allocated or bound already is part of the state.
    """
    results = translated(
        inputs.given, world=inputs.world, options=inputs.options, namespace=inputs.namespace
    )
    given = joined((), _documents(results), inputs.namespace)
    own, own_faults = placed(given, STATE_KINDS, inputs.namespace)
    objects = joined(inputs.snapshot, given, inputs.namespace)
    known, faults = placed(objects, STATE_KINDS, inputs.namespace, told=given)
    state = state_of(known)
    pods = _named(housed(place, pod) for place, pod in of_kind(own, Pod))
    claims = _named(housed(place, claim) for place, claim in of_kind(own, ResourceClaim))
    question = Question(
        pods=tuple(pod for pod in pods if is_waiting(pod)),
        claims=tuple(claim for claim in claims if allocation_of(claim) is None),
        known=state.claims,
        templates=state.templates,
        classes=state.classes,
        extended_resources=extended_resources(state.classes.values()),
    )
    return Asked(
        question=question,
        state=state,
        findings=(*faults, *reported(results), *own_faults),
        refused=_refused(results, inputs.namespace),
        bystanders=tuple(each.reference for each in results if _makes_pods(each)),
        unread=tuple(_unread(results)),
    )


def _named(objects: Iterable[N]) -> Iterator[N]:
    """Yield objects with names: `generateName` as it is written for the first that has only that."""
    seen: Counter[tuple[str, str]] = Counter()
    for each in objects:
        metadata = each.metadata
        if metadata.name:
            yield each
            continue
        beginning = metadata.generate_name
        seen[metadata.namespace, beginning] += 1
        number = seen[metadata.namespace, beginning]
        name = beginning if number == 1 else f"{beginning}{number}"
        yield msgspec.structs.replace(each, metadata=msgspec.structs.replace(metadata, name=name))


def _documents(results: Sequence[Translated]) -> list[SourceObject]:
    """Return what was made of the given objects; those that are refused are left out."""
    found = []
    for result in results:
        made = (*result.templates, *((result.document,) if result.document is not None else ()))
        found += [
            msgspec.structs.replace(result.source, document=dict(document)) for document in made
        ]
    return found


def _refused(results: Sequence[Translated], namespace: str) -> Answer:
    refused = [result.source for result in results if result.document is None]
    return Answer(
        pods=tuple(
            PlacedPod(namespace=namespace_of(each, namespace), name=each.name)
            for each in refused
            if each.kind == "Pod"
        ),
        claims=tuple(
            PlacedClaim(namespace=namespace_of(each, namespace), name=each.name)
            for each in refused
            if each.kind == "ResourceClaim"
        ),
    )


def _makes_pods(result: Translated) -> bool:
    return result.answer is not None and result.source.kind != "Pod"


def _unread(results: Iterable[Translated]) -> Iterator[str]:
    for each in results:
        source = each.source
        group, _, version = source.api_version.rpartition("/")
        read = f"{group}/v1"
        if version != "v1" and (read, source.kind) in STATE_KINDS:
            yield f"{each.reference} of {source.api_version} is not read; only {read} is"
