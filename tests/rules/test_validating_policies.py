"""The policies are whole, and cannot lock a cluster."""

from typing import Any

import pytest

from kube.names import ENFORCEMENT_LABEL
from rules.context.rule import Category, Rule
from rules.engine.registry import RULES
from rules.engine.validating_policies import documents

POLICIES = [document for document in documents() if document["kind"] == "ValidatingAdmissionPolicy"]
BINDINGS = [
    document for document in documents() if document["kind"] == "ValidatingAdmissionPolicyBinding"
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.scope}-{rule.code}")
def test_a_rule_is_in_the_server_or_says_why_not(rule: Rule[Any]) -> None:
    assert (rule.cel is None) == bool(rule.no_cel_reason)
    assert rule.fix.endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.scope}-{rule.code}")
def test_what_the_inventory_decides_is_never_in_the_server(rule: Rule[Any]) -> None:
    assert rule.cel is None or rule.category in {Category.INVALID, Category.ADVICE}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["metadata"]["name"])
def test_a_policy_looks_at_new_specs_of_dra_objects_only(policy: dict[str, Any]) -> None:
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    conditions = {match_condition["name"] for match_condition in policy["spec"]["matchConditions"]}

    assert rule["apiGroups"] == ["resource.k8s.io"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert not any("/" in resource for resource in rule["resources"])
    assert "spec-changed" in conditions
    assert policy["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["metadata"]["name"])
def test_a_policy_has_bindings_and_what_is_advice_never_denies(policy: dict[str, Any]) -> None:
    name = policy["metadata"]["name"]
    actions = {
        action
        for binding in BINDINGS
        if binding["spec"]["policyName"] == name
        for action in binding["spec"]["validationActions"]
    }

    assert actions
    assert "Deny" not in actions or "-invalid." in name


def test_a_namespace_chooses_what_happens_in_it() -> None:
    for binding in BINDINGS:
        selector = binding["spec"].get("matchResources", {}).get("namespaceSelector")
        if selector is not None:
            (match_expression,) = selector["matchExpressions"]
            assert match_expression["key"] == ENFORCEMENT_LABEL


def test_a_message_names_its_code() -> None:
    told_values = [
        validation["message"] for policy in POLICIES for validation in policy["spec"]["validations"]
    ]

    assert all(message.endswith("]") for message in told_values)
    assert len(told_values) == sum(
        len([r for r in RULES if r.cel and r.scope == part]) * times
        for part, times in (("claim", 2), ("class", 1), ("slice", 1))
    )
