"""Rules as ValidatingAdmissionPolicies: what the API server itself says, with us or without us.

Per kind there is one policy of what is wrong by itself and one of advice. They are about DRA objects
only, and can lock nothing:

* Only CREATE, and an UPDATE that changes the spec: what was admitted before a rule existed can be
  labelled, finished and removed, and status has no rule.
* An expression that fails lets the object pass (failurePolicy Ignore).
* No claim that a controller makes of a template is judged: its template was.
* A namespace labelled `warn` is warned, one labelled `off` is left alone.

The API server tells only the first violation. All of them are told by `drawbridge check`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.product import ENFORCEMENT_LABEL, GROUP, NAME
from webhook.rules.rule import Class, InServer, Part, Rule
from webhook.rules.table import RULES

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_CONTROLLERS: Final = ("system:kube-controller-manager", "system:kube-scheduler")
_CONTROLLER_ACCOUNTS: Final = "system:serviceaccount:kube-system:"


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object.

    Attributes:
        resource: As URLs name it.
        spec: Where its devices are; empty where rules look at the object itself.
        made_by_controllers: Controllers make such objects of others.
    """

    resource: str
    part: Part
    spec: str = ""
    is_namespaced: bool = False
    made_by_controllers: bool = False


_TARGETS: Final = (
    _Target(
        resource="resourceclaims",
        part=Part.CLAIM,
        spec="object.spec",
        is_namespaced=True,
        made_by_controllers=True,
    ),
    _Target(
        resource="resourceclaimtemplates",
        part=Part.CLAIM,
        spec="object.spec.spec",
        is_namespaced=True,
    ),
    _Target(resource="deviceclasses", part=Part.CLASS),
    _Target(resource="resourceslices", part=Part.SLICE),
)


class _Binding(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy takes effect, and in which namespaces."""

    suffix: str
    action: str
    operator: str = "NotIn"
    labels: tuple[str, ...]


_BINDINGS: Final[Mapping[Class, tuple[_Binding, ...]]] = {
    Class.WRONG: (
        _Binding(suffix="deny", action="Deny", labels=("warn", "off")),
        _Binding(suffix="warn", action="Warn", operator="In", labels=("warn",)),
    ),
    Class.ADVICE: (_Binding(suffix="warn", action="Warn", labels=("off",)),),
}
_NAMES: Final[Mapping[Class, str]] = {Class.WRONG: "wrong", Class.ADVICE: "advice"}


def documents(rules: Sequence[Rule[Any]] = RULES) -> Iterator[Mapping[str, Any]]:
    """Yield every policy, each before its bindings."""
    for target in _TARGETS:
        for rank, name in _NAMES.items():
            said = [
                (rule, rule.cel)
                for rule in rules
                if rule.part is target.part and rule.rank is rank and rule.cel is not None
            ]
            if said:
                policy = f"{target.resource}-{name}.{GROUP}"
                yield _policy(policy, target, said)
                for binding in _BINDINGS[rank]:
                    # What has no namespace has no label of one either.
                    if target.is_namespaced or binding.operator == "NotIn":
                        yield _binding(policy, target, binding)


def _policy(
    name: str, target: _Target, said: Sequence[tuple[Rule[Any], InServer]]
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
                for rule, cel in said
            ],
        },
    }


def _conditions(target: _Target) -> Iterator[Mapping[str, str]]:
    yield {"name": "a-new-spec", "expression": "oldObject == null || object.spec != oldObject.spec"}
    if target.spec:
        yield {"name": "devices", "expression": f"has({target.spec}.devices)"}
    if target.made_by_controllers:
        names = ", ".join(f'"{one}"' for one in _CONTROLLERS)
        yield {
            "name": "no-controller-made-it",
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
