"""Rules inside the API server: enforced while our webhook is down, and never in the way.

The policies and the rules in Python are made of one table; here both validate the same objects.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.objects import pod
from e2e.older_kubernetes import LEFT_OFF, MINOR
from kube.manifests.reader import read_paths
from kube.names import ENFORCEMENT_LABEL
from rules.context.rule import BUILT_IN_VALIDATION, KINDS, Category
from rules.engine.registry import RULES
from testing.documents import claim, device, device_class, exactly, resource_slice, template
from testing.rule_cases import CLAIMS, CLASSES, CONFIGS, SELECTORS, SLICES, Case, finding_lines

POLICIES: Final = Path(__file__).parent.parent / "manifests" / "policies" / "policies.yaml"
DENIED: Final = "ValidatingAdmissionPolicy"
PROBE: Final = claim(exactly(count=33))

pytestmark = pytest.mark.usefixtures("policies")


@pytest.fixture(scope="module")
def policies(cluster: Access, drawbridge: Drawbridge) -> Iterator[None]:
    """The policies, in force, while our webhook does not run."""
    drawbridge.stop(WEBHOOK)
    documents = [read_path.document for read_path in read_paths([str(POLICIES)])]
    cluster.apply(documents)
    cluster.wait_until(
        lambda: all(DENIED in _tried(cluster, probe, "default")[1] for probe in _PROBES),
        "the policies are in force",
    )
    yield
    for document in documents:
        cluster.request(
            "DELETE", f"{_ADMISSION}/{_PLURALS[document['kind']]}/{document['metadata']['name']}"
        )
    drawbridge.start(WEBHOOK)
    drawbridge.wait_ready()


_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_MEMBER: Final = 'device.driver == "a" && device.attributes["a"].b.string == "c"'
_PROBES: Final = (
    PROBE,
    template(exactly(count=33)),
    device_class(_MEMBER),
    resource_slice(device(attributes={"a.b/c/d": {"int": 1}})),
)


def _tried(cluster: Access, document: Object | list[Object], namespace: str) -> tuple[int, str]:
    """Create objects without keeping them; return kubectl's exit code and words."""
    arguments = ("create", "--dry-run=server", "--validate=ignore", "-n", namespace, "-f", "-")
    output = cluster.kubectl(*arguments, input=stream(document), check=False)
    return output.returncode, output.stderr


_LATER: Final = (
    *(f'"{field}"' for field in ("perDeviceNodeSelection", "sharedCounters", "consumesCounters")),
    '"effect":"None"',
)
"""The fields that 1.34 drops, since its layout of partitions is another, or does not know, in JSON."""


def _is_known(case: Case) -> bool:
    """Return True if the version of the control plane knows all fields and values of a case."""
    text = json.dumps(case.document, separators=(",", ":"))
    return MINOR >= LEFT_OFF["DRAPartitionableDevices"] or not any(map(text.count, _LATER))


ALL_CASES: Final = (*CLAIMS, *SELECTORS, *CONFIGS, *CLASSES, *SLICES)
CASES: Final = tuple(filter(_is_known, ALL_CASES))


def _codes(case: Case, severity: str) -> set[str]:
    return {
        expected_line.split()[1]
        for expected_line in case.expected_lines
        if expected_line.startswith(severity)
    }


def _rules(kind: str, why: str | None) -> set[str]:
    """Return the codes of a kind that policies tell, or that they do not tell for a reason."""
    return {
        rule.code.value
        for rule in RULES
        if kind in KINDS[rule.scope]
        and (rule.cel is not None if why is None else rule.no_cel_reason == why)
    }


def _posted(cluster: Access, document: Object, namespace: str) -> tuple[int, str]:
    """Create an object without keeping it; return status and message. Much faster than kubectl."""
    path = cluster.kind(document["kind"]).path(namespace)
    code, body = cluster.request("POST", f"{path}?dryRun=All", document)
    return code, str(json.loads(body).get("message", ""))


@pytest.mark.parametrize(
    "case", [case for case in CASES if _codes(case, "error")], ids=lambda case: case.name
)
def test_the_server_refuses_what_rules_refuse(cluster: Access, workshop: str, case: Case) -> None:
    kind, errors = case.document["kind"], _codes(case, "error")
    built_in, in_server = errors & _rules(kind, BUILT_IN_VALIDATION), errors & _rules(kind, None)

    code, words = _posted(cluster, case.document, workshop)

    if built_in:
        assert code == http.client.UNPROCESSABLE_ENTITY, words
        assert DENIED not in words
    elif in_server:
        assert DENIED in words
        assert any(f"[{code_}]" in words for code_ in in_server), words
    else:
        assert code == http.client.CREATED, words


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.expected_lines and not _codes(case, "error")],
    ids=lambda case: case.name,
)
def test_the_server_warns_of_what_rules_warn_of(cluster: Access, workshop: str, case: Case) -> None:
    in_server = _rules(case.document["kind"], None)

    code, words = _tried(cluster, case.document, workshop)

    assert code == 0, words
    warned_codes = {code_ for code_ in in_server if f"[{code_}]" in words}
    assert warned_codes == _codes(case, "warning") & in_server


def test_what_is_right_is_created_without_a_word(cluster: Access, workshop: str) -> None:
    right = [
        {**case.document, "metadata": {"name": f"right-{number}.example.com"}}
        for number, case in enumerate(CASES)
        if not case.expected_lines
    ]

    assert _tried(cluster, right, workshop) == (0, "")


def test_a_policy_compiles_without_a_doubt(cluster: Access) -> None:
    """The API server checks the types of each expression, and tells in the status."""
    for object_ in cluster.objects("validatingadmissionpolicies"):
        if object_["metadata"]["name"].endswith(".drawbridge.internal"):
            task_result = cluster.wait_for(
                "validatingadmissionpolicies",
                object_["metadata"]["name"],
                until=lambda stored: "typeChecking" in stored.get("status", {}),
            )
            assert "expressionWarnings" not in task_result["status"]["typeChecking"], task_result[
                "status"
            ]


def test_a_denial_names_field_cause_and_code(cluster: Access, workshop: str) -> None:
    _, words = _tried(cluster, PROBE, workshop)

    assert "more than 32 devices requested; split it into several claims [tooManyDevices]" in words


def _labelled(cluster: Access, namespace: str, value: str) -> None:
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}={value}", "--overwrite")


def test_a_namespace_says_what_happens_in_it(cluster: Access, namespace: str) -> None:
    _labelled(cluster, namespace, "warn")
    cluster.wait_until(lambda: _tried(cluster, PROBE, namespace)[0] == 0, "the label counts")
    _, words = _tried(cluster, PROBE, namespace)
    assert "Warning: " in words
    assert "[tooManyDevices]" in words

    _labelled(cluster, namespace, "off")
    cluster.wait_until(lambda: not _tried(cluster, PROBE, namespace)[1], "the label counts")


def test_what_is_there_can_be_labelled_finished_and_removed(
    cluster: Access, namespace: str
) -> None:
    """An object that a rule would refuse, admitted before there was one."""
    _labelled(cluster, namespace, "off")
    old = {**PROBE, "metadata": {"name": "old", "namespace": namespace}}
    cluster.wait_until(lambda: not _tried(cluster, old, namespace)[0], "the label counts")
    cluster.apply(old)
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}-")
    cluster.wait_until(lambda: bool(_tried(cluster, PROBE, namespace)[0]), "the rules are back")

    cluster.kubectl("label", "resourceclaim", "old", "-n", namespace, "a=b")
    cluster.kubectl(
        *("patch", "resourceclaim", "old", "-n", namespace, "--type=merge", "-p"),
        json.dumps({"metadata": {"finalizers": ["drawbridge.internal/story"]}}),
    )
    _patch_status(cluster, namespace, {"devices": []})
    cluster.kubectl(
        *("patch", "resourceclaim", "old", "-n", namespace, "--type=merge", "-p"),
        json.dumps({"metadata": {"finalizers": None}}),
    )
    cluster.kubectl("delete", "resourceclaim", "old", "-n", namespace)


def _patch_status(cluster: Access, namespace: str, status: Mapping[str, Any]) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/old/status"
    merge = "application/merge-patch+json"
    code, body = cluster.request("PATCH", path, {"status": status}, content_type=merge)
    assert code == http.client.OK, body


@pytest.mark.usefixtures("nodes")
def test_pods_get_their_claims_where_policies_are_in_force(cluster: Access, namespace: str) -> None:
    template_ = template(exactly(deviceClassName="gpu.example.com"))
    document = {**template_, "metadata": {"name": "gpu", "namespace": namespace}}
    cluster.apply(document)
    runs = pod("runs", claims={"gpu": "gpu"})

    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(runs))

    cluster.wait_running("runs", namespace)


def test_every_rule_of_the_server_has_an_object_that_breaks_it() -> None:
    warned_codes = {
        (case.document["kind"], finding_line.split()[1])
        for case in ALL_CASES
        for finding_line in finding_lines(case.document)
    }

    for rule in RULES:
        if rule.cel is not None and rule.category in {Category.INVALID, Category.ADVICE}:
            assert any((kind, rule.code.value) in warned_codes for kind in KINDS[rule.scope]), (
                rule.code
            )
