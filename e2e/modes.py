"""Modes: their webhook configurations, and the reports of the controllers in mode Shadow."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from admission.webhook_configuration import configuration, validating_configuration
from e2e.access import Access
from kube.names import CONFIGURATION
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES

GENERATED: Final[Mapping[str, Callable[..., Mapping[str, Any]]]] = {
    "MutatingWebhookConfiguration": configuration,
    "ValidatingWebhookConfiguration": validating_configuration,
}
"""Kind to what generates the configuration."""


def write_configurations(cluster: Access, mode: Mode) -> None:
    """Give the stored configurations the fields that depend on the mode."""
    for kind, generate in GENERATED.items():
        webhooks = generate(VOCABULARIES.values(), mode=mode)["webhooks"]
        patch = [
            {"op": "replace", "path": f"/webhooks/{index}/{field}", "value": webhook[field]}
            for index, webhook in enumerate(webhooks)
            for field in ("failurePolicy", "namespaceSelector")
        ]
        cluster.kubectl("patch", kind, CONFIGURATION, "--type=json", "-p", json.dumps(patch))


def reported_reasons(cluster: Access, namespace: str) -> dict[str, list[str]]:
    """Return the reasons of our controllers' events, by kind and name of the object."""
    reasons: dict[str, list[str]] = {}
    for event in cluster.objects("events.events.k8s.io", namespace):
        if event.get("reportingController") == "drawbridge.controller":
            regarding = event["regarding"]
            reasons.setdefault(f"{regarding['kind']}/{regarding['name']}", []).append(
                event["reason"]
            )
    return reasons
