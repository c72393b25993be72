"""The webhook configurations, generated from the vocabularies.

Their matchConditions decide, inside the API server, which requests depend on us: with failurePolicy
Fail, what they let through cannot happen while we are down, and what they hold back is never late
because of us. What asks about workloads has failurePolicy Ignore: it only tells early what their
pods would hit, so nothing waits for it. An expression that raises would fail the request, or leave
it unjudged, so every field that may be absent is optional in it, and a list that Go wrote as null
is no list.

For pods, the MutatingWebhookConfiguration:

* CREATE: a container asks for a device key, or another webhook may add one to the pod, unless the
  pod opted out; or the pod has our annotation. A webhook that is skipped in the first round of
  admission is not called in the second, so what makes others add keys must let the pod through.
* UPDATE: a pod with our annotation that brings device keys; or the annotation changes.
* UPDATE of the status: the annotation changes. Status updates are many, and none else is ours.

For what makes pods, the ValidatingWebhookConfiguration, all of these together:

* No controller made it of another object, whose template was judged before.
* Its pods will ask for a device key and did not opt out, or have our annotation.
* It is new, or its pod template is.

For objects of DRA that people write, and for pods and workloads that name claims, in the same
configuration: what has a new spec, and is not made by a controller. ResourceSlices never wait for us;
the policies in manifests/policies judge them, and the audit.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions, predicates and mutating.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kube.api.policy import API_VERSION
from kube.cel.literal import quote
from kube.product import (
    ENFORCEMENT_LABEL,
    GROUP,
    NAME,
    REQUEST_ANNOTATION,
    TRANSLATE_LABEL,
)
from webhook.intents import Vocabulary
from webhook.settings import CONFIGURATION, NAMESPACE, SERVICE
from webhook.workloads import JUDGED, JUDGED_PATHS

PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
WEBHOOK: Final = f"pods.{GROUP}"
OBJECTS_PATH: Final = "/judge"
VALIDATING_WEBHOOK: Final = f"workloads.{GROUP}"
OBJECTS_WEBHOOK: Final = f"objects.{GROUP}"
"""The names that users read in a denial."""
TIMEOUT_S: Final = 5
"""The p99 is milliseconds; what takes longer is broken, and the client should hear it soon."""
EXEMPT_NAMESPACES: Final = ("kube-system", NAMESPACE)
"""So that a cluster, and we, can start while we are down."""


def configuration(vocabularies: Iterable[Vocabulary]) -> Mapping[str, Any]:
    """Return the MutatingWebhookConfiguration as it is applied.

    It has no caBundle: the controller writes that, and an apply without the key leaves it alone.
    """
    rules = [_rule("v1", ["pods"], "CREATE", "UPDATE"), _rule("v1", ["pods/status"], "UPDATE")]
    webhook = _webhook(WEBHOOK, PATH, "Fail", rules, match_conditions(vocabularies))
    return _configuration(
        "MutatingWebhookConfiguration", {**webhook, "reinvocationPolicy": "IfNeeded"}
    )


def validating_configuration(vocabularies: Iterable[Vocabulary]) -> Mapping[str, Any]:
    """Return the ValidatingWebhookConfiguration as it is applied; without caBundle, as the other."""
    known = tuple(vocabularies)
    resources: dict[str, list[str]] = {}
    for (api_version, _), resource in JUDGED.items():
        resources.setdefault(api_version, []).append(resource)
    rules = [_rule(version, named, "CREATE", "UPDATE") for version, named in resources.items()]
    conditions = workload_match_conditions(known)
    objects = [
        _rule("resource.k8s.io/v1", ["resourceclaims", "resourceclaimtemplates"], *_WRITES),
        _rule("resource.k8s.io/v1", ["deviceclasses"], *_WRITES, scope="Cluster"),
        _rule(API_VERSION, ["devicecompatibilitypolicies"], *_WRITES, scope="Cluster"),
        _rule("v1", ["pods"], "CREATE"),
        *rules,
    ]
    return _configuration(
        "ValidatingWebhookConfiguration",
        _webhook(VALIDATING_WEBHOOK, VALIDATE_PATH, "Ignore", rules, conditions),
        _webhook(
            OBJECTS_WEBHOOK,
            OBJECTS_PATH,
            "Ignore",
            objects,
            object_match_conditions(known),
            opt_out=ENFORCEMENT_LABEL,
            opted_out="off",
        ),
    )


_WRITES: Final = ("CREATE", "UPDATE")


def _configuration(kind: str, *webhooks: Mapping[str, Any]) -> Mapping[str, Any]:
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
        "webhooks": list(webhooks),
    }


def _webhook(
    name: str,
    path: str,
    failure_policy: str,
    rules: Sequence[Mapping[str, Any]],
    conditions: Mapping[str, str],
    *,
    opt_out: str = TRANSLATE_LABEL,
    opted_out: str = "false",
) -> Mapping[str, Any]:
    return {
        "name": name,
        "clientConfig": {
            "service": {"name": SERVICE, "namespace": NAMESPACE, "path": path, "port": 443}
        },
        "rules": rules,
        "namespaceSelector": {
            "matchExpressions": [
                _not_in("kubernetes.io/metadata.name", *EXEMPT_NAMESPACES),
                _not_in(opt_out, opted_out),
            ]
        },
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


def match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls us where all of them are true.

    Each is about one kind of request and true for the others, so their order does not matter.
    """
    known = tuple(vocabularies)
    asks = _asks_for_devices(known, ["object"])
    will_ask = [
        f"{_annotation('object', name)}.hasValue()"
        for name in sorted({name for vocabulary in known for name in vocabulary.triggers})
    ]
    is_status = 'has(request.subResource) && request.subResource == "status"'
    wanted = _wanted("object")
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


def workload_match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls us where all of them are true.

    A workload has its pod template at one of a few places; at the others there is nothing.
    """
    templates = [".?".join(("object", *path)) for path in JUDGED_PATHS]
    olds = [".?".join(("oldObject", *path)) for path in JUDGED_PATHS]
    asks = _asks_for_devices(vocabularies, templates)
    wanted = "\n&& ".join(map(_wanted, templates))
    translated = (f"{_annotation(template)}.hasValue()" for template in templates)
    changed = (f"{template} != {old}" for template, old in zip(templates, olds, strict=True))
    return {
        "no-controller-made-it": _NOT_OWNED,
        "pods-with-devices": _either(*translated, f"({wanted}\n&& {asks})"),
        "a-new-pod-template": _either('request.operation != "UPDATE"', *changed),
    }


def object_match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls us where all of them are true.

    Of what makes pods only those that name claims are asked about, and only their pods: a Deployment
    that is scaled asks for nothing new. Of pods also those that still have a device key: a class may
    map it, and then a scheduler makes a claim of it.
    """
    pods = ["object", *(".?".join(("object", *path)) for path in JUDGED_PATHS)]
    olds = ["oldObject", *(".?".join(("oldObject", *path)) for path in JUDGED_PATHS)]
    changed = (f"{pod}.?spec != {old}.?spec" for pod, old in zip(pods[1:], olds[1:], strict=True))
    keys = _asks_for_devices(vocabularies, ["object"])
    claims = _some("claim", [f"{pod}.?spec.?resourceClaims" for pod in pods], "true")
    return {
        "no-controller-made-it": _NOT_OWNED,
        "an-object-of-dra-or-pods-with-devices": _either(_IS_DRA, claims, keys),
        "a-new-spec": _either(
            'request.operation != "UPDATE"',
            f"({_IS_DRA} && object.?spec != oldObject.?spec)",
            f"(!({_IS_DRA}) && ({_either(*changed)}))",
        ),
    }


_IS_DRA: Final = f"request.kind.group in [{quote('resource.k8s.io')}, {quote(GROUP)}]"


def _either(*expressions: str) -> str:
    return "\n|| ".join(expressions)


def _annotation(pod: str, name: str = REQUEST_ANNOTATION) -> str:
    return f"{pod}.?metadata.?annotations[?{quote(name)}]"


def _wanted(pod: str) -> str:
    return f'{pod}.?metadata.?labels[?{quote(TRANSLATE_LABEL)}].orValue("") != "false"'


def _asks_for_devices(vocabularies: Iterable[Vocabulary], pods: Iterable[str]) -> str:
    """Return an expression: some container has a device key in its limits or requests.

    Ephemeral containers cannot have resources.

    Args:
        pods: Where there may be a pod, or a template of one.
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
    fields = ("containers", "initContainers")
    containers = [f"{pod}.?spec.?{field}" for pod in pods for field in fields]
    return _some("container", containers, _some("key", amounts, speaks))


def _some(item: str, places: Iterable[str], holds: str) -> str:
    """Return an expression: for some item of the lists, or key of the maps, at the places it holds.

    A place may be absent, and null where Go wrote an empty list.
    """
    every = ", ".join(f"{place}.orValue(null)" for place in places)
    found = f"{item}s"
    inner = f"{found} != null && {found}.exists({item},\n  {holds})"
    return f"[{every}].exists({found},\n  {inner})"


_OWNED: Final = _some(
    "owner", ["object.?metadata.?ownerReferences"], "owner.?controller.orValue(false)"
)
_NOT_OWNED: Final = f"!{_OWNED}"


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
