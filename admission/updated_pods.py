"""The answer to a review of the update of a pod, pure.

A client-side apply of a manifest merges maps, and lists with a merge key. The claims of a container and the
tolerations of a pod have none, so that the manifest's lists would take the translation's entries away, which
the API server refuses.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from admission.pod_sizes import check_sizes
from admission.pods import SIGNATURE_POINTER, UNTOUCHED, Answer, Decision
from admission.recorded_pods import (
    check_amounts,
    malformed_finding,
    new_keys,
    read_record,
    record_changed_finding,
)
from kube.api.core import Pod, Toleration
from kube.jsonpatch import Operation, add, pointer, remove
from kube.names import DEFAULT_SCHEDULER_NAME, REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from translation.cluster.node_taints import EXISTS, NO_SCHEDULE
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.pipeline.patch import strip_keys
from translation.preflight.pods.kept_scheduler import check_kept_scheduler
from translation.reading.arbiter import translating_vocabularies
from translation.reading.legacy_pod import containers
from translation.record.record import RecordError, decode_record

_Entry = TypeVar("_Entry", bound=msgspec.Struct)


def admit_updated(
    document: Mapping[str, Any],
    pod: Pod,
    old: Pod,
    *,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    opted_in: bool = False,
) -> Answer:
    """Answer the update of a pod, or of its status.

    Args:
        opted_in: The label of its namespace may have replaced the pod's scheduler.
    """
    vocabularies = translating_vocabularies(pod, vocabularies_in_force(options, snapshot.profiles))
    record_text = old.annotations.get(REQUEST_ANNOTATION)
    if pod.annotations.get(REQUEST_ANNOTATION) != record_text:
        return Answer(decision=Decision.REFUSED, findings=(record_changed_finding(record_text),))
    if record_text is None:
        return UNTOUCHED
    signature_operations = _restore_signature(pod, old)
    keys = new_keys(pod, old, vocabularies)
    if not any(keys.values()) and not _depends_on_annotations(record_text):
        decision = Decision.STRIPPED if signature_operations else Decision.UNTOUCHED
        return Answer(decision=decision, operations=signature_operations)
    faults = tuple(check_sizes(pod, vocabularies))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    try:
        record = decode_record(record_text)
    except RecordError as fault:
        return Answer(decision=Decision.REFUSED, findings=(malformed_finding(fault),))
    faults = tuple(check_amounts(pod, record, keys))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    operations = (
        *signature_operations,
        *strip_keys(document, keys),
        *_restore_lists(pod, old, keys, snapshot),
    )
    new_name, kept_name = pod.spec.scheduler_name, old.spec.scheduler_name
    adopting_name = options.scheduler_for(new_name, snapshot.bridge_scheduler, opted_in=opted_in)
    # It has got its scheduler from a translation or from the routing after it, and its manifest has another one.
    is_kept = new_name != kept_name and (
        kept_name == adopting_name
        or (
            kept_name == snapshot.bridge_scheduler and adopting_name in {"", DEFAULT_SCHEDULER_NAME}
        )
    )
    if not is_kept:
        decision = Decision.STRIPPED if operations else Decision.UNTOUCHED
        return Answer(decision=decision, operations=operations)
    return Answer(
        decision=Decision.STRIPPED,
        operations=(*operations, add(pointer("spec", "schedulerName"), kept_name)),
        findings=tuple(check_kept_scheduler(new_name, kept_name, snapshot, options)),
    )


def _depends_on_annotations(record_text: str) -> bool:
    """Return True if a pod has claims for annotations; a translation leaves these in place."""
    try:
        return bool(decode_record(record_text).annotations)
    except RecordError:
        return False


def _restore_lists(
    pod: Pod, old: Pod, keys: Mapping[str, Collection[str]], snapshot: TranslationSnapshot
) -> Iterator[Operation]:
    """Yield the operations that undo the loss of translated entries in lists without a merge key.

    Args:
        keys: Container name to the keys that its manifest has put back. Those that have none in the record have
            their devices for annotations, if any, which stay in place.
    """
    record, derivation = read_record(old, snapshot)
    with_keys = {part.name for part in record.containers if part.limits} if record else set()
    names = {
        container.name
        for _, container in containers(old)
        if keys.get(container.name) or container.name not in with_keys
    }
    yield from _restore_uses(pod, old, derivation.claims, names)
    taint_keys = {key for new_names in keys.values() for key in new_names}
    # A routed pod may have that of the bridge's taint, whose key is a setting that may have changed since.
    is_routed = old.spec.scheduler_name == snapshot.bridge_scheduler
    yield from _restore_tolerations(pod, old, None if is_routed else taint_keys)


def _restore_signature(pod: Pod, old: Pod) -> tuple[Operation, ...]:
    """Return the operations that give a pod the signature, or the lack of one, that it had.

    A signature that was copied from a pod of the same content would pass for the result of this pod's
    own review, in which it was taken away.

    Args:
        pod: A pod with a record, and so with annotations.
    """
    signature = old.annotations.get(SIGNATURE_ANNOTATION)
    if pod.annotations.get(SIGNATURE_ANNOTATION) == signature:
        return ()
    return (remove(SIGNATURE_POINTER) if signature is None else add(SIGNATURE_POINTER, signature),)


def _restore_uses(
    pod: Pod, old: Pod, claims: Iterable[Claim], names: Collection[str]
) -> Iterator[Operation]:
    """Yield the operations that give containers their uses of translated claims again.

    Args:
        claims: The claims that derive from the record of the old pod.
        names: The containers whose manifest was applied again.
    """
    templates = {claim.template for claim in claims}
    labels = {
        entry.name
        for entry in old.spec.resource_claims or ()
        if entry.resource_claim_template_name in templates
    }
    old_uses = {container.name: container.claims for _, container in containers(old)}
    for field, field_containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(field_containers or ()):
            uses = container.claims
            old_container_uses = old_uses.get(container.name, ())
            restored_uses = _merged(uses, old_container_uses, lambda use: use.name in labels)
            if container.name in names and restored_uses is not uses:
                path = ("spec", field, index, "resources")
                uses_document = [_document(use) for use in restored_uses]
                if container.resources is None:
                    yield add(pointer(*path), {"claims": uses_document})
                else:
                    yield add(pointer(*path, "claims"), uses_document)


def _restore_tolerations(pod: Pod, old: Pod, keys: Collection[str] | None) -> Iterator[Operation]:
    """Yield the operation that gives a pod the tolerations again that admission has added.

    Args:
        keys: The keys of taints that admission adds tolerations of; None for any.
    """
    tolerations = pod.spec.tolerations or ()
    restored_tolerations = _merged(
        tolerations,
        old.spec.tolerations or (),
        lambda entry: _is_plain(entry) and (keys is None or entry.key in keys),
    )
    if restored_tolerations is not tolerations:
        yield add(
            pointer("spec", "tolerations"), [_document(entry) for entry in restored_tolerations]
        )


def _merged(
    new: Sequence[_Entry], old: Sequence[_Entry], is_restored: Callable[[_Entry], bool]
) -> Sequence[_Entry]:
    """Return a new list with entries of the old one that are restored; those that stay keep their old order."""
    new_entries, old_entries = set(new), set(old)
    if not any(entry not in new_entries and is_restored(entry) for entry in old):
        return new
    return (
        *(entry for entry in old if entry in new_entries or is_restored(entry)),
        *(entry for entry in new if entry not in old_entries),
    )


def _is_plain(toleration: Toleration) -> bool:
    return toleration.operator == EXISTS and toleration.effect == NO_SCHEDULE


def _document(entry: msgspec.Struct) -> Mapping[str, Any]:
    document: Mapping[str, Any] = msgspec.to_builtins(entry)
    return document
