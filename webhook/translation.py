"""A pod to claims: whether to translate it, who owns it, and what it becomes.

The whole decision is pure, and the same for the webhook and the command line. It comes in two
halves on purpose: here pod and world are read and written down, as a `Request`, with just the facts
that count; `derivation` makes claims of the request alone.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from webhook.claims import Claim
from webhook.derivation import Readings, claims_of, holds, read, speaker
from webhook.findings import Code, Finding, error, has_errors
from webhook.guards import (
    counted,
    environment,
    kept,
    left_alone,
    missing_classes,
    node_labels,
    passed_through,
    passes_through,
    uncounted,
)
from webhook.intents import Alignment, DeviceKind, Intent, LegacyPod, Scope, Variable
from webhook.inventory import UNKNOWN, Facts
from webhook.legacy import unequal
from webhook.profile import Profile, Sharing
from webhook.request import Request, excess_of, request_for
from webhook.vocabularies import arbiter
from webhook.world import Options, World, vocabularies


class Untouched(msgspec.Struct, frozen=True, kw_only=True):
    """The pod stays as it is."""

    findings: tuple[Finding, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is wrong, or cannot be said in claims; at least one finding is an error."""

    findings: tuple[Finding, ...]


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod becomes.

    Attributes:
        annotation: The request, encoded.
        claims: With the containers that use them.
        variables: Environment to add where a container does not set it.
        scheduler_name: The scheduler that gets the pod; None leaves it where it is.
    """

    request: Request
    annotation: str
    claims: tuple[Claim, ...]
    variables: tuple[Variable, ...] = ()
    scheduler_name: str | None = None
    findings: tuple[Finding, ...] = ()


Outcome = Untouched | Refused | Translated


def translate(legacy: LegacyPod, *, namespace: str, world: World, options: Options) -> Outcome:
    """Return what becomes of a pod that carries no request annotation.

    The world's templates are not looked at: whether one is taken is no matter of what a pod becomes.

    Args:
        namespace: Where the pod goes; at admission its own field may be empty.
    """
    if not legacy.asks_for_devices:
        return Untouched()
    left = left_alone(legacy, namespace, world, options)
    if left:
        return Untouched(findings=tuple(left))
    faults = (*unequal(legacy), *arbiter.conflicts(legacy))
    if faults:
        return Refused(findings=faults)
    if passes_through(legacy, world, options):
        return Untouched(findings=(passed_through(legacy, world),))
    return _translated(legacy, namespace, world, options)


def _translated(legacy: LegacyPod, namespace: str, world: World, options: Options) -> Outcome:
    speaking = vocabularies(options, world.profiles)
    names = arbiter.owners(legacy, bare_gpu=options.bare_gpu, vocabularies=speaking)
    owners = [speaking[name] for name in names]
    readings = read(legacy, owners)
    speakers = _speakers(readings, world, options)
    facts = {
        profile.driver: _used(readings, speakers, profile, world.facts.get(profile.driver, {}))
        for profile in speakers.values()
    }
    derived = claims_of(readings, legacy, speakers, facts)
    request = request_for(
        legacy,
        owners,
        [(name, profile, facts[profile.driver]) for name, profile in speakers.items()],
    )
    annotation = request.encode()
    findings = (
        *_unwritable(request, annotation),
        *derived.findings,
        *missing_classes(derived.claims, world),
        *uncounted(
            derived.claims,
            counted(legacy, readings),
            legacy.scopes,
            world.quotas.get(namespace, {}),
            options,
        ),
        *node_labels(legacy),
        *kept(legacy, derived.variables),
        *environment(legacy),
    )
    if has_errors(findings):
        return Refused(findings=findings)
    if not derived.claims and not any(map(bool, _amounts(legacy))):
        return Untouched(findings=findings)
    scheduler = options.scheduler_for(legacy.scheduler_name)
    return Translated(
        request=request,
        annotation=annotation,
        claims=derived.claims,
        variables=derived.variables,
        scheduler_name=scheduler if scheduler != legacy.scheduler_name else None,
        findings=findings,
    )


def _unwritable(request: Request, annotation: str) -> Iterator[Finding]:
    excess = excess_of(request, annotation)
    if excess is not None:
        yield error(
            Code.TOO_LONG,
            "metadata.annotations",
            f"the request annotation that the pod would carry is {excess}",
            "shorten the annotations that steer its devices",
        )


def _amounts(legacy: LegacyPod) -> Iterator[object]:
    return (amount for container in legacy.containers for amount in container.limits.values())


# --- what a request needs to know -----------------------------------------------------------------


def _speakers(readings: Readings, world: World, options: Options) -> Mapping[str, Profile]:
    """Return vocabulary to profile, for the owners and for whom they must borrow from.

    HAMi's modes mig and mps are held by the profile that speaks for the device plugin, and
    Koordinator's NICs by the one that speaks for RDMA.
    """
    configured = {
        name: world.profiles[driver]
        for name, driver in options.profiles.items()
        if driver in world.profiles
    }
    own = {name: configured[name] for name in readings if name in configured}
    lenders = {
        _lender(intent, configured, own)
        for vocabulary, reading in readings.items()
        for intent in reading.intents
        if vocabulary in own and not holds(own[vocabulary], intent)
    }
    borrowed = {name: configured[name] for name in configured if name in lenders}
    return own | borrowed


def _lender(
    intent: Intent, configured: Mapping[str, Profile], own: Mapping[str, Profile]
) -> str | None:
    """Return whose profile holds what an owner's own does not: another owner's first."""
    names = (*own, *(name for name in configured if name not in own))
    return next((name for name in names if holds(configured[name], intent)), None)


def _used(
    readings: Readings,
    speakers: Mapping[str, Profile],
    profile: Profile,
    known: Mapping[DeviceKind, Facts],
) -> Mapping[DeviceKind, Facts]:
    """Return only those facts that the intents' claims depend on.

    So a request, and with it the name of its template, changes only when a claim does.
    """
    held = [
        (intent, reading.alignment)
        for vocabulary, reading in readings.items()
        for intent in reading.intents
        if speaker(intent, vocabulary, speakers) is profile
    ]
    used: dict[DeviceKind, Facts] = {}
    for kind, facts in known.items():
        of_kind = [(intent, alignment) for intent, alignment in held if intent.kind is kind]
        used[kind] = msgspec.structs.replace(
            _used_of(profile, kind, facts, [intent for intent, _ in of_kind]),
            per_root=_used_roots(facts, of_kind),
        )
    return used


def _used_roots(
    facts: Facts, intents: Sequence[tuple[Intent, Alignment | None]]
) -> tuple[int, ...] | None:
    """Return the sizes of groups where devices are dealt into groups.

    Elsewhere it only matters whether known devices publish no root.
    """
    rooted = [
        (intent, alignment)
        for intent, alignment in intents
        if intent.within is Scope.PCIE_ROOT or (alignment and intent.kind in alignment.kinds)
    ]
    if not rooted or facts == UNKNOWN:
        return None
    if facts.per_root is None:
        return ()
    deals = any(
        alignment and intent.kind is alignment.kinds[0] and intent.count > 1
        for intent, alignment in rooted
    )
    return facts.per_root if deals else None


def _used_of(profile: Profile, kind: DeviceKind, facts: Facts, intents: Sequence[Intent]) -> Facts:
    device = profile.devices.get(kind)
    if device is None or not intents:
        return UNKNOWN
    takes_all = any(intent.takes_all_memory for intent in intents)
    by_size = any(intent.memory_percent is not None for intent in intents)
    by_profile = kind is DeviceKind.MIG and any(intent.memory is not None for intent in intents)
    default_is_part = takes_all and facts.default_is_part
    return Facts(
        sizes=facts.sizes if by_size or by_profile or default_is_part else None,
        shared=facts.shared if device.sharing is Sharing.PUBLISHED else None,
        default_is_part=default_is_part,
        replicas=facts.replicas if any(_counts_replicas(i, facts) for i in intents) else None,
    )


def _counts_replicas(intent: Intent, facts: Facts) -> bool:
    return intent.replica or (intent.exclusive and bool(facts.shared) and bool(facts.replicas))
