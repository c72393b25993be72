"""A webhook configuration that was changed or deleted is told, and not repaired."""

import json

from e2e.access import Access
from e2e.drawbridge import CERTIFICATES, Drawbridge
from kube.names import CONFIGURATION

KIND = "MutatingWebhookConfiguration"
REASON = "WebhookConfigurationDiffers"


def is_current(drawbridge: Drawbridge) -> bool:
    line = f'drawbridge_webhook_configuration_current{{kind="{KIND}"}} 1.0'
    return line in drawbridge.metrics(CERTIFICATES)


def notes(cluster: Access) -> set[str]:
    """Return the notes of the events about it."""
    return {
        event["note"]
        for event in cluster.objects("events.events.k8s.io", "default")
        if event.get("reason") == REASON and event["regarding"]["kind"] == KIND
    }


def test_a_neutered_and_a_deleted_configuration_are_reported(
    cluster: Access, drawbridge: Drawbridge
) -> None:
    cluster.wait_until(lambda: is_current(drawbridge), "all is as it has to be")
    step = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    try:
        cluster.kubectl("patch", KIND, CONFIGURATION, "--type=json", "-p", json.dumps(step))
        cluster.wait_until(lambda: not is_current(drawbridge), "the gauge shows the change")
        cluster.wait_until(
            lambda: any("failurePolicy is Ignore" in note for note in notes(cluster)),
            "an event tells the change",
        )
        cluster.kubectl("delete", KIND, CONFIGURATION)
        cluster.wait_until(
            lambda: any("it does not exist" in note for note in notes(cluster)),
            "an event tells the deletion",
        )
        assert cluster.find(KIND, CONFIGURATION) is None
    finally:
        cluster.apply(drawbridge.webhook_configurations())
        drawbridge.wait_ready()
    cluster.wait_until(lambda: is_current(drawbridge), "all is as it has to be again")
