"""The policies of scheduling gates: complete, and safe if something is missing."""

from typing import Any, Final

import pytest
from cel_expr_python import cel

from admission.quota_gates import HOLDER_POLICY, KIND_POLICY, REMOVAL_POLICY, gate_documents
from controllers.model.settings import ControllerSettings
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.names import CONTROLLER_ACCOUNT, NAMESPACE, QUOTA_GATE_POLICY, SCHEDULER_NAME
from testing.documents import Document

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
    for name in ("has-devices", "not-left-to-bridge", "is-enforced"):
        assert conditions[name] == expected[name]
    assert spec["variables"] == other["variables"]


GPU: Final = "nvidia.com/gpu"
CLAIMS: Final = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
BRIDGE: Final = {"schedulerName": SCHEDULER_NAME}


def limits(key: str) -> Document:
    return {"resources": {"limits": {key: "1"}}}


def containers(*of: Document, init: tuple[Document, ...] = ()) -> Document:
    """The containers of a pod, as the API server shows them."""
    return {"containers": list(of), **({"initContainers": list(init)} if init else {})}


@pytest.mark.parametrize(
    ("is_gated", "spec"),
    [
        (True, CLAIMS | containers({})),
        (True, containers(limits(GPU))),
        (True, {"schedulerName": "theirs"} | CLAIMS | containers({})),
        (False, containers(limits("cpu"))),
        (False, BRIDGE | CLAIMS | containers({})),
        (False, BRIDGE | CLAIMS | containers(limits("cpu"), limits("hugepages-2Mi"))),
        (False, BRIDGE | containers(limits("example.kubernetes.io/gpu"))),
        (True, BRIDGE | containers(limits(GPU))),
        (True, BRIDGE | CLAIMS | containers({}, limits(GPU))),
        (True, BRIDGE | containers({"resources": {"requests": {GPU: "1"}}})),
        (True, BRIDGE | CLAIMS | containers({}, init=(limits(GPU),))),
        (True, BRIDGE | containers({}, init=({"resources": {"requests": {GPU: "1"}}},))),
        (True, BRIDGE | containers(limits(f"{IMPLICIT_PREFIX}gpu"))),
        (True, BRIDGE | containers(limits("Example.Com/GPU"))),
    ],
)
def test_pods_have_the_gate_unless_the_bridge_alone_decides_about_them(
    is_gated: bool, spec: Document
) -> None:
    """Those of the bridge with keys of a device plugin had none."""
    conditions = POLICIES["ValidatingAdmissionPolicy", QUOTA_GATE_POLICY]["matchConditions"]
    environment = cel.NewEnv(
        config=cel.NewEnvConfigFromYaml("name: conditions\nextensions:\n- name: optional\n"),
        variables={"object": cel.Type.DYN},
    )

    def is_met(expression: str) -> Any:
        return environment.compile(expression).eval(data={"object": {"spec": spec}}).value()

    about_pods = {"has-devices", "not-left-to-bridge"}
    verdicts = [is_met(entry["expression"]) for entry in conditions if entry["name"] in about_pods]
    assert all(verdicts) is is_gated
    assert len(verdicts) == len(about_pods)
