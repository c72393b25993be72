"""The claims that the pods of a stored workload will have. Pure."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from admission.pod_sizes import check_sizes
from controllers.model.stored_objects import StoredObject, stored_object
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.workloads import pod_path, resolve_path
from kube.names import REQUEST_ANNOTATION
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.pipeline.translate import Translated, translate
from translation.reading.arbiter import translating_vocabularies
from translation.reading.legacy_pod import legacy_pod


def template_digest(raw: bytes, kind: tuple[str, str], texts: Iterable[bytes]) -> str | None:
    """Return a digest of the pod template of a workload; None for one without device keys, or of another.

    Args:
        kind: Its apiVersion and kind.
        texts: The result of `key_texts`, so that most workloads need not be decoded.
    """
    workload = stored_object(raw, kind, texts)
    if workload is None:
        return None
    _, template = resolve_path(workload.document, pod_path(*kind) or ())
    return sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()


def workload_claims(
    workload: StoredObject, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Sequence[Claim]:
    """Return the claims of the pods that a workload creates; none of pods that are not translated.

    Where another webhook changes the pods, they get other claims; then these are the templates of nobody.
    """
    _, template = resolve_path(workload.document, pod_path(*workload.kind) or ())
    try:
        pod = convert(template, Pod)
    except (msgspec.ValidationError, RecursionError):
        return ()  # No pod can be made of it.
    vocabularies = translating_vocabularies(pod, vocabularies_in_force(options, snapshot.profiles))
    if REQUEST_ANNOTATION in pod.annotations or any(check_sizes(pod, vocabularies)):
        return ()
    outcome = translate(
        legacy_pod(pod, vocabularies),
        namespace=workload.metadata.namespace,
        snapshot=snapshot,
        options=options,
    )
    return outcome.claims if isinstance(outcome, Translated) else ()
