"""DeviceCompatibilityPolicy as an object: refusals by the API server itself, and the status.

The controller runs with the account and the roles of the manifests. The devices are those of
examples/compatibility under a driver's name of their own, since other stories publish that one.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, RIGHT_DENIED, WEBHOOK, Drawbridge, command_line
from e2e.objects import pod
from e2e.small_inventory import claim, created
from kube.api.policy import API_VERSION
from rules.context.rule import CRD_VALIDATION
from rules.engine.registry import RULES
from testing.documents import api_object
from testing.rule_cases import POLICIES as CASES
from testing.rule_cases import Case

EXAMPLES: Final = Path(__file__).parent.parent / "examples" / "compatibility"
DRIVER: Final = "modes.example.com"
MODE: Final = f'device.attributes["{DRIVER}"].?partitioningMode.orValue("")'
NODE: Final = "modes-0"
POLICIES: Final = f"/apis/{API_VERSION}/devicecompatibilitypolicies"

pytestmark = pytest.mark.usefixtures("drawbridge")


def documents(name: str) -> list[Object]:
    """The objects of an example, of our driver."""
    text = (EXAMPLES / name).read_text().replace("gpu.example.com", DRIVER)
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def policy(name: str = "story", **spec: Any) -> Object:
    """The policy of the four modes, with other fields of its spec."""
    (document,) = documents("policy.yaml")
    return {**document, "metadata": {"name": name}, "spec": {**document["spec"], **spec}}


def rule(name: str = "a", **fields: Any) -> Object:
    return {"name": name, **fields}


def cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def of_mode(mode: str, *accepted: str) -> Object:
    """A rule for the devices of a mode that accept others."""
    accepts = f"{MODE} in {json.dumps(accepted)}"
    return rule(
        mode.lower(), selectors=[cel(f'{MODE} == "{mode}"')], compatibleOnlyWith=cel(accepts)
    )


@pytest.fixture
def published(cluster: Access) -> Iterator[str]:
    """The devices of the four modes on a simulated node."""
    slices = [
        document for document in documents("cluster.yaml") if document["kind"] == "ResourceSlice"
    ]
    cluster.add_nodes([inventory.kwok_node(NODE)], lambda _: slices)
    yield NODE
    cluster.remove_nodes([NODE])
    cluster.wait_until(
        lambda: (
            not any(
                object_["spec"]["driver"] == DRIVER for object_ in cluster.objects("resourceslices")
            )
        ),
        "the slices are gone",
    )


@pytest.fixture
def classes(cluster: Access) -> Iterator[None]:
    """The DeviceClasses of the four modes."""
    own = [document for document in documents("cluster.yaml") if document["kind"] == "DeviceClass"]
    cluster.apply(own)
    yield
    for class_ in own:
        cluster.kubectl("delete", "deviceclass", class_["metadata"]["name"])


@pytest.fixture(autouse=True)
def _no_policy_stays(cluster: Access) -> Iterator[None]:
    yield
    cluster.request("DELETE", POLICIES)


def conditions_of(policy_: Object) -> Mapping[str, str]:
    """Condition to status and reason."""
    conditions = policy_.get("status", {}).get("conditions", ())
    return {
        condition["type"]: f"{condition['status']} {condition['reason']}"
        for condition in conditions
    }


def awaited(cluster: Access, want: Mapping[str, str], name: str = "story") -> Object:
    """The policy, as soon as its conditions are these."""
    return cluster.wait_for(
        "dcp",
        name,
        until=lambda stored: want.items() <= conditions_of(stored).items(),
    )


GOOD: Final = {
    "Valid": "True Valid",
    "Symmetric": "True Symmetric",
    "Accepted": "True Accepted",
    "Enforced": "False NoPolicyAwareScheduler",
}
SUMMARY: Final = "4 kinds, 5 of 16 pairs compatible"


# --- what the API server refuses by itself ----------------------------------------------------------


class Refused(NamedTuple):
    name: str
    words: str
    spec: Mapping[str, Any]


ONE: Final = [rule(compatibilityGroups=["a"])]
REFUSED: Final = (
    Refused("no driver", "spec.driver: Required value", {"driver": None}),
    Refused("an empty driver", "spec.driver", {"driver": ""}),
    Refused("a driver that is no domain", "spec.driver: Invalid value", {"driver": "GPU_x"}),
    Refused("a driver of 64 characters", "spec.driver: Too long", {"driver": "d" * 64}),
    Refused("an unknown enforcement", 'supported values: "Enforce", "Audit"', {"enforcement": "Warn"}),
    Refused("an unknown word for undeclared devices", 'supported values: "Isolated", "Compatible"',
            {"undeclared": "Strict"}),
    Refused("an unknown scope", 'supported values: "Physical", "Pool"', {"scope": "Node"}),
    Refused("no rules", "spec.rules: Required value", {"rules": None}),
    Refused("an empty list of rules", "should have at least 1 items", {"rules": []}),
    Refused("65 rules", "spec.rules: Too many",
            {"rules": [rule(f"r{n}", compatibilityGroups=["a"]) for n in range(65)]}),
    Refused("a rule without a name", "spec.rules[0].name: Required value",
            {"rules": [{"compatibilityGroups": ["a"]}]}),
    Refused("two rules of one name", "spec.rules[1]: Duplicate value", {"rules": [*ONE, *ONE]}),
    Refused("a rule's name in capitals", "spec.rules[0].name: Invalid value",
            {"rules": [rule("A", compatibilityGroups=["a"])]}),
    Refused("a rule that forbids nothing",
            "at least one of compatibilityGroups and compatibleOnlyWith is needed",
            {"rules": [rule()]}),
    Refused("a rule with an empty list of groups", "should have at least 1 items",
            {"rules": [rule(compatibilityGroups=[])]}),
    Refused("three groups", "spec.rules[0].compatibilityGroups: Too many",
            {"rules": [rule(compatibilityGroups=["a", "b", "c"])]}),
    Refused("a group twice", "compatibilityGroups[1]: Duplicate value",
            {"rules": [rule(compatibilityGroups=["a", "a"])]}),
    Refused("a group in capitals", "compatibilityGroups[0]: Invalid value",
            {"rules": [rule(compatibilityGroups=["MIG"])]}),
    Refused("a selector that is not CEL", "selectors[0].cel: Required value",
            {"rules": [rule(selectors=[{}], compatibilityGroups=["a"])]}),
    Refused("a demand that is not CEL", "compatibleOnlyWith.cel: Required value",
            {"rules": [rule(compatibleOnlyWith={})]}),
    Refused("an empty expression", "cel.expression", {"rules": [rule(compatibleOnlyWith=cel(""))]}),
    Refused("an expression of more than 10 KiB", "cel.expression: Too long",
            {"rules": [rule(compatibleOnlyWith=cel("true" + " " * 10240))]}),
    Refused("33 selectors", "selectors: Too many",
            {"rules": [rule(selectors=[cel("true")] * 33, compatibilityGroups=["a"])]}),
    Refused("an empty list of physical attributes", "should have at least 1 items",
            {"physicalAttributes": []}),
    Refused("a physical attribute twice", "physicalAttributes[1]: Duplicate value",
            {"physicalAttributes": ["uuid", "uuid"]}),
    Refused("a physical attribute that is no name", "physicalAttributes[0]: Invalid value",
            {"physicalAttributes": ["a.b/c/d"]}),
    Refused("a physical attribute of 33 characters", "at most 32 characters after its domain",
            {"physicalAttributes": [f"a.b/{'c' * 33}"]}),
    Refused("a field that does not exist", 'unknown field "spec.enforce"', {"enforce": "Audit"}),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_the_api_server_refuses_by_itself(cluster: Access, case: Refused) -> None:
    policy_ = policy(rules=ONE)
    policy_["spec"] = {k: v for k, v in {**policy_["spec"], **case.spec}.items() if v is not None}

    status, body = cluster.request("POST", f"{POLICIES}?dryRun=All&fieldValidation=Strict", policy_)

    assert status in {400, 422}, body
    assert case.words in json.loads(body)["message"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_definition_stands_for_is_refused_by_it(cluster: Access, case: Case) -> None:
    """Rules with a table that says that the definition says them, and no others."""
    from_schema = {rule_.code.value for rule_ in RULES if rule_.no_cel_reason == CRD_VALIDATION}
    errors = {
        expected_line.split()[1]
        for expected_line in case.expected_lines
        if expected_line.startswith("error")
    }

    status, body = cluster.request("POST", f"{POLICIES}?dryRun=All", case.document)

    # What else is wrong may be refused by our webhook, while it answers.
    by_itself = status == 422 and b"admission webhook" not in body
    assert by_itself == bool(errors & from_schema), body
    assert errors or status == 201, body


def test_what_is_left_out_is_written_into_the_object(cluster: Access) -> None:
    cluster.apply(policy(physicalAttributes=["uuid", "resource.kubernetes.io/pcieRoot"]))

    spec = cluster.get("dcp", "story")["spec"]

    assert ("Enforce", "Isolated", "Physical") == (
        spec["enforcement"], spec["undeclared"], spec["scope"]
    )  # fmt: skip


def test_kubectl_explains_it(cluster: Access) -> None:
    words = cluster.kubectl("explain", "dcp.spec.rules.compatibleOnlyWith").stdout

    assert "every other device in use on the same" in words


# --- what the status says ---------------------------------------------------------------------------


def test_the_status_follows_what_is_published(
    cluster: Access, request: pytest.FixtureRequest
) -> None:
    cluster.apply(policy())
    awaited(cluster, {**GOOD, "Symmetric": "Unknown NoDevices"})
    began = time.monotonic()
    request.getfixturevalue("published")

    stored = awaited(cluster, GOOD)

    print(f"status after {time.monotonic() - began:.2f} s")
    assert SUMMARY == stored["status"]["summary"]
    assert [
        {"name": "whole", "devices": 2},
        {"name": "fraction", "devices": 4, "compatibleWith": ["fraction", "mps"]},
        {"name": "mig", "devices": 6, "compatibleWith": ["mig"]},
        {"name": "mps", "devices": 4, "compatibleWith": ["fraction", "mps"]},
    ] == stored["status"]["matrix"]
    assert {stored["metadata"]["generation"]} == {
        condition["observedGeneration"] for condition in stored["status"]["conditions"]
    }


@pytest.mark.usefixtures("published")
def test_kubectl_shows_it_in_columns(cluster: Access) -> None:
    cluster.apply(policy())
    awaited(cluster, GOOD)

    head, line = cluster.kubectl("get", "dcp", "story").stdout.splitlines()
    wide = cluster.kubectl("get", "drawbridge", "-o", "wide").stdout

    columns = "NAME DRIVER ENFORCEMENT VALID SYMMETRIC ACCEPTED ENFORCED RULES AGE"
    assert columns.split() == head.split()
    assert f"story {DRIVER} Enforce True True True False 4".split() == line.split()[:-1]
    assert SUMMARY in wide


@pytest.mark.usefixtures("published")
def test_a_doubt_is_reported_with_its_code(cluster: Access) -> None:
    one_way = [
        of_mode("MIGSlicing", "MIGSlicing", "MPSSharing"),
        of_mode("MPSSharing", "MPSSharing"),
    ]
    cluster.apply(policy(rules=one_way))

    stored = awaited(cluster, {"Valid": "True Valid", "Symmetric": "False AsymmetricRule"})

    (message,) = [
        condition["message"]
        for condition in stored["status"]["conditions"]
        if condition["type"] == "Symmetric"
    ]
    assert (
        "[asymmetricRule] the rule of gpu-0-mps-0 does not accept gpu-0-mig-0, whose rule accepts "
        "gpu-0-mps-0" in message
    )


@pytest.mark.usefixtures("published")
def test_a_broken_rule_is_reported_until_it_is_mended(cluster: Access) -> None:
    not_published = f'device.attributes["{DRIVER}"].mode == "mig"'
    cluster.apply(policy(rules=[rule(compatibleOnlyWith=cel(not_published))]))
    awaited(cluster, {"Valid": "False RuleEvaluationError", "Symmetric": "Unknown NotEvaluated"})
    cluster.wait_until(
        lambda: any(
            object_["regarding"]["name"] == "story" and object_["reason"] == "PolicyInvalid"
            for object_ in cluster.objects("events.events.k8s.io", "default")
        ),
        "an event tells that the policy is invalid",
    )

    cluster.apply(policy())

    awaited(cluster, GOOD)


@pytest.mark.usefixtures("published")
def test_the_oldest_policy_of_a_driver_counts(cluster: Access) -> None:
    cluster.apply(policy("story"))
    awaited(cluster, GOOD)
    time.sleep(1.1)  # Ages are told in seconds.
    cluster.apply(policy("a-younger-one", rules=ONE))

    stored = awaited(cluster, {"Accepted": "False DuplicatePolicyForDriver"}, "a-younger-one")
    (message,) = [
        condition["message"]
        for condition in stored["status"]["conditions"]
        if condition["type"] == "Accepted"
    ]
    assert "DeviceCompatibilityPolicy story is for driver" in message
    awaited(cluster, GOOD)
    cluster.kubectl("delete", "dcp", "story")

    awaited(cluster, {"Accepted": "True Accepted"}, "a-younger-one")


# --- what is in use ---------------------------------------------------------------------------------


def allocate_by_hand(cluster: Access, name: str, namespace: str, device: str) -> None:
    """A claim that holds a device, as a scheduler that knows no policy would allocate it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": f"mig.{DRIVER}"}}
    cluster.apply(
        api_object("ResourceClaim", name, namespace, spec={"devices": {"requests": [request]}})
    )
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status"
    status, body = cluster.request(
        "PATCH",
        path,
        {"status": {"allocation": {"devices": {"results": [result]}}}},
        content_type="application/merge-patch+json",
    )
    assert status == 200, body


def audit_events(cluster: Access, namespace: str) -> list[Object]:
    """Return the events about conflicts in a namespace under a policy in audit, as soon as there are some."""
    events: list[Object] = []

    def is_told() -> bool:
        events[:] = (
            event
            for event in cluster.objects("events.events.k8s.io", namespace)
            if event["reason"] == "DeviceIncompatible" and "is Audit" in event["note"]
        )
        return bool(events)

    cluster.wait_until(is_told, f"an event tells of a conflict in {namespace}")
    return events


@pytest.mark.usefixtures("published")
def test_an_audit_tells_what_would_have_been_refused(
    cluster: Access, namespace: str, workshop: str
) -> None:
    cluster.apply(policy(enforcement="Audit"))
    awaited(cluster, {"Accepted": "True Accepted", "Enforced": "False Audit"})
    allocate_by_hand(cluster, "secret-mig", namespace, "gpu-0-mig-0")
    allocate_by_hand(cluster, "secret-mps", workshop, "gpu-0-mps-0")
    allocate_by_hand(cluster, "elsewhere", namespace, "gpu-1-mps-0")

    task_result = cluster.wait_for(
        "dcp", "story", until=lambda stored: stored["status"].get("conflicts")
    )

    assert {
        "count": 1,
        "claims": 2,
        "namespaces": 2,
        "examples": [
            {
                "pool": NODE,
                "devices": ["gpu-0-mig-0", "gpu-0-mps-0"],
                "reason": "the rule of device gpu-0-mps-0 does not accept device gpu-0-mig-0",
            }
        ],
    } == task_result["status"]["conflicts"]
    text = json.dumps(task_result["status"])
    assert "secret" not in text
    assert namespace not in text

    # Each claim is told while the policy is in audit, which may be after the status says it.
    for name, where in (("secret-mig", namespace), ("secret-mps", workshop)):
        (event,) = audit_events(cluster, where)
        assert name == event["regarding"]["name"]
        assert "a claim in another namespace" in event["note"]
        assert "secret" not in event["note"]

    cluster.apply(policy(enforcement="Enforce"))
    enforced = awaited(cluster, GOOD)
    assert task_result["status"]["conflicts"] == enforced["status"]["conflicts"]

    cluster.kubectl("delete", "resourceclaim", "secret-mps", "-n", workshop)
    cluster.wait_for("dcp", "story", until=lambda stored: "conflicts" not in stored["status"])


# --- nothing enforces it --------------------------------------------------------------------------


def on_first_gpu(name: str, mode: str) -> Object:
    """A claim for a device of a mode on GPU-0, the hardware of all modes."""
    selector = cel(f'device.attributes["{DRIVER}"].?parentUUID.orValue("") == "GPU-0"')
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": f"{mode}.{DRIVER}", "selectors": [selector]},
    }
    return claim({"devices": {"requests": [request]}}, name)


@pytest.mark.usefixtures("published", "classes")
def test_a_policy_that_nothing_enforces_is_reported_everywhere(
    cluster: Access, namespace: str
) -> None:
    at_apply = cluster.kubectl("apply", "-f", "-", input=stream(policy())).stderr
    assert "Warning: drawbridge[policyNotEnforced]: spec.enforcement: " in at_apply
    assert "kube-scheduler ignores policies" in at_apply
    status = awaited(cluster, GOOD)["status"]
    (enforced,) = [
        condition for condition in status["conditions"] if condition["type"] == "Enforced"
    ]
    assert "policyAwareSchedulers" in enforced["message"]

    warnings = ""
    for mode in ("mig", "mps"):
        name = f"with-{mode}"
        for document in (
            on_first_gpu(name, mode),
            pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}]),
        ):
            warnings += created(cluster, document, namespace)[1]
        cluster.wait_running(name, namespace)

    # The scheduler gives both modes of one GPU away, so nobody was told otherwise.
    assert "doesNotFitNow" not in warnings
    notes: dict[str, str] = {}

    def events_of_pods() -> bool:
        for event in cluster.objects("events.events.k8s.io", namespace):
            if event["reason"] == "DeviceIncompatible" and event["regarding"]["kind"] == "Pod":
                notes[event["regarding"]["name"]] = event["note"]
        return len(notes) == 2

    cluster.wait_until(events_of_pods, "each pod has an event about the conflict")
    answer = command_line(
        cluster, "why", "pod", "with-mig", "-n", namespace, "--live", "-o", "json"
    )
    assert [notes["with-mig"]] == json.loads(answer.stdout)["conflicts"]
    assert "against DeviceCompatibilityPolicy story" in notes["with-mig"]
    assert "The policy is not enforced: kube-scheduler ignores policies" in notes["with-mps"]
    cluster.wait_until(
        lambda: any(
            event["reason"] == "PolicyNotEnforced" and event["regarding"]["name"] == "story"
            for event in cluster.objects("events.events.k8s.io", "default")
        ),
        "an event says that the policy is not enforced",
    )


# --- quiet, and no more rights than needed ----------------------------------------------------------


@pytest.mark.usefixtures("published")
def test_a_status_that_is_right_is_not_written_again(cluster: Access) -> None:
    cluster.apply(policy())
    before = _settled(cluster)
    for number in range(3):
        cluster.kubectl("label", "resourceslice", "--all", f"story={number}", "--overwrite")
        time.sleep(0.5)

    after = cluster.get("dcp", "story")
    assert before["status"] == after["status"]
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


def _settled(cluster: Access) -> Object:
    """A good policy once claims of earlier stories, counted as conflicts, are gone."""
    awaited(cluster, GOOD)
    return cluster.wait_for(
        "dcp", "story", until=lambda stored: not stored["status"].get("conflicts", {}).get("count")
    )


@pytest.mark.parametrize("account", [CONTROLLER, WEBHOOK])
@pytest.mark.parametrize(
    "command",
    [
        "get dcp story",
        "delete dcp story",
        'patch dcp story --type=merge -p {"spec":{"enforcement":"Audit"}}',
        "annotate dcp story a=b",
    ],
)
def test_nobody_of_ours_may_change_a_policy(
    cluster: Access, drawbridge: Drawbridge, account: str, command: str
) -> None:
    cluster.apply(policy())

    output = cluster.kubectl(
        *command.split(),
        check=False,
        kubeconfig=cluster.kubeconfig_for(drawbridge.namespace, account),
    )

    assert output.returncode == 1
    assert "forbidden: User" in output.stderr


def test_nothing_that_they_need_was_forbidden(drawbridge: Drawbridge) -> None:
    """After all that stories before this one had them do."""
    for name in (WEBHOOK, CONTROLLER):
        assert RIGHT_DENIED not in drawbridge.log(name)
