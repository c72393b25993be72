"""Rules as ValidatingAdmissionPolicies: the API server enforces them with or without the webhook.

Each kind of DRA object has one policy of invalid objects and one of advice. They cannot block a
cluster:

* They match CREATE, and UPDATE that changes the spec. An object from before a rule existed can still
  be labelled, finished and deleted. Status has no rule.
* An expression that errors admits the object (failurePolicy Ignore).
* Claims that a controller creates from a template are exempt, since the template was validated.
* A namespace labelled `warn` gets warnings; a namespace labelled `off` is exempt.

The API server reports only the first violation; `drawbridge check` reports all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.names import ENFORCEMENT_LABEL, GROUP, NAME
from rules.context.rule import Category, CelRule, Rule, Scope
from rules.engine.registry import RULES

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_CONTROLLERS: Final = ("system:kube-controller-manager", "system:kube-scheduler")
_CONTROLLER_ACCOUNTS: Final = "system:serviceaccount:kube-system:"


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object.

    Attributes:
        resource: The resource name in URLs.
        spec: The parent of its `devices`; empty where rules validate the object itself.
        made_by_controllers: Controllers create such objects from templates.
    """

    resource: str
    scope: Scope
    spec: str = ""
    is_namespaced: bool = False
    made_by_controllers: bool = False


_TARGETS: Final = (
    _Target(
        resource="resourceclaims",
        scope=Scope.CLAIM,
        spec="object.spec",
        is_namespaced=True,
        made_by_controllers=True,
    ),
    _Target(
        resource="resourceclaimtemplates",
        scope=Scope.CLAIM,
        spec="object.spec.spec",
        is_namespaced=True,
    ),
    _Target(resource="deviceclasses", scope=Scope.CLASS),
    _Target(resource="resourceslices", scope=Scope.SLICE),
)


class _Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding of a policy: its action, and the namespaces that it selects by label."""

    suffix: str
    action: str
    operator: str = "NotIn"
    labels: tuple[str, ...]


_BINDINGS: Final[Mapping[Category, tuple[_Binding, ...]]] = {
    Category.INVALID: (
        _Binding(suffix="deny", action="Deny", labels=("warn", "off")),
        _Binding(suffix="warn", action="Warn", operator="In", labels=("warn",)),
    ),
    Category.ADVICE: (_Binding(suffix="warn", action="Warn", labels=("off",)),),
}
_NAMES: Final[Mapping[Category, str]] = {Category.INVALID: "invalid", Category.ADVICE: "advice"}


def documents(rules: Sequence[Rule[Any]] = RULES) -> Iterator[Mapping[str, Any]]:
    """Yield every policy, followed by its bindings."""
    for target in _TARGETS:
        for category, name in _NAMES.items():
            exported_rules = [
                (rule, rule.cel)
                for rule in rules
                if rule.scope is target.scope and rule.category is category and rule.cel is not None
            ]
            if exported_rules:
                policy = f"{target.resource}-{name}.{GROUP}"
                yield _policy(policy, target, exported_rules)
                for binding in _BINDINGS[category]:
                    # A cluster-scoped object has no namespace labels.
                    if target.is_namespaced or binding.operator == "NotIn":
                        yield _binding(policy, target, binding)


def _policy(
    name: str, target: _Target, exported_rules: Sequence[tuple[Rule[Any], CelRule]]
) -> Mapping[str, Any]:
    variables = []
    if target.spec:
        variables = [
            {"name": "devices", "expression": f"{target.spec}.devices"},
            {
                "name": "requests",
                "expression": "has(variables.devices.requests) ? variables.devices.requests : []",
            },
        ]
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(name),
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["resource.k8s.io"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [target.resource],
                    }
                ]
            },
            "matchConditions": list(_conditions(target)),
            **({"variables": variables} if variables else {}),
            "validations": [
                {
                    "expression": cel.expression,
                    "message": f"{cel.message} [{rule.code}]",
                    "reason": "Invalid",
                }
                for rule, cel in exported_rules
            ],
        },
    }


def _conditions(target: _Target) -> Iterator[Mapping[str, str]]:
    yield {
        "name": "spec-changed",
        "expression": "oldObject == null || object.spec != oldObject.spec",
    }
    if target.spec:
        yield {"name": "devices", "expression": f"has({target.spec}.devices)"}
    if target.made_by_controllers:
        names = ", ".join(f'"{controller}"' for controller in _CONTROLLERS)
        yield {
            "name": "not-made-by-a-controller",
            "expression": f'!request.userInfo.username.startsWith("{_CONTROLLER_ACCOUNTS}")\n'
            f"&& !(request.userInfo.username in [{names}])",
        }


def _binding(policy: str, target: _Target, binding: _Binding) -> Mapping[str, Any]:
    selector = {
        "matchExpressions": [
            {
                "key": ENFORCEMENT_LABEL,
                "operator": binding.operator,
                "values": list(binding.labels),
            }
        ]
    }
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _metadata(f"{binding.suffix}.{policy}"),
        "spec": {
            "policyName": policy,
            "validationActions": [binding.action],
            **({"matchResources": {"namespaceSelector": selector}} if target.is_namespaced else {}),
        },
    }


def _metadata(name: str) -> Mapping[str, Any]:
    return {
        "name": name,
        "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "policies"},
    }
