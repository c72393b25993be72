"""The webhook of a cluster, and the answers of its API server to trial pods, as values."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from admission.webhook_configuration import PODS_WEBHOOK
from answers.model.views import decode_view
from kube.api.meta import ApiStruct, LabelSelector

MAX_MESSAGE: Final = 300
"""The characters of an answer of the API server that a check repeats: other webhooks write such answers, too."""


class ServiceReference(ApiStruct, frozen=True, kw_only=True):
    """Source: admissionregistration.k8s.io/v1 ServiceReference."""

    namespace: str = ""
    name: str = ""


class ClientConfig(ApiStruct, frozen=True, kw_only=True):
    """Source: admissionregistration.k8s.io/v1 WebhookClientConfig."""

    service: ServiceReference | None = None
    url: str | None = None
    ca_bundle: str | None = None


class RegisteredWebhook(ApiStruct, frozen=True, kw_only=True):
    """The fields of admissionregistration.k8s.io/v1 MutatingWebhook for calling it."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    rules: tuple[Mapping[str, Any], ...] | None = None
    namespace_selector: LabelSelector | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Check that it is called for pods of a namespace with these labels."""
        return self.namespace_selector is None or self.namespace_selector.matches(labels)


class _Configuration(ApiStruct, frozen=True, kw_only=True):
    webhooks: tuple[RegisteredWebhook, ...] | None = None


def pods_webhook(configuration: object) -> RegisteredWebhook | None:
    """Return the webhook for pods of a MutatingWebhookConfiguration; None without one."""
    view = decode_view(configuration, _Configuration)
    webhooks = view.webhooks or () if isinstance(view, _Configuration) else ()
    return next((webhook for webhook in webhooks if webhook.name == PODS_WEBHOOK), None)


class TrialPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to try.

    Attributes:
        workload: The workload whose template it is made from, as `Kind/namespace/name`.
        document: The pod.
        has_waited: No pod of the workload ran when the plan was made.
    """

    workload: str
    document: Mapping[str, Any]
    has_waited: bool = False


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an API server to a trial pod, created as a dry run.

    Attributes:
        workload: The workload of the pod, as `Kind/namespace/name`.
        has_claims: It would be stored with claims and a record of their translation.
        rejection: The API server's message where it rejects the pod; empty where it accepts it.
        exhausted: The ResourceQuota and the line that leave no room for one more pod; empty where all do.
        has_waited: It was denied, and no pod of the workload ran when the plan was made.
    """

    workload: str
    has_claims: bool = False
    rejection: str = ""
    exhausted: str = ""
    has_waited: bool = False


class WebhookFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook for pods as a cluster has it.

    Attributes:
        has_configuration: There is a MutatingWebhookConfiguration of Drawbridge.
        webhook: Its webhook for pods; None where it has none.
        mode: The mode that the settings of the cluster name; empty where they cannot be read.
        endpoints: The number of ready endpoints of its Service; None for a webhook with a URL.
        namespaces: Namespace of a wave to its labels as they are.
        trials: The answers to trial pods.
        untried: Workload that no pod could be made from, to the reason.
        unreadable: Resources that could not be read.
    """

    has_configuration: bool = False
    webhook: RegisteredWebhook | None = None
    mode: str = ""
    endpoints: int | None = None
    namespaces: Mapping[str, Mapping[str, str]] = {}
    trials: tuple[Trial, ...] = ()
    untried: Mapping[str, str] = {}
    unreadable: frozenset[str] = frozenset()
