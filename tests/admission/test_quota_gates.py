"""The policies of scheduling gates: complete, and safe if something is missing."""

from typing import Final

import pytest

from admission.quota_gates import HOLDER_POLICY, KIND_POLICY, REMOVAL_POLICY, gate_documents
from controllers.model.settings import ControllerSettings
from kube.names import CONTROLLER_ACCOUNT, NAMESPACE, QUOTA_GATE_POLICY

POLICIES: Final = {
    (document["kind"], document["metadata"]["name"]): document["spec"]
    for document in gate_documents()
}


def test_every_policy_is_bound_by_its_name() -> None:
    assert {name for kind, name in POLICIES if kind.endswith("Policy")} == {
        QUOTA_GATE_POLICY,
        REMOVAL_POLICY,
        HOLDER_POLICY,
        KIND_POLICY,
    }
    for kind, name in POLICIES:
        if kind.endswith("Policy"):
            assert POLICIES[f"{kind}Binding", name]["policyName"] == name
            assert POLICIES[kind, name]["failurePolicy"] == "Fail"


def test_without_a_quota_or_a_lease_nothing_is_denied() -> None:
    actions = {
        name: spec["paramRef"]["parameterNotFoundAction"]
        for (_, name), spec in POLICIES.items()
        if "paramRef" in spec
    }

    assert actions == {QUOTA_GATE_POLICY: "Allow", HOLDER_POLICY: "Allow"}


def test_the_holder_is_that_of_the_controllers() -> None:
    binding = POLICIES["ValidatingAdmissionPolicyBinding", HOLDER_POLICY]

    assert binding["paramRef"]["name"] == CONTROLLER_ACCOUNT
    assert ControllerSettings().leader_election.resource_name == CONTROLLER_ACCOUNT


def test_the_policies_are_for_the_namespace_of_the_controllers() -> None:
    text = str(gate_documents("gpu-system"))

    assert NAMESPACE not in text
    account = f"system:serviceaccount:gpu-system:{CONTROLLER_ACCOUNT}"
    assert text.count(account) == str(gate_documents()).count(
        account.replace("gpu-system", NAMESPACE)
    )
    bindings = {
        document["metadata"]["name"]: document["spec"].get("paramRef", {}).get("namespace", "")
        for document in gate_documents("gpu-system")
        if document["kind"].endswith("Binding")
    }
    assert bindings[HOLDER_POLICY] == "gpu-system"


def test_only_the_policy_with_a_lease_is_kept_by_helm() -> None:
    kept = {
        document["metadata"]["name"]
        for document in gate_documents()
        if "annotations" in document["metadata"]
    }

    assert kept == {HOLDER_POLICY}


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"])
def test_both_policies_are_about_the_same_pods(kind: str) -> None:
    spec = POLICIES[kind, QUOTA_GATE_POLICY]
    conditions = {
        condition["name"]: condition["expression"] for condition in spec["matchConditions"]
    }

    other = POLICIES["ValidatingAdmissionPolicy", QUOTA_GATE_POLICY]
    expected = {
        condition["name"]: condition["expression"] for condition in other["matchConditions"]
    }
    for name in ("has-devices", "other-scheduler", "is-enforced"):
        assert conditions[name] == expected[name]
    assert spec["variables"] == other["variables"]
