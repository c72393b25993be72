"""The signature in the answer to a review: pods with an accepted translation are signed; pure.

Every answer to a creation settles the annotation: a signature that a pod brings along, such as that of
a pod that it was copied from, is kept only if it is what the webhook would write now. Updates do not
change it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from admission.pods import SIGNATURE_POINTER, Answer, Decision
from kube.jsonpatch import add, remove
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from translation.cluster.snapshot import exempt_namespaces
from translation.record.signature import (
    Keys,
    SignedContent,
    content_of,
    is_fresh,
    sign,
    signing_key,
)

SIGNED: Final = frozenset({Decision.TRANSLATED, Decision.ACCEPTED})


class Signing(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and the time to sign with.

    Attributes:
        now: The time, with a time zone.
        propagation: The minimum age of a key for signing, if there are several.
        exempt_namespaces: The namespaces for whose pods nothing is signed: API servers never send
            them, but other clients may ask for a signature.
    """

    keys: Keys
    now: datetime
    propagation: timedelta = timedelta()
    exempt_namespaces: Collection[str] = exempt_namespaces()


class UnsignedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the creation of a pod, before its signature is settled.

    Attributes:
        content: The content to sign; None if nothing is signed.
        present: The signature that the pod brings along.
    """

    answer: Answer
    content: SignedContent | None = None
    present: str | None = None


def unsigned_answer(
    answer: Answer, patched_pod: Mapping[str, Any], namespace: str
) -> UnsignedAnswer:
    """Return an answer with the parts of the pod that `sign_answer` needs.

    Args:
        patched_pod: The pod after the operations of the answer.
        namespace: The pod's namespace.
    """
    if not answer.allowed:
        return UnsignedAnswer(answer=answer)
    annotations = (patched_pod.get("metadata") or {}).get("annotations") or {}
    content = None
    if answer.decision in SIGNED:
        record = annotations[REQUEST_ANNOTATION]
        content = content_of(patched_pod, namespace=namespace, record=record)
    present = annotations.get(SIGNATURE_ANNOTATION)
    return UnsignedAnswer(answer=answer, content=content, present=present)


def sign_answer(computed_answer: UnsignedAnswer, signing: Signing) -> Answer:
    """Return the answer with the operation that settles the signature."""
    answer, content, present = (
        computed_answer.answer,
        computed_answer.content,
        computed_answer.present,
    )
    signature = None
    if content is not None and content.namespace not in signing.exempt_namespaces:
        if is_fresh(present, content, signing.keys, signing.now):
            return answer
        key = signing_key(signing.keys, signing.now, signing.propagation)
        signature = None if key is None else sign(content, key, signing.now)
    if signature is not None:
        operation = add(SIGNATURE_POINTER, signature)
    elif present is not None:
        operation = remove(SIGNATURE_POINTER)
    else:
        return answer
    return msgspec.structs.replace(answer, operations=(*answer.operations, operation))
