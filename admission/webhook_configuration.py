"""The webhook configurations.

Their rules and matchConditions decide, inside the API server, which requests depend on the webhook,
see `admission.match_conditions`. The webhook for pods has failurePolicy Fail; those for workloads and
objects have Ignore, because they only report early what would be rejected later.

The mode of the translation decides whose pods and workloads these are, by their namespace: in OptIn
only labelled ones, in the others all but those that opted out. A namespace that leaves it to its pods is
one of them, with all its pods: quotas are compared with pods of every label, and no condition reads
the labels of a namespace. In mode Shadow nothing may depend on
the webhook, so its failurePolicy is Ignore for pods, too.

The configurations are applied without rules, so that nothing depends on a webhook that has never
answered, and without paths, whose last part is a secret. `webhook_rules` has the rules;
controllers/certificates fills both in.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/predicates and mutating.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from admission.match_conditions import (
    match_conditions,
    object_match_conditions,
    routing_match_conditions,
    update_match_conditions,
    workload_match_conditions,
)
from kube.api.own_kinds import VALIDATED_OWN_KINDS
from kube.api.workloads import VALIDATED_KINDS
from kube.names import (
    CONFIGURATION,
    ENFORCEMENT_LABEL,
    GROUP,
    NAME,
    NAMESPACE,
    SERVICE,
    TRANSLATE_LABEL,
    TRANSLATE_SELECTED,
)
from translation.cluster.snapshot import Mode, exempt_namespaces
from translation.model.intents import Vocabulary
from translation.reading.workload_kinds import CLUSTER_SCOPED, CUSTOM_RESOURCES

MUTATE_PATH: Final = "/mutate"
ROUTE_PATH: Final = "/route"
VALIDATE_WORKLOADS_PATH: Final = "/validate/workloads"
PODS_WEBHOOK: Final = f"pods.{GROUP}"
UPDATES_WEBHOOK: Final = f"updates.{GROUP}"
ROUTING_WEBHOOK: Final = f"routing.{GROUP}"
VALIDATE_OBJECTS_PATH: Final = "/validate/objects"
WORKLOADS_WEBHOOK: Final = f"workloads.{GROUP}"
OBJECTS_WEBHOOK: Final = f"objects.{GROUP}"
"""The names in a denial."""
WEBHOOK_PATHS: Final[Mapping[str, str]] = {
    PODS_WEBHOOK: MUTATE_PATH,
    UPDATES_WEBHOOK: MUTATE_PATH,
    ROUTING_WEBHOOK: ROUTE_PATH,
    WORKLOADS_WEBHOOK: VALIDATE_WORKLOADS_PATH,
    OBJECTS_WEBHOOK: VALIDATE_OBJECTS_PATH,
}
"""The fixed part of each webhook's path. A random key follows, which controllers/certificates writes."""
TIMEOUT_S: Final = 5
"""The p99 is milliseconds, so a longer call has failed, and the client should not wait for it."""


def configuration(
    vocabularies: Iterable[Vocabulary],
    namespace: str = NAMESPACE,
    mode: Mode = Mode.OPT_OUT,
    exempt: Iterable[str] = (),
) -> Mapping[str, Any]:
    """Return the MutatingWebhookConfiguration as it is applied.

    It has neither rules nor caBundles nor paths: controllers/certificates writes them, and an apply
    without the fields does not change them.

    Args:
        namespace: The namespace in which the webhook is installed.
        mode: The mode, which decides the pods that are translated.
        exempt: Namespaces that an operator exempts.
    """
    all_vocabularies = tuple(vocabularies)
    failure_policy = "Ignore" if mode is Mode.SHADOW else "Fail"
    pods = _webhook(
        PODS_WEBHOOK,
        failure_policy,
        match_conditions(all_vocabularies),
        [_translated_namespaces(mode)],
    )
    # After the first, so that it sees the claims of a pod that was just translated.
    routing = _webhook(ROUTING_WEBHOOK, "Fail", routing_match_conditions(), [])
    updates = _webhook(
        UPDATES_WEBHOOK, failure_policy, update_match_conditions(all_vocabularies), []
    )
    return _configuration(
        "MutatingWebhookConfiguration",
        (namespace, exempt_namespaces(namespace, exempt)),
        *({**webhook, "reinvocationPolicy": "IfNeeded"} for webhook in (pods, routing, updates)),
    )


def validating_configuration(
    vocabularies: Iterable[Vocabulary],
    namespace: str = NAMESPACE,
    mode: Mode = Mode.OPT_OUT,
    exempt: Iterable[str] = (),
) -> Mapping[str, Any]:
    """Return the ValidatingWebhookConfiguration as it is applied, in the same way."""
    all_vocabularies = tuple(vocabularies)
    return _configuration(
        "ValidatingWebhookConfiguration",
        (namespace, exempt_namespaces(namespace, exempt)),
        _webhook(
            WORKLOADS_WEBHOOK,
            "Ignore",
            workload_match_conditions(all_vocabularies),
            [_translated_namespaces(mode)],
        ),
        _webhook(
            OBJECTS_WEBHOOK,
            "Ignore",
            object_match_conditions(),
            [
                *([_translated_namespaces(mode)] if mode is Mode.OPT_IN else []),
                _not_in(ENFORCEMENT_LABEL, "off"),
            ],
        ),
    )


def _translated_namespaces(mode: Mode) -> Mapping[str, Any]:
    """Return the requirement on the labels of a namespace for a mode to translate its pods."""
    if mode is Mode.OPT_IN:
        return {"key": TRANSLATE_LABEL, "operator": "In", "values": ["true", TRANSLATE_SELECTED]}
    return _not_in(TRANSLATE_LABEL, "false")


def webhook_rules(*, routes: bool) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the name of each webhook to its rules, field for field as the API server stores them.

    Args:
        routes: The bridge owns a driver, so pods with claims need the right scheduler.
    """
    resources: dict[str, list[str]] = {}
    for (api_version, _), resource in VALIDATED_KINDS.items():
        resources.setdefault(api_version, []).append(resource)
    workloads = [
        _rule(version, resource_names, *_WRITES) for version, resource_names in resources.items()
    ]
    # Rules for kinds that a cluster does not serve cost nothing, and apply as soon as it does.
    custom = _rules_by_scope(
        (version, "Cluster" if (version, resource) in CLUSTER_SCOPED else "Namespaced", resource)
        for (version, _), resource in sorted(CUSTOM_RESOURCES.items())
    )
    return {
        PODS_WEBHOOK: [_rule("v1", ["pods"], "CREATE")],
        ROUTING_WEBHOOK: [_rule("v1", ["pods"], "CREATE")] if routes else [],
        UPDATES_WEBHOOK: [_rule("v1", ["pods"], "UPDATE"), _rule("v1", ["pods/status"], "UPDATE")],
        WORKLOADS_WEBHOOK: [*workloads, *custom],
        OBJECTS_WEBHOOK: [
            _rule("resource.k8s.io/v1", ["resourceclaims", "resourceclaimtemplates"], *_WRITES),
            _rule("resource.k8s.io/v1", ["deviceclasses"], *_WRITES, scope="Cluster"),
            *_rules_by_scope(
                (kind.api_version, kind.scope, kind.plural) for kind in VALIDATED_OWN_KINDS
            ),
            _rule("v1", ["pods"], "CREATE"),
            *workloads,
        ],
    }


_WRITES: Final = ("CREATE", "UPDATE")


def _configuration(
    kind: str, place: tuple[str, Sequence[str]], *webhooks: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a configuration of webhooks in a namespace, without the pods of exempt ones."""
    namespace, exempt = place
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": CONFIGURATION,
            "labels": {
                "app.kubernetes.io/name": NAME,
                "app.kubernetes.io/component": "webhook",
            },
        },
        "webhooks": [_in_namespace(webhook, namespace, exempt) for webhook in webhooks],
    }


def _webhook(
    name: str,
    failure_policy: str,
    conditions: Mapping[str, str],
    namespaces: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    """Return a webhook without address, for namespaces with labels that meet requirements."""
    return {
        "name": name,
        "clientConfig": {},
        "namespaceSelector": {"matchExpressions": list(namespaces)},
        "matchConditions": [
            {"name": condition, "expression": expression}
            for condition, expression in conditions.items()
        ],
        "matchPolicy": "Equivalent",
        "failurePolicy": failure_policy,
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }


def _in_namespace(
    webhook: Mapping[str, Any], namespace: str, exempt: Sequence[str]
) -> Mapping[str, Any]:
    """Return a webhook that is served in a namespace, and is not called for exempt ones."""
    others = webhook["namespaceSelector"]["matchExpressions"]
    not_exempt = _not_in("kubernetes.io/metadata.name", *exempt)
    return {
        **webhook,
        "clientConfig": {"service": {"name": SERVICE, "namespace": namespace, "port": 443}},
        "namespaceSelector": {"matchExpressions": [not_exempt, *others]},
    }


def _rules_by_scope(resources: Iterable[tuple[str, str, str]]) -> list[Mapping[str, Any]]:
    """Return a rule for writes of all resources of one version and scope.

    Args:
        resources: Version, scope and plural of each.
    """
    plurals: dict[tuple[str, str], list[str]] = {}
    for version, scope, plural in resources:
        plurals.setdefault((version, scope), []).append(plural)
    return [
        _rule(version, names, *_WRITES, scope=scope) for (version, scope), names in plurals.items()
    ]


def _rule(
    api_version: str, resources: Iterable[str], *operations: str, scope: str = "Namespaced"
) -> Mapping[str, Any]:
    group, _, version = api_version.rpartition("/")
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": scope,
    }


def _not_in(label: str, *values: str) -> Mapping[str, Any]:
    return {"key": label, "operator": "NotIn", "values": list(values)}
