"""The request annotation: what a translated pod asked for, and all that its claims derive from.

It holds the original keys and values, the recipe version, and the facts that the translation used:
which profile spoke for which vocabulary, its content hash, and what devices published. The claim
specs are a pure function of it, so the controller derives them again from the persisted pod. It is
hostile when it is read: at worst its author gets what the same keys could have asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kube.api.meta import decode
from kube.quantity import Quantity
from webhook.claims import RECIPE
from webhook.intents import DeviceKind, LegacyContainer, LegacyPod, Vocabulary
from webhook.inventory import Facts
from webhook.profile import Profile

MAX_BYTES: Final = 64 * 1024
MAX_CONTAINERS: Final = 256
MAX_SIZES: Final = 64

_TOO_LONG: Final = f"longer than {MAX_BYTES} bytes"


class RequestError(ValueError):
    """Text that is not a request annotation of this recipe; the message says why."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the annotation."""


class UsedProfile(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Which profile spoke for a vocabulary, and what it knew.

    Attributes:
        hash: The content hash of the profile.
        facts: Only what the translation used.
    """

    vocabulary: str
    name: str
    hash: str
    facts: Mapping[DeviceKind, Facts] = {}


class RequestedContainer(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The device keys of one container, as they were in its limits; none where it only uses."""

    name: str
    limits: Mapping[str, Quantity]
    init: bool = False
    sidecar: bool = False


class Request(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """What the annotation says.

    Attributes:
        profiles: In the order that decides who owns a key which several vocabularies speak.
        containers: Those with device keys, in the order of the pod; all of them where a vocabulary
            gives its devices to the whole pod.
        annotations: Of the pod, those that its vocabularies depend on.
    """

    recipe: int
    profiles: tuple[UsedProfile, ...]
    containers: tuple[RequestedContainer, ...]
    annotations: Mapping[str, str] = {}

    def encode(self) -> str:
        """Return the annotation's text; the same request always gives the same text."""
        text: str = msgspec.json.encode(self, enc_hook=str, order="sorted").decode()
        return text

    def legacy_pod(self) -> LegacyPod:
        """Return the pod as vocabularies read it."""
        return LegacyPod(
            containers=tuple(
                LegacyContainer(
                    name=container.name,
                    path=f"containers[{container.name}]",
                    limits=container.limits,
                    init=container.init,
                    sidecar=container.sidecar,
                )
                for container in self.containers
            ),
            annotations=self.annotations,
        )

    def keys(self) -> frozenset[str]:
        """Return every resource name that was taken from the pod."""
        return frozenset(key for container in self.containers for key in container.limits)


def decode_request(text: str) -> Request:
    """Return the request that an annotation holds.

    Raises:
        RequestError: The text is too long, malformed, or of another recipe.
    """
    if len(text) > MAX_BYTES:
        raise RequestError(_TOO_LONG)
    try:
        request = decode(text, Request)
        excess = excess_of(request, text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as fault:
        raise RequestError(f"not what the webhook writes: {fault}") from fault
    if request.recipe != RECIPE:
        raise RequestError(f"recipe {request.recipe} is not known here, {RECIPE} is")
    if excess is not None:
        raise RequestError(excess)
    return request


def excess_of(request: Request, text: str) -> str | None:
    """Return what of a request is more than is read back; None when it may be written.

    Args:
        text: The request, encoded.
    """
    if len(text.encode()) > MAX_BYTES:
        return _TOO_LONG
    if len(request.containers) > MAX_CONTAINERS:
        return f"{len(request.containers)} containers, at most {MAX_CONTAINERS}"
    if any(len(facts.sizes or ()) > MAX_SIZES for facts in _all_facts(request)):
        return f"more than {MAX_SIZES} memory sizes"
    return None


def _all_facts(request: Request) -> Iterable[Facts]:
    return (facts for profile in request.profiles for facts in profile.facts.values())


def request_for(
    pod: LegacyPod,
    vocabularies: Sequence[Vocabulary],
    profiles: Sequence[tuple[str, Profile, Mapping[DeviceKind, Facts]]],
) -> Request:
    """Return what to write on a pod.

    Args:
        pod: Its containers' limits hold only keys that these vocabularies own.
        vocabularies: Those that own keys of the pod.
        profiles: Vocabulary name, the profile that speaks for it, and the facts that were used.
    """
    depends_on = {name for vocabulary in vocabularies for name in vocabulary.annotations}
    every_container = any(vocabulary.whole_pod for vocabulary in vocabularies)
    return Request(
        recipe=RECIPE,
        profiles=tuple(
            UsedProfile(
                vocabulary=vocabulary,
                name=profile.driver,
                hash=profile.content_hash,
                facts={kind: fact for kind, fact in facts.items() if fact != Facts()},
            )
            for vocabulary, profile, facts in profiles
        ),
        containers=tuple(
            RequestedContainer(
                name=container.name,
                limits=container.limits,
                init=container.init,
                sidecar=container.sidecar,
            )
            for container in pod.containers
            if container.limits or every_container
        ),
        annotations={
            name: text for name, text in sorted(pod.annotations.items()) if name in depends_on
        },
    )
