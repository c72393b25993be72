"""The webhook configurations of an installation: address, certificate, rules and mode. Pure."""

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from admission.webhook_configuration import ROUTING_WEBHOOK
from answers.model.kubernetes_version import parse_version
from certs.authority import CertificateError
from certs.rotation import parse_certificates
from cli.reading.installation import Installation, webhooks_of
from cli.reading.live import configured_mode, webhooks_in
from cli.verbs.status.model import State, StatusCheck
from clusterstate.published_gates import CONSUMABLE_CAPACITY
from findings.text import count_text, join_names
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.upgrade.kubernetes import find_defect
from translation.cluster.snapshot import Mode

SOON: Final = timedelta(days=30)
"""An authority has a successor long before; without one nobody renews it."""


def check_configurations(installation: Installation) -> Iterator[StatusCheck]:
    """Yield a check per configuration: its presence, and the fields needed to call the webhook."""
    fix = "apply the manifests again; until then pods are admitted as they are written"
    for kind, configuration in installation.configurations.items():
        name = kind.removesuffix("WebhookConfiguration").lower()
        if configuration is None:
            is_unread = f"{kind.lower()}s" in installation.unreadable
            yield StatusCheck(
                name=name,
                state=State.UNKNOWN if is_unread else State.FAILED,
                message=f"the {kind} may not be read" if is_unread else f"there is no {kind}",
                fix="" if is_unread else fix,
            )
            continue
        webhooks = webhooks_in(configuration)
        without_bundle = [
            str(webhook.get("name"))
            for webhook in webhooks
            if not (webhook.get("clientConfig") or {}).get("caBundle")
        ]
        without_rules = [
            str(webhook.get("name"))
            for webhook in webhooks
            if not webhook.get("rules") and webhook.get("name") != ROUTING_WEBHOOK
        ]
        yield _check_configuration(name, without_bundle, without_rules)


def _check_configuration(
    name: str, without_bundle: Sequence[str], without_rules: Sequence[str]
) -> StatusCheck:
    if without_bundle:
        return StatusCheck(
            name=name,
            state=State.WAITING,
            message=f"no caBundle: {', '.join(without_bundle)}",
            fix="drawbridge-certificates writes it: see its log",
        )
    if without_rules:
        return StatusCheck(
            name=name,
            state=State.WAITING,
            message=f"no rules, so nothing is sent: {', '.join(without_rules)}",
            fix="drawbridge-certificates fills them in when the webhook answers: its log says "
            "rules.waiting and why",
        )
    return StatusCheck(name=name, state=State.OK, message="has its caBundle and its rules")


def check_authorities(installation: Installation, now: datetime) -> StatusCheck:
    """Check that the authority that API servers trust is valid, and for some time."""
    ends = [
        authority_ends((webhook.get("clientConfig") or {}).get("caBundle"))
        for webhook in webhooks_of(installation)
    ]
    known_ends = [end for end in ends if end is not None]
    if not known_ends:
        return StatusCheck(
            name="certificates end",
            state=State.UNKNOWN if installation.unreadable else State.WAITING,
            message="no caBundle holds a certificate",
        )
    # The newest authority of a bundle counts, and the worst bundle.
    end = min(known_ends)
    day = f"{end:%Y-%m-%d}"
    if end <= now:
        state, message = State.FAILED, f"the authority of the caBundle ended on {day}"
    elif end - now < SOON:
        state, message = State.WAITING, f"the authority of the caBundle ends soon, on {day}"
    else:
        return StatusCheck(
            name="certificates end",
            state=State.OK,
            message=f"the authority is valid until {day}; serving certificates are renewed every few days",
        )
    return StatusCheck(
        name="certificates end",
        state=state,
        message=message,
        fix="nothing renews it: see the log of drawbridge-certificates",
    )


def mode_of(installation: Installation) -> Mode:
    """Return the mode by the settings."""
    return installation.settings.translation.mode


def check_mode(installation: Installation) -> StatusCheck:
    """Return the mode, and check that settings and configurations agree on it."""
    mode, configured = mode_of(installation), configured_mode(webhooks_of(installation))
    opted_in = len(labelled(installation, "true"))
    opted_out = len(labelled(installation, "false"))
    selective = len(labelled(installation, TRANSLATE_SELECTED))
    in_part = f", {selective} in part" if selective else ""
    if "configmaps" in installation.unreadable and configured is not None:
        mode = configured
    if configured not in {None, mode}:
        return StatusCheck(
            name="mode",
            state=State.FAILED,
            message=f"the settings say {mode}, and the webhook configurations are those of {configured}",
            fix="apply the overlay of one mode, and restart the Deployments",
        )
    message = {
        Mode.SHADOW: "Shadow: nothing is changed or rejected",
        Mode.OPT_IN: f"OptIn: {count_text(opted_in, 'namespace')} opted in{in_part}",
        Mode.OPT_OUT: f"OptOut: all namespaces; {opted_out or 'none'} opted out{in_part}",
    }[mode]
    return StatusCheck(name="mode", state=State.OK, message=message + _meaningless(installation))


def _meaningless(installation: Installation) -> str:
    """Return the text about namespaces with a value of the label that means nothing; empty without any."""
    means = {"true", "false", TRANSLATE_SELECTED}
    names = sorted(name for name, value in installation.opted.items() if value not in means)
    if not names:
        return ""
    return (
        f"; label {TRANSLATE_LABEL} of {count_text(len(names), 'namespace')} means nothing ({join_names(names)}): "
        'write "true", "false" or "selected"'
    )


def check_gates(installation: Installation) -> StatusCheck:
    """Check that claims of the cluster can request parts of devices."""
    is_on = installation.gates.get(CONSUMABLE_CAPACITY)
    version = f"Kubernetes {installation.kubernetes}"
    if is_on is None:
        return StatusCheck(
            name="kubernetes",
            state=State.UNKNOWN,
            message=f"{version}; its feature gates are not known yet",
        )
    if is_on:
        defect = find_defect(CONSUMABLE_CAPACITY, parse_version(installation.kubernetes))
        warning = f"; with the feature gate {CONSUMABLE_CAPACITY}, its scheduler {defect}"
        return StatusCheck(
            name="kubernetes",
            state=State.OK,
            message=f"{version}; claims can request shares{warning if defect else ''}",
        )
    return StatusCheck(
        name="kubernetes",
        state=State.OK,
        message=f"{version}; the feature gate DRAConsumableCapacity is off: pods that request parts of "
        "devices are rejected (sharesNotSupported), whole devices are translated",
    )


def labelled(installation: Installation, value: str) -> tuple[str, ...]:
    """Return the namespaces with a value of the label that opts in or out."""
    return tuple(sorted(name for name, label in installation.opted.items() if label == value))


def authority_ends(ca_bundle: object) -> datetime | None:
    """Return the end of validity of a caBundle's newest authority; None if it holds none.

    Args:
        ca_bundle: The caBundle of a webhook configuration: PEM in base64.
    """
    if not isinstance(ca_bundle, str):
        return None
    try:
        certificates = parse_certificates(base64.b64decode(ca_bundle, validate=True))
    except (ValueError, CertificateError):
        return None
    return max((certificate.not_valid_after_utc for certificate in certificates), default=None)
