"""The pods of a recording as the webhook would have translated them."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from admission.pods import Decision
from allocator.pods.extended_resource_claim import ANNOTATION as EXTENDED_RESOURCE_CLAIM
from allocator.replay.recorded import RecordedPod
from answers.manifests.replay_pods import unallocated, unbound
from answers.manifests.translate import TranslatedObject
from answers.model.findings import finding_text
from answers.model.views import decode_view
from findings.finding import Finding
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, decode, encode
from kube.api.resource import ResourceClaim, ResourceClaimSpec
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION
from migration.assessment.outcomes import as_created, translate_adopted
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

_SOURCE: Final = "the recording"
_NAME: Final = "pod"
"""The name under which pods are translated, so that equal ones are translated once."""


class TranslatedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod after its translation.

    Attributes:
        pod: The pod without a node.
        claims: Its claims, without an allocation.
        denial: The reason the webhook denies it; empty if it does not.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    denial: str = ""


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for pods that differ in names only; `claims` are those that the translation makes."""

    pod: Pod | None
    claims: tuple[ResourceClaim, ...] = ()
    denial: str = ""


class PodTranslator:
    """The webhook of a cluster that serves keys by the drivers of the options.

    Attributes:
        unrestored: Number of pods that keep their claims, since their record is not of this version.
    """

    def __init__(self, snapshot: TranslationSnapshot, options: TranslationOptions) -> None:
        """Translate with a snapshot without resource names that classes map."""
        self.unrestored = 0
        self._snapshot = snapshot
        self._options = options
        self._shapes: dict[bytes, _Shape] = {}

    def translate(self, recorded: RecordedPod) -> TranslatedPod | None:
        """Return a pod with the claims that its keys become; None for one that has no device keys."""
        pod = unbound(recorded.replay.pod)
        metadata = pod.metadata
        alike = ObjectMeta(
            name=_NAME,
            namespace=metadata.namespace,
            labels=metadata.labels,
            annotations=metadata.annotations,
        )
        key = encode(msgspec.structs.replace(pod, metadata=alike))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._shape(key, metadata.namespace)
        if shape.pod is None:
            if REQUEST_ANNOTATION in pod.annotations:
                self.unrestored += 1
            return None
        if shape.denial:
            return TranslatedPod(pod=pod, denial=shape.denial)
        entries = {entry.name for entry in shape.pod.spec.resource_claims or ()}
        own_claims = _own_claims(recorded, entries)
        return TranslatedPod(
            pod=msgspec.structs.replace(shape.pod, metadata=metadata),
            claims=(*shape.claims, *map(unallocated, own_claims)),
        )

    def _shape(self, key: bytes, namespace: str) -> _Shape:
        document = {"apiVersion": "v1", "kind": "Pod", **decode(key, dict)}
        source = SourceObject(document=document, source=_SOURCE, line=0)
        created = as_created(source, self._snapshot)
        result = translate_adopted(created, self._snapshot, self._options, namespace)
        answer = result.answer
        if result.document is None:
            return _Shape(pod=Pod(), denial=_denial(result))
        if answer is None or answer.decision is not Decision.TRANSLATED:
            return _Shape(pod=None)
        pod = decode_view(result.document, Pod)
        assert isinstance(pod, Pod)
        return _Shape(
            pod=pod,
            claims=tuple(
                ResourceClaim(
                    metadata=ObjectMeta(name=claim.label, namespace=namespace),
                    spec=decode(msgspec.json.encode(claim.spec["spec"]), ResourceClaimSpec),
                )
                for claim in result.claims
            ),
        )


def _own_claims(recorded: RecordedPod, entries: Collection[str]) -> Iterator[ResourceClaim]:
    """Yield the claims that a pod has beside its keys.

    Args:
        entries: The names in `spec.resourceClaims` of the pod as its author wrote it, and as it is translated.
    """
    if recorded.claim_of:
        yield from (claim for name, claim in recorded.claim_of.items() if name in entries)
        return
    for claim in recorded.replay.all_claims:
        if (claim.metadata.annotations or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
            yield claim


def _denial(result: TranslatedObject) -> str:
    errors: list[Finding] = [finding for finding in result.findings if finding.is_error]
    return finding_text(errors[0]) if errors else "it is rejected"
