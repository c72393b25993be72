"""Policies that hold back pods with devices that a DeviceQuota limits, until controllers let them through.

* The MutatingAdmissionPolicy `drawbridge-quota-gate` adds a scheduling gate to pods with claims or extended
  resources, in every namespace that a quota selects. Each quota is a parameter of it, so that a quota holds
  from its creation on, whether or not the controllers run.
* The ValidatingAdmissionPolicy of the same name denies such a pod without the gate, and one that names its
  node, which no scheduler would see.
* `drawbridge-quota-gate-removal` lets nobody but the controllers' account remove the gate, and
  `drawbridge-quota-gate-holder` only the process of that account that holds the Lease. They are two, since a
  policy without its parameter is decided before its match conditions.
* `drawbridge-quota-gate-kind` keeps the definition of the kind from being deleted before the policies are:
  a policy whose parameter is of no kind denies every pod.

Which extended resources a DeviceClass maps no policy can see, so all of them count here; the controllers let a
pod through at once that no quota charges. Pods of the bridge have the gate only if they have such keys: it decides
about claims of its drivers itself, and rejects claims of all others.

Source: KEP-3488, KEP-3962, KEP-3521; k8s.io/apiserver v0.37.1, pkg/admission/plugin/policy/generic.
"""

from typing import Any, Final

from kube.api.device_quota import API_VERSION as QUOTA_API_VERSION
from kube.api.device_quota import KIND as QUOTA_KIND
from kube.api.device_quota import QuotaEnforcement
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.urls import DEVICE_QUOTAS
from kube.cel.quoting import quote
from kube.names import (
    CONTROLLER_ACCOUNT,
    FIELD_MANAGER_PREFIX,
    NAME,
    NAMESPACE,
    QUOTA_GATE,
    QUOTA_GATE_POLICY,
    SCHEDULER_NAME,
)

Document = dict[str, Any]

REMOVAL_POLICY: Final = f"{QUOTA_GATE_POLICY}-removal"
HOLDER_POLICY: Final = f"{QUOTA_GATE_POLICY}-holder"
KIND_POLICY: Final = f"{QUOTA_GATE_POLICY}-kind"

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_IS_DEVICE_KEY: Final = (
    f"key.startsWith({quote(IMPLICIT_PREFIX)})\n"
    '      || (key.contains("/") && !key.contains("kubernetes.io/") && !key.startsWith("requests."))'
)
_HAS_KEYS: Final = f"""\
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(container,
  container.?resources.?limits.orValue({{}}).exists(key,
    {_IS_DEVICE_KEY})
  || container.?resources.?requests.orValue({{}}).exists(key,
    {_IS_DEVICE_KEY}))"""
_HAS_DEVICES: Final = f"object.spec.?resourceClaims.orValue([]).size() > 0\n|| {_HAS_KEYS}"
_NOT_LEFT_TO_BRIDGE: Final = (
    f'object.spec.?schedulerName.orValue("") != {quote(SCHEDULER_NAME)}\n|| {_HAS_KEYS}'
)
_IS_ENFORCED: Final = (
    f'params.spec.?enforcement.orValue("") != {quote(QuotaEnforcement.AUDIT.value)}'
)
_NO_MIRROR_POD: Final = (
    '!("system:nodes" in request.userInfo.?groups.orValue([])\n'
    '  && object.metadata.?annotations[?"kubernetes.io/config.mirror"].hasValue())'
)
"""Only a node is believed that a pod mirrors one of its own."""
_LABELS: Final = "namespaceObject.metadata.?labels.orValue({})"
_IS_SELECTED: Final = """\
params.spec.namespaceSelector.?matchLabels.orValue({}).all(key,
  variables.labels[?key] == params.spec.namespaceSelector.matchLabels[?key])
&& params.spec.namespaceSelector.?matchExpressions.orValue([]).all(requirement,
  requirement.operator == "Exists" ? requirement.key in variables.labels
  : requirement.operator == "DoesNotExist" ? !(requirement.key in variables.labels)
  : requirement.operator == "In" ? variables.labels[?requirement.key].hasValue()
    && variables.labels[requirement.key] in requirement.?values.orValue([])
  : !variables.labels[?requirement.key].hasValue()
    || !(variables.labels[requirement.key] in requirement.?values.orValue([])))"""


def gate_documents(namespace: str = NAMESPACE) -> list[Document]:
    """Return the policies and their bindings.

    Args:
        namespace: The namespace in which the controllers are installed.
    """
    is_controller = (
        "request.userInfo.username == "
        f"{quote(f'system:serviceaccount:{namespace}:{CONTROLLER_ACCOUNT}')}"
    )
    all_quotas = {"selector": {}, "parameterNotFoundAction": "Allow"}
    lease = {
        "name": CONTROLLER_ACCOUNT,
        "namespace": namespace,
        "parameterNotFoundAction": "Allow",
    }
    return [
        _document("MutatingAdmissionPolicy", QUOTA_GATE_POLICY, _adding_spec()),
        _document(
            "MutatingAdmissionPolicyBinding",
            QUOTA_GATE_POLICY,
            {"policyName": QUOTA_GATE_POLICY, "paramRef": all_quotas},
        ),
        _document("ValidatingAdmissionPolicy", QUOTA_GATE_POLICY, _demanding_spec()),
        _binding(QUOTA_GATE_POLICY, paramRef=all_quotas),
        _document("ValidatingAdmissionPolicy", REMOVAL_POLICY, _removal_spec(is_controller)),
        _binding(REMOVAL_POLICY),
        _keep_in_chart(
            _document("ValidatingAdmissionPolicy", HOLDER_POLICY, _holder_spec(is_controller))
        ),
        _keep_in_chart(_binding(HOLDER_POLICY, paramRef=lease)),
        _document("ValidatingAdmissionPolicy", KIND_POLICY, _kind_spec()),
        _binding(KIND_POLICY),
    ]


def _adding_spec() -> Document:
    gates = "Object.spec.schedulingGates"
    return {
        "failurePolicy": "Fail",
        # Claims and keys that a webhook adds count, too.
        "reinvocationPolicy": "IfNeeded",
        "paramKind": _QUOTAS,
        "matchConstraints": _rule("", "pods", "CREATE"),
        "matchConditions": [
            *_CONDITIONS,
            {"name": "no-node", "expression": 'object.spec.?nodeName.orValue("") == ""'},
            {"name": "no-gate", "expression": f"!({_has_gate('object')})"},
        ],
        "variables": _VARIABLES,
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": "!variables.selected ? []\n"
                    ": has(object.spec.schedulingGates)\n"
                    '? [JSONPatch{op: "add", path: "/spec/schedulingGates/-",\n'
                    f"    value: {gates}{{name: {quote(QUOTA_GATE)}}}}}]\n"
                    ': [JSONPatch{op: "add", path: "/spec/schedulingGates",\n'
                    f"    value: [{gates}{{name: {quote(QUOTA_GATE)}}}]}}]"
                },
            }
        ],
    }


def _demanding_spec() -> Document:
    limited = "a DeviceQuota limits the devices of this namespace"
    return {
        "failurePolicy": "Fail",
        "paramKind": _QUOTAS,
        "matchConstraints": _rule("", "pods", "CREATE"),
        "matchConditions": [
            *_CONDITIONS,
            {"name": "no-mirror-pod", "expression": _NO_MIRROR_POD},
        ],
        "variables": _VARIABLES,
        "validations": [
            _validation(
                '!variables.selected || object.spec.?nodeName.orValue("") == ""',
                f"{limited}, so a pod that requests devices may not set spec.nodeName; use "
                "spec.nodeSelector or spec.affinity",
            ),
            _validation(
                f"!variables.selected || {_has_gate('object')}",
                f"{limited}, so a pod that requests devices needs the scheduling gate {QUOTA_GATE}; "
                f"the MutatingAdmissionPolicy {QUOTA_GATE_POLICY} adds it, so do not remove it during "
                "admission",
            ),
        ],
    }


def _removal_spec(is_controller: str) -> Document:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _rule("", "pods", "UPDATE"),
        "matchConditions": [_GATE_REMOVED],
        "validations": [
            _validation(
                is_controller,
                f"the scheduling gate {QUOTA_GATE} is removed by Drawbridge once the DeviceQuotas of the "
                "namespace have room; delete the pod if it need not wait, or raise the quota",
            )
        ],
    }


def _holder_spec(is_controller: str) -> Document:
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        "matchConstraints": _rule("", "pods", "UPDATE"),
        "matchConditions": [
            _GATE_REMOVED,
            {"name": "is-the-controller", "expression": is_controller},
        ],
        "validations": [
            _validation(
                'params.?spec.?holderIdentity.orValue("") != ""\n'
                '&& request.?options.?fieldManager.orValue("")\n'
                f"== {quote(FIELD_MANAGER_PREFIX)} + params.spec.holderIdentity",
                "the writer does not hold the Lease of the controllers, or the API server has an old copy of it: see docs/quota-gates.md, Installing it again",
            )
        ],
    }


def _kind_spec() -> Document:
    name = f"{DEVICE_QUOTAS.plural}.{DEVICE_QUOTAS.group}"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _rule("apiextensions.k8s.io", "customresourcedefinitions", "DELETE"),
        "matchConditions": [
            {"name": "is-the-kind", "expression": f"request.name == {quote(name)}"}
        ],
        "validations": [
            _validation(
                "false",
                f"the policies {QUOTA_GATE_POLICY} read DeviceQuotas, and would deny every pod without "
                "the kind; delete them first, see docs/quota-gates.md",
            )
        ],
    }


_QUOTAS: Final[Document] = {"apiVersion": QUOTA_API_VERSION, "kind": QUOTA_KIND}
_CONDITIONS: Final[tuple[Document, ...]] = (
    {"name": "has-devices", "expression": _HAS_DEVICES},
    {"name": "not-left-to-bridge", "expression": _NOT_LEFT_TO_BRIDGE},
    {"name": "is-enforced", "expression": _IS_ENFORCED},
)
_VARIABLES: Final[tuple[Document, ...]] = (
    {"name": "labels", "expression": _LABELS},
    {"name": "selected", "expression": _IS_SELECTED},
)


def _has_gate(of: str) -> str:
    """Return the expression for: a pod has the gate."""
    return f"{of}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == {quote(QUOTA_GATE)})"


_GATE_REMOVED: Final[Document] = {
    "name": "gate-removed",
    "expression": f"{_has_gate('oldObject')}\n&& !{_has_gate('object')}",
}


def _rule(group: str, resource: str, operation: str) -> Document:
    return {
        "matchPolicy": "Equivalent",
        "resourceRules": [
            {
                "apiGroups": [group],
                "apiVersions": ["v1"],
                "operations": [operation],
                "resources": [resource],
            }
        ],
    }


def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _binding(policy: str, **spec: Document) -> Document:
    return _document(
        "ValidatingAdmissionPolicyBinding",
        policy,
        {"policyName": policy, "validationActions": ["Deny"], **spec},
    )


def _keep_in_chart(document: Document) -> Document:
    """Return a document that Helm does not delete.

    If a policy with a Lease as its parameter is created again, the API server keeps the holder that it saw
    last until it restarts, and denies every later one.
    """
    annotations = {"helm.sh/resource-policy": "keep"}
    return document | {"metadata": document["metadata"] | {"annotations": annotations}}


def _document(kind: str, name: str, spec: Document) -> Document:
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "quota-gates"}
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
