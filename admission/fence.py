"""The fence: ValidatingAdmissionPolicies that give each driver one allocator, and that one process.

* The policy `drawbridge-fence` has the owned drivers in its text. Only the bridge's account allocates
  their devices, and it allocates no others. One list says both, so no two accounts may allocate for
  a driver, and for none is there nobody.
* The policy `drawbridge-fence-holder` has the bridge's Lease as its parameter, and is about the bridge's
  account only: it changes allocations, and for whom claims are reserved, under the field manager of the
  process that holds the Lease. A late write of an earlier holder would take the claim from a pod that runs.

They are two because a policy without its parameter is decided before its match conditions: a missing
Lease would refuse every status of every claim in the cluster, or nothing. While the Lease is missing,
the second policy is skipped: nobody but the bridge is let in by that, and a process leads only once it
has created the Lease.

Others may remove an allocation, as kube-controller-manager does when no pod uses a claim, and write a
status with the same allocation, as schedulers and drivers do. That account has another name in some
distributions, so the fence does not single it out: a claim that nobody may deallocate keeps its devices. An
administrator has no exception: what
rescues a cluster is to change the first policy.

The policies are created once, and the first is changed in place. They are in no kustomization: to apply
it again would undo `drawbridge bridge own`, and to delete it would delete the policies; if the second is
created again, the API server keeps the old value of its parameter until it restarts.

Source: KEP-3488; k8s.io/apiserver v0.37.1, pkg/admission/plugin/policy/generic/policy_source.go and
policy_dispatcher.go.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kube.api.ownership import EXCLUDING_FIELDS, OPEN_CONDITION
from kube.cel.quoting import quote
from kube.names import (
    BRIDGE_ACCOUNT,
    BRIDGE_LEASE,
    FENCE,
    FIELD_MANAGER_PREFIX,
    HOLDER_FENCE,
    NAME,
    NAMESPACE,
)

Document = Mapping[str, Any]

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_RESULTS: Final = "object.?status.?allocation.?devices.?results.orValue([])"
_IS_BRIDGE: Final = (
    f"request.userInfo.username == {quote(f'system:serviceaccount:{NAMESPACE}:{BRIDGE_ACCOUNT}')}"
)
_ALLOCATION_CHANGES: Final = "object.?status.?allocation != oldObject.?status.?allocation"
_CONSUMERS_CHANGE: Final = "object.?status.?reservedFor != oldObject.?status.?reservedFor"


def fence_documents(drivers: Collection[str]) -> list[Document]:
    """Return the policies for a set of owned drivers, and their bindings."""
    lease = {
        "name": BRIDGE_LEASE,
        "namespace": NAMESPACE,
        "parameterNotFoundAction": "Allow",
    }
    return [
        _document("ValidatingAdmissionPolicy", FENCE, _driver_spec(drivers)),
        _document("ValidatingAdmissionPolicyBinding", FENCE, _binding_spec(FENCE)),
        _document("ValidatingAdmissionPolicy", HOLDER_FENCE, _holder_spec()),
        _document(
            "ValidatingAdmissionPolicyBinding",
            HOLDER_FENCE,
            {**_binding_spec(HOLDER_FENCE), "paramRef": lease},
        ),
    ]


def fence_patch(drivers: Collection[str]) -> Document:
    """Return the merge patch that makes the first policy that of a set of owned drivers."""
    return part_patch(_document("ValidatingAdmissionPolicy", FENCE, _driver_spec(drivers)))


def part_patch(document: Document) -> Document:
    """Return the merge patch that restores a part of the fence and removes its exclusions.

    Args:
        document: One of `fence_documents`.
    """
    spec = document["spec"]
    if "matchConstraints" not in spec:
        return {"spec": {"matchResources": None, "paramRef": None} | spec}
    constraints = spec["matchConstraints"] | dict.fromkeys(EXCLUDING_FIELDS)
    return {"spec": {"paramKind": None} | spec | {"matchConstraints": constraints}}


OPEN_PATCH: Final[Document] = {"spec": {"matchConditions": [OPEN_CONDITION]}}
"""The merge patch after which the first policy restricts nothing: the first step of a rescue."""


def is_fence_of(policy: Document, drivers: Collection[str]) -> bool:
    """Return True if a stored policy is the first one, for exactly these drivers.

    Args:
        policy: The policy as the API server returns it, with defaults.
    """
    return _has(policy.get("spec"), fence_patch(drivers)["spec"])


def is_part_current(part: Document, document: Document) -> bool:
    """Return True if a stored part of the fence equals its document and excludes no write.

    Args:
        part: The part as the API server returns it, with defaults.
        document: One of `fence_documents`.
    """
    return _has(part.get("spec"), part_patch(document)["spec"])


def _has(value: object, expected: object) -> bool:
    """Return True if a stored value is the expected one, defaults of the API server aside.

    Args:
        expected: None for a field that is absent, or empty by default.
    """
    if expected is None:
        return not value
    if isinstance(expected, Mapping):
        return isinstance(value, Mapping) and all(
            _has(value.get(key), expected_value) for key, expected_value in expected.items()
        )
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return (
            isinstance(value, Sequence)
            and len(value) == len(expected)
            and all(map(_has, value, expected))
        )
    return value == expected


def _driver_spec(drivers: Collection[str]) -> Document:
    owned = _is_owned(drivers)
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _STATUS_OF_CLAIMS,
        "matchConditions": [
            {"name": "allocation-changes", "expression": _ALLOCATION_CHANGES},
            {
                "name": "owned-driver-or-bridge",
                "expression": f"{_IS_BRIDGE}\n|| {_RESULTS}.exists(result, {owned})",
            },
        ],
        "validations": [
            _validation(
                _IS_BRIDGE,
                "Drawbridge owns a driver of this allocation, so only its bridge may write it; give "
                "the pod the schedulerName of the bridge, or release the driver with "
                "`drawbridge bridge release`",
            ),
            _validation(
                f"{_RESULTS}.all(result, {owned})",
                "the bridge may only allocate devices of drivers that it owns; "
                "`drawbridge bridge own` makes a driver its own",
            ),
        ],
    }


def _holder_spec() -> Document:
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        "matchConstraints": _STATUS_OF_CLAIMS,
        "matchConditions": [
            {
                "name": "allocation-or-consumers-change",
                "expression": f"{_ALLOCATION_CHANGES}\n|| {_CONSUMERS_CHANGE}",
            },
            {"name": "is-the-bridge", "expression": _IS_BRIDGE},
        ],
        "validations": [
            _validation(
                'params.?spec.?holderIdentity.orValue("") != ""\n'
                '&& request.?options.?fieldManager.orValue("")\n'
                f"== {quote(FIELD_MANAGER_PREFIX)} + params.spec.holderIdentity",
                "the writer does not hold the Lease of the bridge",
            ),
        ],
    }


_STATUS_OF_CLAIMS: Final[Document] = {
    "matchPolicy": "Equivalent",  # Other versions of the API, too.
    "resourceRules": [
        {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["resourceclaims/status"],
        }
    ],
}


def _is_owned(drivers: Collection[str]) -> str:
    """Return the expression for: the driver of `result` is owned, however it is spelled.

    The API server takes capitals in the driver of a result; the names of owned drivers have none.
    """
    names = ", ".join(map(quote, sorted(drivers)))
    return f"result.driver.lowerAscii() in [{names}]" if drivers else "false"


def _validation(expression: str, message: str) -> Document:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _binding_spec(policy: str) -> Document:
    return {"policyName": policy, "validationActions": ["Deny"]}


def _document(kind: str, name: str, spec: Document) -> Document:
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "bridge"}
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
