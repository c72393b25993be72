"""The pods that the webhook routes to the bridge, as the API server tells."""

from typing import Final

from admission.webhook_configuration import ROUTING_WEBHOOK
from e2e.access import Access, Object, stream
from kube.names import CONFIGURATION

_MUTATING: Final = "mutatingwebhookconfigurations"


def routing_rules(cluster: Access) -> list[Object]:
    """Return the rules of the webhook that routes; none while no driver is owned."""
    for webhook in cluster.get(_MUTATING, CONFIGURATION)["webhooks"]:
        if webhook["name"] == ROUTING_WEBHOOK:
            return list(webhook.get("rules") or ())
    raise AssertionError("there is no webhook that routes")


def scheduler_of(cluster: Access, namespace: str, document: Object) -> str:
    """Return the schedulerName that a pod would get."""
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    return cluster.kubectl(
        *words, "-o", "jsonpath={.spec.schedulerName}", input=stream(document)
    ).stdout
