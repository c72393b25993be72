"""The findings about each object of the table, by each user of the rules."""

import msgspec
import pytest

from findings.finding import Severity
from kube.api.meta import ObjectMeta, OwnerReference, convert
from kube.api.resource import ResourceClaim
from kube.names import ENFORCEMENT_LABEL
from rules.context.context import Context
from rules.engine.engine import MAX_FINDINGS, Target, validate
from rules.objects.fields import MAX_ENTRIES
from rules.objects.selectors import MAX_EXPRESSIONS
from testing.documents import cel, claim, device_class, exactly, first, sub
from testing.rule_cases import ALL, NAMESPACE, Case, finding_lines, findings_of


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_validate(case: Case) -> None:
    assert case.expected_lines == finding_lines(case.document)


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.expected_lines], ids=lambda case: case.name
)
def test_a_finding_is_one_line(case: Case) -> None:
    for finding in findings_of(case.document):
        assert finding.message.isprintable()
        assert finding.fix.isprintable()
        assert not finding.message.endswith(".")


WRONG = claim(exactly(count=33))


def test_a_namespace_that_wants_to_be_warned_is_warned() -> None:
    context = Context(namespaces={NAMESPACE: {ENFORCEMENT_LABEL: "warn"}})

    assert ("warning tooManyDevices spec.devices.requests",) == finding_lines(WRONG, context)


def test_a_namespace_without_enforcement_gets_no_verdict() -> None:
    assert finding_lines(WRONG, Context(namespaces={NAMESPACE: {ENFORCEMENT_LABEL: "off"}})) == ()


def test_what_a_controller_made_is_only_warned_of() -> None:
    owner = OwnerReference(kind="Pod", name="p", controller=True)
    metadata = ObjectMeta(owner_references=(owner,))
    target = Target(view=convert(WRONG, ResourceClaim), raw=WRONG, metadata=metadata)

    (finding,) = validate(target, Context())

    assert finding.severity is Severity.WARNING


def test_one_mistake_many_times_does_not_fill_the_answer() -> None:
    tolerations = [{"operator": "Equal", "value": str(number)} for number in range(500)]

    assert len(finding_lines(claim(exactly(tolerations=tolerations)))) == MAX_FINDINGS


def test_what_is_beyond_the_bound_is_allowed_with_a_warning() -> None:
    selectors = [cel(f'device.driver == "{number}"') for number in range(MAX_EXPRESSIONS)]
    broken_document = cel("device.")
    ways = [sub(f"a{number}", selectors=selectors[:32]) for number in range(8)]

    assert finding_lines(claim(first(*ways))) == ()
    assert finding_lines(claim(first(*ways), exactly("nic", selectors=[broken_document]))) == (
        "warning partiallyEvaluated spec.devices.requests",
    )


def test_a_claim_of_strangers_is_looked_at_as_far_as_it_may_reach() -> None:
    requests = [exactly(f"r{number}", tolerations=[{"value": "v"}]) for number in range(1000)]
    both = {"matchAttribute": "a.b/c", "distinctAttribute": "a.b/d"}

    lines = finding_lines(claim(*requests, constraints=[both] * 1000))

    assert lines.count("error tooManyRequests spec.devices.requests") == 1
    assert len([line for line in lines if "conflictingConstraintAttributes" in line]) == 33
    assert len([line for line in lines if "keylessToleration" in line]) == 33


def test_unknown_fields_are_looked_for_in_no_more_than_there_may_be() -> None:
    odd = {**cel("true"), "y": 1}
    rest = [cel("true")] * MAX_ENTRIES

    assert "unknownField" in str(finding_lines(device_class(selectors=[*rest[1:], odd])))
    assert "unknownField" not in str(finding_lines(device_class(selectors=[*rest, odd])))


def test_long_expressions_are_validated_until_there_is_no_room() -> None:
    long = cel("device.driver == 'a'" + " " * 10_000)

    assert finding_lines(claim(exactly(selectors=[long]))) == ()
    assert finding_lines(claim(exactly(selectors=[long] * 2))) == (
        "warning partiallyEvaluated spec.devices.requests",
    )


def test_an_old_version_is_named() -> None:
    old = {**WRONG, "apiVersion": "resource.k8s.io/v1beta1"}

    assert ("warning unservedVersion apiVersion",) == finding_lines(old)


def test_validation_changes_nothing() -> None:
    before = msgspec.json.encode(WRONG)

    findings_of(WRONG)

    assert before == msgspec.json.encode(WRONG)
