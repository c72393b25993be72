"""A pod to claims: whether to translate it, who owns it, and what it becomes.

The whole decision is here, pure, and the same for the webhook, the controller and the command line.
It comes in two halves on purpose. The first reads pod and world and writes down, as a `Request`,
what was asked and which facts count. The second, `derive`, makes claims of the request alone; it is
all that the controller calls, since it trusts nothing but the persisted annotation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kube.api.core import Pod
from kube.product import TRANSLATE_LABEL
from webhook.claims import Claim, Compiled, compile_claims
from webhook.findings import Code, Finding, error, has_errors, info, shown, warning
from webhook.intents import DeviceKind, Intent, LegacyPod, Translation, Variable
from webhook.inventory import UNKNOWN, Facts
from webhook.legacy import has_device_keys, legacy_pod, unequal
from webhook.profile import Profile, Sharing
from webhook.request import Request, excess_of, request_for
from webhook.vocabularies import arbiter
from webhook.vocabularies.hami import VOCABULARY as HAMI
from webhook.vocabularies.nvidia import VOCABULARY as NVIDIA
from webhook.world import Options, QuotaPolicy, World

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
CONVERTED_LABELS: Final = {"hami.io/dra": "true"}
"""Labels of other converters on pods that they made claims for."""
OPT_OUT_LABELS: Final = {TRANSLATE_LABEL: "false"}
HAMI_OPT_OUT_LABELS: Final = {"hami.io/webhook": "ignore"}
DISCOVERY_PREFIX: Final = "nvidia.com/"


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


def translate_pod(pod: Pod, *, namespace: str, world: World, options: Options) -> Outcome:
    """Return what becomes of a pod that carries no request annotation.

    Args:
        namespace: Where the pod goes; at admission its own field may be empty.
    """
    if not has_device_keys(pod):
        return Untouched()
    legacy = legacy_pod(pod)
    left = _left_alone(pod, legacy, namespace, world, options)
    if left:
        return Untouched(findings=tuple(left))
    faults = tuple(unequal(pod))
    if faults:
        return Refused(findings=faults)
    if _passes_through(legacy, world):
        return Untouched(findings=(_passed_through(legacy, world),))
    return _translate(pod, legacy, namespace, world, options)


def _translate(
    pod: Pod, legacy: LegacyPod, namespace: str, world: World, options: Options
) -> Outcome:
    owners = arbiter.owners(legacy, bare_gpu=options.bare_gpu)
    readings = _read(legacy, owners)
    speakers = _speakers(readings, world, options)
    facts = {
        profile.driver: _used(readings, speakers, profile, world.facts.get(profile.driver, {}))
        for profile in speakers.values()
    }
    derived = _derive(readings, legacy, speakers, facts)
    request = request_for(
        legacy,
        [arbiter.VOCABULARIES[name] for name in owners],
        [(name, profile, facts[profile.driver]) for name, profile in speakers.items()],
    )
    annotation = request.encode()
    findings = (
        *_unwritable(request, annotation),
        *derived.findings,
        *_missing_classes(derived.claims, world),
        *_uncounted(derived.claims, _counted(legacy, readings), namespace, world, options),
        *_taken(derived.claims, namespace, world),
        *_node_labels(pod),
        *_kept(legacy, derived.variables),
    )
    if has_errors(findings):
        return Refused(findings=findings)
    if not derived.claims and not any(map(bool, _amounts(legacy))):
        return Untouched(findings=findings)
    scheduler = options.scheduler_for(pod.spec.scheduler_name)
    return Translated(
        request=request,
        annotation=annotation,
        claims=derived.claims,
        variables=derived.variables,
        scheduler_name=scheduler if scheduler != pod.spec.scheduler_name else None,
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


def _kept(legacy: LegacyPod, variables: Iterable[Variable]) -> Iterator[Finding]:
    environments = {container.name: container.environment for container in legacy.containers}
    for variable in variables:
        kept = environments[variable.container].get(variable.name, variable.value)
        if kept != variable.value:
            yield warning(
                Code.KEPT_VALUE,
                variable.path,
                f"{variable.name} would be {variable.value}; the container sets it to "
                f"{shown(kept)}, which stays",
            )


# --- the second half: from a request to claims ---------------------------------------------------


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a request alone."""

    claims: tuple[Claim, ...] = ()
    variables: tuple[Variable, ...] = ()
    findings: tuple[Finding, ...] = ()


def derive(request: Request, profiles: Mapping[str, Profile]) -> Derived:
    """Return the claims that a request asks for.

    Args:
        request: Hostile: every name and amount in it may be invented.
        profiles: Driver name to the profile in force here.
    """
    speakers: dict[str, Profile] = {}
    for place, used in enumerate(request.profiles):
        path = f"profiles[{place}]"
        profile = profiles.get(used.name)
        if used.vocabulary not in arbiter.VOCABULARIES or profile is None:
            unknown = f"{shown(used.vocabulary)} with {shown(used.name)} is not known here"
            return Derived(findings=(error(Code.REQUEST_MALFORMED, path, unknown),))
        if profile.content_hash != used.hash:
            stale = f"profile {used.name} is {profile.content_hash} here, not {shown(used.hash)}"
            fix = "make the pod again from its legacy manifest"
            return Derived(findings=(error(Code.PROFILE_CHANGED, path, stale, fix),))
        speakers[used.vocabulary] = profile
    legacy = request.legacy_pod()
    facts = {used.name: used.facts for used in request.profiles}
    return _derive(_read(legacy, tuple(speakers)), legacy, speakers, facts)


Readings = Mapping[str, Translation]
"""Vocabulary name to what it made of its keys, in the order of ownership."""


def _read(legacy: LegacyPod, owners: Sequence[str]) -> Readings:
    vocabularies = [arbiter.VOCABULARIES[name] for name in owners]
    named = {key for container in legacy.containers for key in container.limits}
    split = arbiter.divided(named, vocabularies)
    return {
        vocabulary.name: vocabulary.translate(arbiter.part_of(legacy, split[vocabulary.name]))
        for vocabulary in vocabularies
    }


def _derive(
    readings: Readings,
    legacy: LegacyPod,
    speakers: Mapping[str, Profile],
    facts: Mapping[str, Mapping[DeviceKind, Facts]],
) -> Derived:
    containers_by_name = {container.name: container for container in legacy.containers}
    claims: list[Claim] = []
    findings: list[Finding] = []
    variables: list[Variable] = []
    for vocabulary, reading in readings.items():
        findings += reading.findings
        variables += reading.variables
        for profile, intents in _by_speaker(reading, vocabulary, speakers, findings).values():
            compiled: Compiled = compile_claims(
                intents,
                containers_by_name,
                profile,
                facts.get(profile.driver, {}),
                prefix=vocabulary,
            )
            claims += compiled.claims
            findings += compiled.findings
    return Derived(claims=tuple(claims), variables=tuple(variables), findings=tuple(findings))


def _by_speaker(
    reading: Translation,
    vocabulary: str,
    speakers: Mapping[str, Profile],
    findings: list[Finding],
) -> Mapping[str, tuple[Profile, list[Intent]]]:
    """Return driver to its profile and the intents that it holds."""
    groups: dict[str, tuple[Profile, list[Intent]]] = {}
    for intent in reading.intents:
        speaker = _speaker(intent, vocabulary, speakers)
        if speaker is None:
            own = speakers[vocabulary].driver if vocabulary in speakers else vocabulary
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    intent.path("mode" if intent.through_mps else "count"),
                    f"{own} has no {_wanted(intent)}",
                    f"choose another driver: --profile {vocabulary}=NAME",
                )
            )
            continue
        groups.setdefault(speaker.driver, (speaker, []))[1].append(intent)
    return groups


def _speaker(intent: Intent, vocabulary: str, speakers: Mapping[str, Profile]) -> Profile | None:
    """Return the vocabulary's own profile if it holds the intent, else the first that does.

    Without a profile of its own a vocabulary has no place in the request, so nobody could read its
    keys again: nobody speaks for it.
    """
    if vocabulary not in speakers:
        return None
    ordered = sorted(speakers.items(), key=lambda item: item[0] != vocabulary)
    return next((profile for _, profile in ordered if _holds(profile, intent)), None)


def _holds(profile: Profile, intent: Intent) -> bool:
    device = profile.devices.get(intent.kind)
    return device is not None and not (intent.through_mps and device.mps is None)


def _wanted(intent: Intent) -> str:
    return "MPS server" if intent.through_mps else f"devices of kind {intent.kind}"


# --- the first half: what a request needs to know ------------------------------------------------


def _speakers(readings: Readings, world: World, options: Options) -> Mapping[str, Profile]:
    """Return vocabulary to profile, for the owners and for whom they must borrow from.

    HAMi's modes mig and mps are held by the profile that speaks for the device plugin.
    """
    configured = {
        name: world.profiles[driver]
        for name, driver in options.profiles.items()
        if driver in world.profiles
    }
    own = {name: configured[name] for name in readings if name in configured}
    borrowed = {
        name: profile
        for name, profile in configured.items()
        if name not in own and _lends(name, profile, readings, configured)
    }
    return own | borrowed


def _lends(
    name: str, profile: Profile, readings: Readings, configured: Mapping[str, Profile]
) -> bool:
    return any(
        name != vocabulary
        and vocabulary in configured
        and not _holds(configured[vocabulary], intent)
        and _holds(profile, intent)
        for vocabulary, reading in readings.items()
        for intent in reading.intents
    )


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
        intent
        for vocabulary, reading in readings.items()
        for intent in reading.intents
        if _speaker(intent, vocabulary, speakers) is profile
    ]
    return {
        kind: _used_of(profile, kind, facts, [intent for intent in held if intent.kind is kind])
        for kind, facts in known.items()
    }


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


# --- pods that are left alone ---------------------------------------------------------------------


def _left_alone(
    pod: Pod, legacy: LegacyPod, namespace: str, world: World, options: Options
) -> list[Finding]:
    """Return why the pod is not ours to translate; empty when it is."""
    if MIRROR_ANNOTATION in pod.annotations:
        return [info(Code.OPTED_OUT, "metadata.annotations", "a mirror pod is the kubelet's own")]
    opted_out = _carries(pod.labels, OPT_OUT_LABELS) or _carries(
        world.namespaces.get(namespace, {}), OPT_OUT_LABELS
    )
    if opted_out is None and HAMI.name in arbiter.owners(legacy, bare_gpu=options.bare_gpu):
        opted_out = _carries(pod.labels, HAMI_OPT_OUT_LABELS) or _carries(
            world.namespaces.get(namespace, {}), HAMI_OPT_OUT_LABELS
        )
    if opted_out is not None:
        return [info(Code.OPTED_OUT, "metadata.labels", f"label {opted_out}: nothing translated")]
    converted = _carries(pod.labels, CONVERTED_LABELS)
    if converted is not None:
        return [
            info(
                Code.ALREADY_CONVERTED,
                "metadata.labels",
                f"label {converted}: another converter made this pod's claims",
            )
        ]
    return list(_scheduled_elsewhere(pod, options))


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    return next((f"{k}={v}" for k, v in wanted.items() if labels.get(k) == v), None)


def _scheduled_elsewhere(pod: Pod, options: Options) -> Iterator[Finding]:
    if pod.spec.node_name:
        yield warning(
            Code.NODE_NAME_SET,
            "spec.nodeName",
            "the pod is bound to a node without a scheduler, so nobody could allocate its claims; "
            "not translated",
            "leave nodeName out, or select the node with a nodeSelector",
        )
    elif options.scheduler_for(pod.spec.scheduler_name) is None:
        yield warning(
            Code.FOREIGN_SCHEDULER,
            "spec.schedulerName",
            f"{shown(pod.spec.scheduler_name)} may not understand claims; not translated",
            "leave schedulerName out, or list the scheduler in adoptSchedulers",
        )


def _passes_through(legacy: LegacyPod, world: World) -> bool:
    """Whether Kubernetes itself allocates the pod's devices (KEP-5004).

    Only whole devices can be said that way: no share, no filter, no annotation.
    """
    if any(name in HAMI.annotations for name in legacy.annotations):
        return False
    return all(
        NVIDIA.speaks(key) and key in world.extended_resources and amount.is_whole
        for container in legacy.containers
        for key, amount in container.limits.items()
    )


def _passed_through(legacy: LegacyPod, world: World) -> Finding:
    container = next(container for container in legacy.containers if container.limits)
    key = min(container.limits)
    return info(
        Code.PASSED_THROUGH,
        container.limit_path(key),
        f"DeviceClass {world.extended_resources[key]} maps {key}: Kubernetes allocates it as it is",
    )


# --- what the place says --------------------------------------------------------------------------


def _classes(claims: Sequence[Claim]) -> list[str]:
    return sorted({name for claim in claims for name in claim.class_names()})


def _missing_classes(claims: Sequence[Claim], world: World) -> Iterator[Finding]:
    if world.classes is None:
        return
    for name in _classes(claims):
        if name not in world.classes:
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                "spec.resourceClaims",
                f"there is no DeviceClass {name}: the pod waits until its driver is installed",
                "install the driver, or choose another: --profile VOCABULARY=NAME",
            )


def _uncounted(
    claims: Sequence[Claim],
    counted: Iterable[tuple[str, str]],
    namespace: str,
    world: World,
    options: Options,
) -> Iterator[Finding]:
    """Yield a finding for each quota that would silently stop counting this pod.

    Args:
        counted: Key and path of every amount that quotas count.
    """
    replacements = [f"{name}.deviceclass.resource.k8s.io/devices" for name in _classes(claims)]
    quotas = world.quotas.get(namespace, {})
    if replacements and all(
        any(replacement in hard for hard in quotas.values()) for replacement in replacements
    ):
        return
    say = error if options.quota is QuotaPolicy.DENY else warning
    for key, path in counted:
        for quota in sorted(quotas):
            if f"requests.{key}" in quotas[quota]:
                yield say(
                    Code.QUOTA_NOT_COUNTED,
                    path,
                    f"ResourceQuota {quota} counts requests.{key}, which a claim is not part of",
                    f"count {', '.join(replacements) or 'claims'} in a ResourceQuota instead",
                )


def _counted(legacy: LegacyPod, readings: Readings) -> Iterator[tuple[str, str]]:
    """Yield key and path of every amount that quotas counted before."""
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            if amount:
                yield key, container.limit_path(key)
    limits = {container.name: container.limits for container in legacy.containers}
    for vocabulary, reading in readings.items():
        added = arbiter.VOCABULARIES[vocabulary].added_key
        for intent in reading.intents:
            if added is not None and added not in limits[intent.container]:
                yield added, intent.path("count")


def _taken(claims: Sequence[Claim], namespace: str, world: World) -> Iterator[Finding]:
    for claim in claims:
        found = world.templates.get((namespace, claim.template))
        if found is not None and found != claim.digest:
            yield error(
                Code.TEMPLATE_TAKEN,
                "spec.resourceClaims",
                f"ResourceClaimTemplate {claim.template} exists with other content than its name "
                "stands for",
                f"delete it: kubectl delete resourceclaimtemplate -n {namespace} {claim.template}",
            )


def _node_labels(pod: Pod) -> Iterator[Finding]:
    for key, text in sorted((pod.spec.node_selector or {}).items()):
        if not key.startswith(DISCOVERY_PREFIX):
            continue
        path = f"spec.nodeSelector[{key}]"
        if text.endswith("-SHARED"):
            yield warning(
                Code.SHARED_NODE_LABEL,
                path,
                f"{shown(text)} stands on nodes whose device plugin shares GPUs; a driver's nodes "
                "do not carry it",
                "select the product without -SHARED",
            )
        else:
            yield info(
                Code.NODE_LABEL, path, "set by GPU feature discovery, which must keep running"
            )
