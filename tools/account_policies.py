"""The policies that bind our accounts to their processes' actions, beyond the power of roles.

A role cannot name what is created, nor which fields of an object may change. These policies can, so
that a stolen token is good for little. `documents` returns them for manifests/base,
`observer_documents` for manifests/observer, and `bridge_documents` for manifests/bridge.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from admission.match_conditions import KEYS_BEGIN, KEYS_END, KEYS_PATTERN
from admission.webhook_configuration import ROUTING_WEBHOOK, WEBHOOK_PATHS, webhook_rules
from clusterstate.settings import ValidationSettings
from controllers.audit.policy_reports import REPORT_KINDS, REPORT_NAME
from controllers.certificates.settings import Settings as CertificateSettings
from controllers.model.settings import Settings as ControllerSettings
from controllers.templates.actions import POD_CLAIM_ANNOTATION
from kube.api.urls import POD_GROUPS
from kube.cel.quoting import quote
from kube.names import (
    BRIDGE_LEASE,
    CERTIFICATES_REPORTER,
    CONTROLLER_REPORTER,
    GANG_ANNOTATION,
    MANAGED_LABEL,
    NAME,
    NAMESPACE,
    OBSERVER_NAMESPACE,
    OBSERVER_REPORTER,
    QUOTA_GATE,
)
from process.certificates.certificates import TLS_TYPE
from process.certificates.webhook_paths import KEY_PATTERN
from sidecar.commit.writes import FINALIZER, SETTLED_ANNOTATION

Document = Mapping[str, Any]

_ADMISSION: Final = "admissionregistration.k8s.io"
_DRA: Final = "resource.k8s.io"
_SAME_FIELDS: Final = (
    "name",
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "reinvocationPolicy",
    "clientConfig.?service.?name",
    "clientConfig.?service.?namespace",
    "clientConfig.?service.?port",
)
"""Every field of a webhook but caBundle, path, url, rules and matchConditions, as of Kubernetes 1.37."""
_KEYED: Final = f'matches("/{KEY_PATTERN}$")'
_KEY_LENGTH: Final = 33
"""The length of a key with the slash."""
_SAME_PATH: Final = f"""\
  new.name == old.name
  && new.clientConfig.?service.hasValue() == old.clientConfig.?service.hasValue()
  && (new.clientConfig.?service.?path == old.clientConfig.?service.?path
    || [new.clientConfig.?service.?path.orValue("")].all(path, path.{_KEYED}
      && path.substring(0, path.size() - {_KEY_LENGTH}) == variables.paths[?new.name].orValue("")))
  && (new.clientConfig.?url == old.clientConfig.?url
    || [new.clientConfig.?url.orValue("")].all(url, url.{_KEYED}
      && [old.clientConfig.?url.orValue("")].all(before,
        url.substring(0, url.size() - {_KEY_LENGTH}) == (before.{_KEYED}
          ? before.substring(0, before.size() - {_KEY_LENGTH}) : before))))"""
"""A key may be put behind the fixed part of a path, or replaced; what is before it stays."""
_BEGIN: Final = f"split({quote(KEYS_BEGIN)})"
_END: Final = f"split({quote(KEYS_END)})"
_SAME_CONDITIONS: Final = f"""\
  new.name == old.name
  && new.?matchConditions.orValue([]).size() == old.?matchConditions.orValue([]).size()
  && new.?matchConditions.orValue([]).all(after, old.?matchConditions.orValue([]).exists(before,
    after.name == before.name && (after.expression == before.expression
      || (after.expression.{_BEGIN}.size() == 2 && before.expression.{_BEGIN}.size() == 2
        && after.expression.{_BEGIN}[0] == before.expression.{_BEGIN}[0]
        && after.expression.{_BEGIN}[1].{_END}.size() == 2
        && before.expression.{_BEGIN}[1].{_END}.size() == 2
        && after.expression.{_BEGIN}[1].{_END}[1] == before.expression.{_BEGIN}[1].{_END}[1]
        && after.expression.{_BEGIN}[1].{_END}[0].matches({quote(KEYS_PATTERN)})))))"""
"""The comparison of match conditions but for the names of keys; these follow the profiles of the cluster."""
_SAME_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers")
_DERIVED_NAME: Final = "-[0-9a-f]{16}$"
"""The suffix of the name of a template that a pod's keys were translated to, and of a gang's PodGroup."""


def observer_documents() -> list[Document]:
    """Return the policy of the observer's account and its binding."""
    return list(
        _policy(
            "observer",
            [_rule("events.k8s.io", "events")],
            [
                _validation(
                    "false",
                    f"object.?reportingController.orValue('') == {quote(OBSERVER_REPORTER)}\n"
                    "&& (request.operation == \"CREATE\" || oldObject.?reportingController.orValue('')"
                    f" == {quote(OBSERVER_REPORTER)})",
                    f"its events are reported by {OBSERVER_REPORTER}",
                )
            ],
            namespace=OBSERVER_NAMESPACE,
        )
    )


def uninstall_documents() -> list[Document]:
    """Return the policy of the account that unlocks pods before an uninstall, and its binding."""
    return list(
        _policy("uninstall", [_rule("", "pods", operations=("UPDATE",))], [_gate_removal()])
    )


def bridge_documents() -> list[Document]:
    """Return the policy of the bridge's account and its binding.

    The fence says what it may allocate; this, that it changes nothing else of a claim.
    """
    annotations = "metadata.?annotations"
    settled = quote(SETTLED_ANNOTATION)
    finalizers = (
        f"metadata.?finalizers.orValue([]).filter(finalizer, finalizer != {quote(FINALIZER)})"
    )
    return list(
        _policy(
            "bridge",
            [
                _rule(_DRA, "resourceclaims", operations=("UPDATE",)),
                _rule("coordination.k8s.io", "leases"),
            ],
            [
                _named_resource(
                    "resourceclaims",
                    "object.metadata.?labels == oldObject.metadata.?labels\n"
                    "&& object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences\n"
                    f"&& object.{finalizers}\n  == oldObject.{finalizers}\n"
                    f"&& object.{annotations}.orValue({{}}).all(name, name == {settled}\n"
                    f"  || object.{annotations}[?name] == oldObject.{annotations}[?name])\n"
                    f"&& oldObject.{annotations}.orValue({{}}).all(name, name == {settled}\n"
                    f"  || object.{annotations}[?name].hasValue())",
                    f"of the metadata of a claim only the finalizer {FINALIZER} and the annotation "
                    f"{SETTLED_ANNOTATION} are its to change",
                ),
                _named_resource(
                    "leases",
                    f"object.metadata.name == {quote(BRIDGE_LEASE)}",
                    f"its Lease is {BRIDGE_LEASE}",
                ),
            ],
        )
    )


def documents() -> list[Document]:
    """Return the policies and their bindings."""
    return [*_certificates(), *_controller()]


def _certificates() -> tuple[Document, Document]:
    settings = CertificateSettings()
    secrets = {
        settings.certificates.authority_secret: "Opaque",
        settings.certificates.serving_secret: TLS_TYPE,
        settings.certificates.path_secret: "Opaque",
        settings.signing.secret: "Opaque",
    }
    lease = settings.certificate_controller.leader_election.resource_name
    same = "\n  && ".join(f"new.?{field} == old.?{field}" for field in _SAME_FIELDS)
    metadata = "\n&& ".join(
        f"object.metadata.?{field} == oldObject.metadata.?{field}" for field in _SAME_METADATA
    )
    return _policy(
        "certificates",
        [
            _rule(
                _ADMISSION,
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
                operations=("CREATE", "UPDATE", "DELETE"),
            ),
            _rule("", "secrets"),
            _rule("coordination.k8s.io", "leases"),
            _rule("events.k8s.io", "events"),
        ],
        [
            _only(
                _ADMISSION,
                'request.operation == "UPDATE"',
                "webhook configurations are changed, and never created or deleted",
            ),
            _only(
                _ADMISSION,
                metadata,
                "the metadata of the configuration is not its to change",
            ),
            _only(
                _ADMISSION,
                "variables.webhooks.size() == oldObject.webhooks.size()"
                f"\n&& variables.webhooks.all(new, oldObject.webhooks.exists(old,\n  {same}))",
                "of a webhook only caBundle, rules, the key in the path and keys in matchConditions are "
                "its to change",
            ),
            _only(
                _ADMISSION,
                f"variables.webhooks.all(new, oldObject.webhooks.exists(old,\n{_SAME_CONDITIONS}))",
                "of a match condition only the names of device keys are its to change",
            ),
            _only(
                _ADMISSION,
                f"variables.webhooks.all(new, oldObject.webhooks.exists(old,\n{_SAME_PATH}))",
                "of the path of a webhook only the key is its to change",
            ),
            _only(
                _ADMISSION,
                "variables.webhooks.all(new,\n"
                f"  new.?rules.orValue([]).map(rule, {_LISTED})\n"
                "    == variables.rules[?new.name].orValue([])\n"
                f"  || (new.name == {quote(ROUTING_WEBHOOK)} && new.?rules.orValue([]).size() == 0)\n"
                "  || oldObject.webhooks.exists(old,\n"
                "    new.name == old.name && new.?rules == old.?rules))",
                "the rules of a webhook are those that this version generates",
            ),
            _named_resource(
                "secrets",
                f'{json.dumps(secrets)}[?object.metadata.name].orValue("") == object.type',
                f"its Secrets are {', '.join(secrets)}, each of its type",
            ),
            _named_resource(
                "leases", f"object.metadata.name == {quote(lease)}", f"its Lease is {lease}"
            ),
            _named_resource(
                "events",
                f"object.?reportingController.orValue('') == {quote(CERTIFICATES_REPORTER)}",
                f"its events are reported by {CERTIFICATES_REPORTER}",
            ),
        ],
        variables={
            "paths": json.dumps(WEBHOOK_PATHS),
            "rules": _listed_rules(),
            "webhooks": "object.?webhooks.orValue([])",
        },
    )


_RULE_FIELDS: Final = ("apiGroups", "apiVersions", "operations", "resources")
_LISTED: Final = (
    f"[{', '.join(f'rule.{field}' for field in _RULE_FIELDS)}, dyn([rule.?scope.orValue('*')])]"
)


def _listed_rules() -> str:
    """Return name to rules as lists of lists, since the values of a map in CEL have one type."""
    return json.dumps(
        {
            name: [[*(rule[field] for field in _RULE_FIELDS), [rule["scope"]]] for rule in rules]
            for name, rules in webhook_rules(routes=True).items()
        }
    )


def _controller() -> tuple[Document, Document]:
    lease = ControllerSettings().controllers.leader_election.resource_name
    inventory = ValidationSettings().inventory_config_map
    profiles = ControllerSettings().translation.profiles_config_map
    is_managed = f"object.metadata.?labels[?{quote(MANAGED_LABEL)}].hasValue()"
    report_groups = {kinds[0].resource.group: kinds for kinds in REPORT_KINDS.values() if kinds}
    return _policy(
        "controller",
        [
            _rule(_DRA, "resourceclaimtemplates", operations=("CREATE", "UPDATE", "DELETE")),
            _rule(_DRA, "resourceclaims", operations=("CREATE", "UPDATE", "DELETE")),
            _rule(POD_GROUPS.group, POD_GROUPS.plural, operations=("CREATE", "UPDATE", "DELETE")),
            _rule("", "pods", operations=("UPDATE",)),
            _rule("", "configmaps"),
            _rule("coordination.k8s.io", "leases"),
            _rule("events.k8s.io", "events"),
            *(
                _rule(
                    group,
                    *(kind.resource.plural for kind in kinds),
                    operations=("CREATE", "UPDATE", "DELETE"),
                )
                for group, kinds in report_groups.items()
            ),
        ],
        [
            _named_resource(
                "resourceclaimtemplates",
                f'request.operation == "CREATE" && {is_managed}'
                f" && object.metadata.name.matches({quote(_DERIVED_NAME)})"
                ' || request.operation == "DELETE"'
                f" && oldObject.metadata.name.matches({quote(_DERIVED_NAME)})",
                f"its templates have derived names, and the label {MANAGED_LABEL}",
            ),
            _named_resource(
                "resourceclaims",
                'request.operation == "DELETE"'
                f" && oldObject.metadata.?annotations[?{quote(POD_CLAIM_ANNOTATION)}].hasValue()"
                " && !oldObject.?status.?allocation.hasValue()",
                "it deletes claims that were generated for a pod and are not allocated, and no others",
            ),
            _named_resource(
                POD_GROUPS.plural,
                f'request.operation == "CREATE" && {_is_adopted("object")}'
                f' || request.operation == "DELETE" && {_is_adopted("oldObject")}',
                f"its PodGroups have derived names, the label {MANAGED_LABEL} and the annotation "
                f"{GANG_ANNOTATION}",
            ),
            _gate_removal(),
            _named_resource(
                "configmaps",
                f"object.metadata.name in [{quote(inventory)}, {quote(profiles)}]",
                f"its ConfigMaps are {inventory} and {profiles}",
            ),
            _named_resource(
                "leases", f"object.metadata.name == {quote(lease)}", f"its Lease is {lease}"
            ),
            _named_resource(
                "events",
                f"object.?reportingController.orValue('') == {quote(CONTROLLER_REPORTER)}",
                f"its events are reported by {CONTROLLER_REPORTER}",
            ),
            _validation(
                f"!(request.resource.group in {json.dumps([*report_groups])})",
                f'(request.operation == "DELETE" || {_is_report("object")})\n'
                f'&& (request.operation == "CREATE" || {_is_report("oldObject")})',
                f"its reports are called {REPORT_NAME} and have the label {MANAGED_LABEL}",
            ),
        ],
    )


_POD_FIELDS: Final = (
    *(f"metadata.?{field}" for field in _SAME_METADATA),
    "spec.containers",
    "spec.?initContainers",
    "spec.?activeDeadlineSeconds",
    "spec.?nodeSelector",
    "spec.?affinity",
    "spec.?tolerations",
    "spec.?terminationGracePeriodSeconds",
)
"""The fields that an update may change of a pod, beside its gates.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/validation, ValidatePodUpdate.
"""


def _gate_removal() -> Document:
    """Return the validation that of a pod nothing but our gate is removed."""
    return _named_resource(
        "pods",
        f"{_gates('object')}\n  == {_gates('oldObject')}.filter(gate, gate.name != {quote(QUOTA_GATE)})\n"
        "&& " + "\n&& ".join(f"object.{field} == oldObject.{field}" for field in _POD_FIELDS),
        f"of a pod only the scheduling gate {QUOTA_GATE} is its to remove",
    )


def _is_adopted(name: str) -> str:
    """Return the condition that a variable is a PodGroup that we have created for a gang."""
    return (
        f"({name}.metadata.name.matches({quote(_DERIVED_NAME)})\n"
        f" && {name}.metadata.?labels[?{quote(MANAGED_LABEL)}].hasValue()\n"
        f" && {name}.metadata.?annotations[?{quote(GANG_ANNOTATION)}].hasValue())"
    )


def _gates(pod: str) -> str:
    return f"{pod}.spec.?schedulingGates.orValue([])"


def _is_report(name: str) -> str:
    """Return the condition that a variable is a report of ours."""
    return (
        f"({name}.metadata.name == {quote(REPORT_NAME)}"
        f' && {name}.metadata.?labels[?{quote(MANAGED_LABEL)}].orValue("") == "true")'
    )


def _policy(
    component: str,
    rules: Sequence[Document],
    validations: Sequence[Document],
    variables: Mapping[str, str] | None = None,
    *,
    namespace: str = NAMESPACE,
) -> tuple[Document, Document]:
    name = f"{NAME}-{component}"
    account = f"system:serviceaccount:{namespace}:{name}"
    metadata = {
        "name": name,
        "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": component},
    }
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": list(rules)},
        "matchConditions": [
            {
                "name": "is-the-account",
                "expression": f"request.userInfo.username == {quote(account)}",
            }
        ],
    }
    if variables:
        spec["variables"] = [
            {"name": variable, "expression": text} for variable, text in variables.items()
        ]
    spec["validations"] = list(validations)
    version = f"{_ADMISSION}/v1"
    return (
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": spec,
        },
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    )


def _rule(
    group: str, *resources: str, operations: Sequence[str] = ("CREATE", "UPDATE")
) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": list(resources),
    }


def _only(group: str, expression: str, message: str) -> Document:
    """Return a validation of objects of one group."""
    return _validation(f"request.resource.group != {quote(group)}", expression, message)


def _named_resource(resource: str, expression: str, message: str) -> Document:
    """Return a validation of objects of one resource."""
    return _validation(f"request.resource.resource != {quote(resource)}", expression, message)


def _validation(unless: str, expression: str, message: str) -> Document:
    return {
        "expression": f"{unless}\n|| ({expression})",
        "message": message,
        "reason": "Forbidden",
    }
