"""Laws of the rules: they never raise, with anything in an object, and say the same every time."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findings.finding import Severity
from rules.context.context import Context
from rules.context.rule import KINDS, Category
from rules.engine.engine import MAX_FINDINGS
from rules.engine.registry import RULES
from testing.documents import Document, claim, exactly, resource_slice
from testing.mutated_objects import mutated_document
from testing.rule_cases import finding_lines, findings_of
from testing.rule_contexts import GPUS, context, with_templates

pytestmark = pytest.mark.property

CONTEXTS = (Context(), context(GPUS, has_all_classes=True), with_templates(gpu=("gpu",)))


@given(document=mutated_document(), known_context=st.sampled_from(CONTEXTS))
def test_whatever_can_be_read_is_validated_alike_each_time(
    document: Document, known_context: Context
) -> None:
    before = msgspec.json.encode(document)
    try:
        first = findings_of(document, known_context)
    except msgspec.ValidationError:
        return

    assert first == findings_of(document, known_context)
    assert before == msgspec.json.encode(document)
    assert len(first) <= MAX_FINDINGS
    for finding in first:
        assert finding.message.isprintable()
        assert finding.fix.isprintable()
        assert str(finding.path).isprintable()


@given(document=mutated_document())
def test_errors_come_first_and_only_of_rules_that_may_deny(document: Document) -> None:
    try:
        first = findings_of(document)
    except msgspec.ValidationError:
        return
    may_deny = {
        rule.code
        for rule in RULES
        if rule.category in {Category.INVALID, Category.INFEASIBLE}
        and document["kind"] in KINDS[rule.scope]
    }

    severities = [finding.severity for finding in first]
    assert severities == sorted(severities, key=list(Severity).index)
    assert {finding.code for finding in first if finding.is_error} <= may_deny


@given(order=st.permutations(range(4)))
def test_the_order_of_slices_does_not_matter(order: list[int]) -> None:
    slices = [resource_slice(name=f"s-{number}", count=4) for number in range(4)]
    context_ = context(*(slices[number] for number in order))

    document = resource_slice(name="s-0", count=5)
    assert finding_lines(document, context_) == finding_lines(document, context(*slices))


@given(names=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6))
def test_a_name_is_reported_once_however_often_it_stands(names: list[str]) -> None:
    lines = finding_lines(claim(*(exactly(name) for name in names)))

    doubled = {name for name in names if names.count(name) > 1}
    assert len([line for line in lines if "duplicateName" in line]) == len(doubled)
