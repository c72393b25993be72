"""The webhook configurations of a mode, written into a cluster for a while."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from admission.webhook_configuration import configuration, validating_configuration
from e2e.access import Access
from kube.names import CONFIGURATION
from translation.arbiter import VOCABULARIES
from translation.snapshot import Mode

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
