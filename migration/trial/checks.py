"""Checks of the webhook before pods of a wave depend on it, as values. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from findings.text import printable
from kube.manifests.source import SourceObject
from kube.names import CONFIGURATION, TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.plan.checks.checks import Check, failed_check, note_check, ok_check, waiting_check
from migration.plan.facts.opted_in import labelled_namespaces
from migration.plan.model.plan import Plan, Wave
from migration.trial.model import (
    MAX_MESSAGE,
    RegisteredWebhook,
    ServiceReference,
    Trial,
    WebhookFacts,
)
from translation.cluster.snapshot import Mode

CONFIGURATIONS: Final = "mutatingwebhookconfigurations"
ENDPOINT_SLICES: Final = "endpointslices"
_CONFIGURATION: Final = f"MutatingWebhookConfiguration//{CONFIGURATION}"
_INSTALL: Final = "install Drawbridge in mode OptIn first, see docs/operations.md"
_LOG: Final = "see drawbridge status and the log of drawbridge-certificates"


def needs_webhook(plan: Plan, wave: Wave, objects: Iterable[SourceObject]) -> bool:
    """Return True if pods get claims of a translation by then; Kubernetes alone serves native ones.

    Args:
        plan: The plan.
        wave: One of its waves.
        objects: The cluster's objects; a namespace of them may be opted in already.
    """
    all_objects = tuple(objects)
    return any(entry.opted_in for entry in plan.waves[: wave.wave]) or any(
        labelled_namespaces(all_objects, value) for value in ("true", TRANSLATE_SELECTED)
    )


def unknown_webhook() -> Check:
    """Return the check of a snapshot, since none has webhooks."""
    return note_check(
        _CONFIGURATION, "a snapshot does not tell whether the webhook translates pods: --live does"
    )


def check_webhook(facts: WebhookFacts, wave: Wave | None) -> Iterator[Check]:
    """Yield the checks that the API server calls the webhook, and that it translates trial pods.

    Args:
        facts: The webhook as the cluster has it.
        wave: The wave whose namespaces depend on it; None for the webhook alone.
    """
    webhook = facts.webhook
    yield _check_configuration(facts)
    if webhook is not None and facts.endpoints is not None:
        service = webhook.client_config.service or ServiceReference()
        yield _check_endpoints(f"Service/{service.namespace}/{service.name}", facts)
    if wave is not None and webhook is not None:
        yield from _check_selected(wave, webhook, facts)
    yield from map(_check_trial, facts.trials)
    for workload, reason in facts.untried.items():
        yield note_check(
            workload,
            f"no pod of its namespace is tried, since {reason}: see that new ones get claims",
        )


def check_labels(facts: WebhookFacts, wave: Wave) -> Iterator[Check]:
    """Yield the namespaces of a wave that do not have its label yet."""
    for namespace, expected in _expected_labels(wave).items():
        value = facts.namespaces.get(namespace, {}).get(TRANSLATE_LABEL)
        if value not in {expected, "true"}:
            yield failed_check(
                f"Namespace//{namespace}",
                f"label {TRANSLATE_LABEL} is {value or 'missing'}, not {expected}",
            )


def _check_configuration(facts: WebhookFacts) -> Check:
    webhook = facts.webhook
    if CONFIGURATIONS in facts.unreadable:
        return note_check(
            _CONFIGURATION, "it cannot be read: see that it has its caBundle and rules"
        )
    if not facts.has_configuration:
        return failed_check(_CONFIGURATION, f"there is none, so no pod gets claims: {_INSTALL}")
    if webhook is None:
        return failed_check(_CONFIGURATION, f"it has no webhook for pods: {_INSTALL}")
    if not webhook.client_config.ca_bundle:
        return failed_check(
            _CONFIGURATION, f"{webhook.name} has no caBundle, so no API server trusts it: {_LOG}"
        )
    if not webhook.rules:
        return failed_check(
            _CONFIGURATION, f"{webhook.name} has no rules, so no pod is sent to it: {_LOG}"
        )
    if facts.mode == Mode.SHADOW:
        return failed_check(
            _CONFIGURATION,
            f"mode {Mode.SHADOW} changes no pod: apply that of mode {Mode.OPT_IN} first",
        )
    return ok_check(_CONFIGURATION, "has its caBundle and its rules")


def _check_endpoints(service: str, facts: WebhookFacts) -> Check:
    if ENDPOINT_SLICES in facts.unreadable:
        return note_check(service, "its endpoints cannot be read: see that some are ready")
    if not facts.endpoints:
        return waiting_check(service, "no endpoint of the webhook is ready: see drawbridge status")
    return ok_check(service, f"ready endpoints: {facts.endpoints}")


def _check_selected(wave: Wave, webhook: RegisteredWebhook, facts: WebhookFacts) -> Iterator[Check]:
    """Yield the namespaces that the webhook is never called for."""
    for namespace, value in _expected_labels(wave).items():
        labels = facts.namespaces.get(namespace)
        if labels is not None and not webhook.selects({**labels, TRANSLATE_LABEL: value}):
            yield failed_check(
                f"Namespace//{namespace}",
                f"with the label {TRANSLATE_LABEL}={value}, too, its pods are not sent to the webhook: the "
                f"namespaceSelector of {CONFIGURATION} leaves it out",
            )


def _check_trial(trial: Trial) -> Check:
    message = printable(trial.rejection)[:MAX_MESSAGE]
    if trial.rejection and trial.exhausted:
        return note_check(
            trial.workload,
            f"no pod could be tried, since ResourceQuota {printable(trial.exhausted)} is used up: see that new ones "
            f"get claims ({message})",
        )
    if trial.rejection and trial.has_waited:
        return note_check(
            trial.workload,
            "none of its pods ran when the plan was made, and a new one (a dry run) is rejected, so it gets none until its "
            f"template requests something else: {message}",
        )
    if trial.rejection:
        return failed_check(
            trial.workload,
            f"a new pod of it (a dry run) is rejected, {message or 'without a reason'}",
        )
    if not trial.has_claims:
        return failed_check(
            trial.workload,
            "a new pod of it (a dry run) gets no claims: the webhook is not called for it, or leaves it alone; "
            "see drawbridge status, and drawbridge translate --live -f of its manifest",
        )
    return ok_check(trial.workload, "a new pod of it (a dry run) gets claims")


def _expected_labels(wave: Wave) -> dict[str, str]:
    """Return the namespaces that a wave opts in to the label that it sets."""
    return {
        **dict.fromkeys(wave.namespaces, "true"),
        **{part.namespace: TRANSLATE_SELECTED for part in wave.partial_namespaces},
    }
