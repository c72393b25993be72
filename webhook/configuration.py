"""The MutatingWebhookConfiguration, generated from the vocabularies.

Its matchConditions decide, inside the API server, which requests depend on us: with failurePolicy
Fail, what they let through cannot happen while we are down, and what they hold back is never late
because of us. An expression that raises would fail the request, so every field that may be absent
is optional in it, and a list that Go wrote as null is no list.

* CREATE: a container asks for a device key, or another webhook may add one to the pod, unless the
  pod opted out; or the pod has our annotation. A webhook that is skipped in the first round of
  admission is not called in the second, so what makes others add keys must let the pod through.
* UPDATE: a pod with our annotation that brings device keys; or the annotation changes.
* UPDATE of the status: the annotation changes. Status updates are many, and none else is ours.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions, predicates and mutating.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.cel.literal import quote
from kube.product import GROUP, NAME, REQUEST_ANNOTATION, TRANSLATE_LABEL
from webhook.intents import Vocabulary
from webhook.settings import CONFIGURATION, NAMESPACE, SERVICE

PATH: Final = "/mutate"
WEBHOOK: Final = f"pods.{GROUP}"
"""The name that users read in a denial."""
TIMEOUT_S: Final = 5
"""The p99 is milliseconds; what takes longer is broken, and the client should hear it soon."""
EXEMPT_NAMESPACES: Final = ("kube-system", NAMESPACE)
"""So that a cluster, and we, can start while we are down."""


def configuration(vocabularies: Iterable[Vocabulary]) -> Mapping[str, Any]:
    """Return the object as it is applied.

    It has no caBundle: the controller writes that, and an apply without the key leaves it alone.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": CONFIGURATION,
            "labels": {
                "app.kubernetes.io/name": NAME,
                "app.kubernetes.io/component": "webhook",
            },
        },
        "webhooks": [
            {
                "name": WEBHOOK,
                "clientConfig": {
                    "service": {
                        "name": SERVICE,
                        "namespace": NAMESPACE,
                        "path": PATH,
                        "port": 443,
                    }
                },
                "rules": [
                    _rule("pods", "CREATE", "UPDATE"),
                    _rule("pods/status", "UPDATE"),
                ],
                "namespaceSelector": {
                    "matchExpressions": [
                        _not_in("kubernetes.io/metadata.name", *EXEMPT_NAMESPACES),
                        _not_in(TRANSLATE_LABEL, "false"),
                    ]
                },
                "matchConditions": [
                    {"name": name, "expression": expression}
                    for name, expression in match_conditions(vocabularies).items()
                ],
                "matchPolicy": "Equivalent",
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "reinvocationPolicy": "IfNeeded",
                "timeoutSeconds": TIMEOUT_S,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls us where all of them are true.

    Each is about one kind of request and true for the others, so their order does not matter.
    """
    known = tuple(vocabularies)
    asks = _asks_for_devices(known)
    will_ask = [
        f"{_annotation('object', name)}.hasValue()"
        for name in sorted({name for vocabulary in known for name in vocabulary.triggers})
    ]
    is_status = 'has(request.subResource) && request.subResource == "status"'
    wanted = f'object.?metadata.?labels[?{quote(TRANSLATE_LABEL)}].orValue("") != "false"'
    changed = f"{_annotation('object')} != {_annotation('oldObject')}"
    translated = f"{_annotation('object')}.hasValue()"
    return {
        "create-of-a-device-pod": _either(
            'request.operation != "CREATE"',
            translated,
            f"({wanted}\n&& ({_either(asks, *will_ask)}))",
        ),
        "update-of-a-translated-pod": _either(
            'request.operation != "UPDATE"', f"({is_status})", changed, f"({translated}\n&& {asks})"
        ),
        "status-update-of-the-annotation": _either(
            'request.operation != "UPDATE"', f"!({is_status})", changed
        ),
    }


def _either(*expressions: str) -> str:
    return "\n|| ".join(expressions)


def _annotation(pod: str, name: str = REQUEST_ANNOTATION) -> str:
    return f"{pod}.?metadata.?annotations[?{quote(name)}]"


def _asks_for_devices(vocabularies: Iterable[Vocabulary]) -> str:
    """Return an expression: some container has a device key in its limits or requests.

    Ephemeral containers cannot have resources.
    """
    known = tuple(vocabularies)
    keys = sorted({key for vocabulary in known for key in vocabulary.keys})
    prefixes = sorted({prefix for vocabulary in known for prefix in vocabulary.key_prefixes})
    speaks = " || ".join(
        [
            f"key in [{', '.join(map(quote, keys))}]",
            *(f"key.startsWith({quote(prefix)})" for prefix in prefixes),
        ]
    )
    amounts = ("container.?resources.?limits", "container.?resources.?requests")
    containers = ("object.?spec.?containers", "object.?spec.?initContainers")
    return _some("container", containers, _some("key", amounts, speaks))


def _some(item: str, places: Iterable[str], holds: str) -> str:
    """Return an expression: for some item of the lists, or key of the maps, at the places it holds.

    A place may be absent, and null where Go wrote an empty list.
    """
    every = ", ".join(f"{place}.orValue(null)" for place in places)
    found = f"{item}s"
    inner = f"{found} != null && {found}.exists({item},\n  {holds})"
    return f"[{every}].exists({found},\n  {inner})"


def _rule(resource: str, *operations: str) -> Mapping[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": [resource],
        "scope": "Namespaced",
    }


def _not_in(label: str, *values: str) -> Mapping[str, Any]:
    return {"key": label, "operator": "NotIn", "values": list(values)}
