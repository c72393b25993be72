"""The readiness of an installation of Drawbridge, part by part, and the next step. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from cli.reading.installation import (
    CERTIFICATES_LEASE,
    CONTROLLER_LEASE,
    Component,
    Installation,
    TranslatedPods,
)
from cli.verbs.status.components import check_bridge, check_optional, check_replicas
from cli.verbs.status.configurations import (
    check_authorities,
    check_configurations,
    check_gates,
    check_mode,
    labelled,
    mode_of,
)
from cli.verbs.status.mappings import check_mappings
from cli.verbs.status.migration import check_migration
from cli.verbs.status.model import (
    ComponentStatus,
    DriverStatus,
    NamespaceStatus,
    State,
    StatusAnswer,
    StatusCheck,
    VocabularyStatus,
)
from findings.text import count_text, join_names
from kube.api.device_quota import DeviceQuota, QuotaEnforcement
from kube.api.policy import Condition
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES

_NEEDED: Final = {"deployments", "mutatingwebhookconfigurations"}
"""Resources without which nobody knows whether anything is installed."""
MAX_LISTED: Final = 20
"""Names of pods."""


def build_status(installation: Installation, *, client_version: str, now: datetime) -> StatusAnswer:
    """Return the status of an installation.

    Args:
        installation: The facts that the cluster tells.
        client_version: This command's version.
        now: The present time, used where the API server does not tell it.
    """
    now = installation.read_at or now
    checks = tuple(_checks(installation, client_version, now))
    is_ready = all(check.state not in {State.WAITING, State.FAILED} for check in checks)
    chosen = installation.settings.translation.options().vocabularies
    return StatusAnswer(
        ready=is_ready,
        namespace=installation.namespace,
        mode=mode_of(installation).value if _is_installed(installation) else "",
        client_version=client_version,
        kubernetes_version=installation.kubernetes,
        checks=checks,
        components=tuple(
            ComponentStatus(
                component=component.component,
                object=f"{component.kind}/{component.namespace}/{component.name}",
                ready=component.ready,
                desired=component.desired,
                versions=_versions([component]),
            )
            for component in sorted(installation.components, key=lambda entry: entry.component)
        ),
        drivers=_drivers(installation),
        namespaces=NamespaceStatus(
            opted_in=labelled(installation, "true"),
            opted_out=labelled(installation, "false"),
            selective=labelled(installation, TRANSLATE_SELECTED),
        ),
        vocabularies=VocabularyStatus(
            on=tuple(name for name in VOCABULARIES if name in chosen),
            off=tuple(name for name in VOCABULARIES if name not in chosen),
        ),
        translated_pods=msgspec.structs.replace(
            installation.pods,
            without_template=installation.pods.without_template[:MAX_LISTED],
            without_claim=installation.pods.without_claim[:MAX_LISTED],
        ),
        owned_drivers=installation.owned,
        feature_gates=dict(sorted(installation.gates.items())),
        next_step=_next_step(installation, checks),
        unreadable=installation.unreadable,
    )


def _checks(
    installation: Installation, client_version: str, now: datetime
) -> Iterator[StatusCheck]:
    if not _is_installed(installation) and _NEEDED <= set(installation.unreadable):
        yield StatusCheck(
            name="installation",
            state=State.FAILED,
            message="you may not read Deployments and webhook configurations",
            fix="call it as a user who may list and get what docs/status.md names",
        )
        return
    if not _is_installed(installation):
        yield StatusCheck(
            name="installation",
            state=State.FAILED,
            message=f"there is no webhook and no observer in namespace {installation.namespace}",
            fix="kubectl apply -k manifests/overlays/shadow, or helm install drawbridge charts/drawbridge "
            f"-n {installation.namespace} --create-namespace --set mode=Shadow",
        )
        return
    if _has_webhook(installation):
        yield check_replicas(installation, "webhook", now)
        yield from check_configurations(installation)
        yield check_authorities(installation, now)
        yield check_replicas(installation, "certificates", now)
        yield check_replicas(installation, "controller", now)
        yield check_mode(installation)
        yield check_gates(installation)
        yield _check_pods(installation.pods)
    for component in ("observer", "driver"):
        yield check_optional(installation, component)
    yield check_bridge(installation, now)
    yield _check_versions(installation, client_version)
    yield from _check_conditions(
        "policies",
        {policy.metadata.name: _conditions(policy.status) for policy in installation.policies},
        required=("Valid", "Accepted"),
    )
    for check in _check_conditions(
        "quotas",
        {quota.metadata.name: _quota_conditions(quota) for quota in installation.quotas},
        required=("Accepted", "Enforced"),
    ):
        notes = (check.message, *_quota_notes(installation.quotas))
        yield (
            msgspec.structs.replace(check, message="; ".join(notes))
            if check.state is State.OK
            else check
        )
    yield from _check_conditions(
        "profiles",
        {profile.metadata.name: _conditions(profile.status) for profile in installation.profiles},
        required=("Accepted",),
    )
    yield _check_devices(installation)
    yield from check_mappings(installation)
    yield from check_migration(installation)


def _is_installed(installation: Installation) -> bool:
    return _has_webhook(installation) or bool(installation.components)


def _has_webhook(installation: Installation) -> bool:
    """Return True if more than the observer, the bridge or the driver is installed."""
    leads = any(
        lease.holder_identity
        for name, lease in installation.leases.items()
        if name in {CONTROLLER_LEASE, CERTIFICATES_LEASE}
    )
    return (
        leads
        or any(installation.configurations.values())
        or any(
            component.component in {"webhook", "controller", "certificates"}
            for component in installation.components
        )
    )


def _check_pods(pods: TranslatedPods) -> StatusCheck:
    if pods.without_template:
        return StatusCheck(
            name="translated pods",
            state=State.WAITING,
            message=f"{len(pods.without_template)} of {pods.total} wait for a ResourceClaimTemplate: "
            f"{join_names(pods.without_template)}",
            fix="the controller creates them: see its log, and events TranslationNotSigned and "
            "DriverProfileChanged of the pods",
        )
    if pods.without_claim:
        return StatusCheck(
            name="translated pods",
            state=State.WAITING,
            message=f"{len(pods.without_claim)} of {pods.total} wait for kube-controller-manager to "
            f"create their claims: {join_names(pods.without_claim)}",
            fix="see the events of these pods",
        )
    return StatusCheck(
        name="translated pods", state=State.OK, message=f"{pods.total}, and all have their claims"
    )


def _check_versions(installation: Installation, client_version: str) -> StatusCheck:
    versions = _versions(installation.components)
    if len(versions) > 1:
        return StatusCheck(
            name="versions",
            state=State.WAITING,
            message=f"components run {', '.join(versions)}",
            fix="upgrade all components to one version",
        )
    if not versions:
        return StatusCheck(
            name="versions", state=State.UNKNOWN, message=f"this command is {client_version}"
        )
    message = f"components run {versions[0]}"
    if versions[0] != client_version:
        message += f"; this command is {client_version}, and may answer otherwise"
    return StatusCheck(name="versions", state=State.OK, message=message)


def _versions(components: Iterable[Component]) -> tuple[str, ...]:
    """Return the tags or digests of the images; the scheduler of the bridge is an image of its own."""
    images = (
        image
        for component in components
        for image in component.images
        if component.component != "bridge" or "scheduler" not in image
    )
    return tuple(sorted({_tag(image) for image in images}))


def _tag(image: str) -> str:
    """Return the version in the name of an image.

    >>> [_tag(image) for image in ("r:5000/drawbridge-dra:0.1.0", "a@sha256:0011223344556677", "a")]
    ['0.1.0', 'sha256:001122334455', 'latest']
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or digest[:19] or "latest"


def _conditions(status: Any) -> Sequence[Condition] | None:
    return status.conditions if status is not None else None


def _quota_conditions(quota: DeviceQuota) -> Sequence[Condition] | None:
    """Return the conditions that matter: one that only reports is not to be enforced."""
    conditions = _conditions(quota.status)
    if conditions is None or quota.spec.enforcement is not QuotaEnforcement.AUDIT:
        return conditions
    return [condition for condition in conditions if condition.type != "Enforced"]


def _quota_notes(quotas: Sequence[DeviceQuota]) -> Iterator[str]:
    """Yield the quotas with waiting pods, and those in Audit."""
    waiting = [
        quota.metadata.name
        for quota in quotas
        if quota.status is not None
        and any(limit.waiting != "0" for limit in quota.status.limits or ())
    ]
    if waiting:
        yield f"pods wait for {join_names(waiting)}: drawbridge quota status"
    audits = [
        quota.metadata.name for quota in quotas if quota.spec.enforcement is QuotaEnforcement.AUDIT
    ]
    if audits:
        yield f"only to report: {join_names(audits)}"


def _check_conditions(
    name: str, objects: Mapping[str, Sequence[Condition] | None], required: Sequence[str]
) -> Iterator[StatusCheck]:
    """Yield a check that all objects of a kind have the conditions that they need; nothing without any."""
    if not objects:
        return
    unread = [key for key, conditions in objects.items() if not conditions]
    wrong = {
        key: condition
        for key, conditions in sorted(objects.items())
        for condition in conditions or ()
        if condition.type in required and condition.status == "False"
    }
    if wrong:
        key, condition = next(iter(wrong.items()))
        yield StatusCheck(
            name=name,
            state=State.FAILED,
            message=f"{len(wrong)} of {len(objects)} are not in force: {join_names(tuple(wrong))}; "
            f"{key}: {condition.reason or condition.type}",
            fix=condition.message,
        )
    elif unread:
        yield StatusCheck(
            name=name,
            state=State.WAITING,
            message=f"{len(unread)} of {len(objects)} have no status yet: {join_names(tuple(unread))}",
            fix="the controller writes it: see its log",
        )
    else:
        yield StatusCheck(name=name, state=State.OK, message=f"{len(objects)} in force")


def _check_devices(installation: Installation) -> StatusCheck:
    drivers = _drivers(installation)
    if not drivers:
        return StatusCheck(
            name="devices",
            state=State.UNKNOWN if "resourceslices" in installation.unreadable else State.OFF,
            message="no DRA driver publishes devices",
        )
    return StatusCheck(
        name="devices",
        state=State.OK,
        message=", ".join(
            f"{entry.driver}: {entry.devices} on {count_text(entry.nodes, 'node')}"
            for entry in drivers
        ),
    )


def _drivers(installation: Installation) -> tuple[DriverStatus, ...]:
    devices: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for slice_ in installation.slices:
        devices[slice_.spec.driver] += len(slice_.spec.devices or ())
        nodes.setdefault(slice_.spec.driver, set()).update(filter(None, [slice_.spec.node_name]))
    return tuple(
        DriverStatus(driver=driver, nodes=len(nodes[driver]), devices=devices[driver])
        for driver in sorted(devices)
    )


def _next_step(installation: Installation, checks: Iterable[StatusCheck]) -> str:
    """Return the next step: for failed checks, else for waiting ones, else on the way to claims."""
    by_state: dict[State, list[StatusCheck]] = {}
    for check in checks:
        by_state.setdefault(check.state, []).append(check)
    for state in (State.FAILED, State.WAITING):
        if by_state.get(state):
            check = by_state[state][0]
            return check.fix or check.message
    if not _has_webhook(installation):
        return "drawbridge assess --live tells what of this cluster would become claims"
    if mode_of(installation) is Mode.SHADOW:
        return (
            "drawbridge assess --live; then the mode OptIn, which translates labelled namespaces: "
            "helm upgrade --reset-then-reuse-values --set mode=OptIn, "
            "or kubectl apply -k manifests/overlays/opt-in"
        )
    if not installation.slices:
        return (
            "install a DRA driver, for nodes with a device plugin by the runbooks of drawbridge plan: "
            "translated pods wait until one publishes devices"
        )
    labels = ("true", TRANSLATE_SELECTED)
    if mode_of(installation) is Mode.OPT_IN and not any(
        labelled(installation, label) for label in labels
    ):
        return f"kubectl label namespace NAME {TRANSLATE_LABEL}=true translates the pods of a first one"
    return ""
