"""Statements about other components: each has versions, a source and a date, and stands once."""

import re
from collections import Counter

import msgspec
import pytest

from cli.verbs.assess import text as assess_text
from translation.cluster.component_statements import (
    NATIVE_COSTS,
    STATEMENTS,
    Component,
    Topic,
    counts_template,
    statements_about,
)


def test_every_statement_has_its_versions_source_and_date() -> None:
    for statement in STATEMENTS:
        assert re.search(r"\d", statement.versions), statement.text
        assert len(statement.source) > 10, statement.text
        assert re.fullmatch(r"20\d\d-\d\d", statement.date), statement.text


def test_no_statement_stands_twice() -> None:
    keys = Counter(
        (entry.component, entry.topic, entry.versions, entry.provider, entry.text)
        for entry in STATEMENTS
    )

    assert [key for key, number in keys.items() if number > 1] == []


def test_statements_are_found_by_component_and_topic() -> None:
    providers = {
        entry.provider for entry in statements_about(Component.KARPENTER, Topic.SCALE_FROM_ZERO)
    }

    assert providers == {"", "AWS"}
    assert all(statements_about(component) for component in Component)
    assert set(statements_about(Component.KUEUE)) >= set(
        statements_about(Component.KUEUE, Topic.SHARES)
    )


def test_the_cluster_autoscaler_sees_claims_from_1_35_on() -> None:
    texts = {
        entry.versions: entry.text
        for entry in statements_about(Component.CLUSTER_AUTOSCALER, Topic.SEES_CLAIMS)
    }

    assert "sees claims always" in texts["1.35 and later"]
    assert "only with --enable-dynamic-resource-allocation" in texts["1.34"]


def test_volcano_allocates_claims_by_default_from_1_15_on() -> None:
    """A page sent readers to the table for Volcano and claims, and the table had names alone."""
    key = "predicate.DynamicResourceAllocationEnable"
    of_release = {
        minor: [
            entry.text
            for entry in statements_about(Component.VOLCANO, Topic.SEES_CLAIMS)
            if entry.holds_for(minor)
        ]
        for minor in (14, 15, 16)
    }

    assert all(len(texts) == 1 and key in texts[0] for texts in of_release.values())
    assert of_release[14][0].startswith("allocates no claim by default")
    assert of_release[15][0].startswith("allocates claims, unless")
    assert of_release[15] == of_release[16]


@pytest.mark.parametrize(
    ("versions", "minor", "holds"),
    [
        ("0.18 and later", 16, False),
        ("0.18 and later", 18, True),
        ("0.18 and later", 19, True),
        ("0.17 and earlier", 16, True),
        ("0.17 and earlier", 17, True),
        ("0.17 and earlier", 18, False),
        ("0.14 to 0.17", 13, False),
        ("0.14 to 0.17", 14, True),
        ("0.14 to 0.17", 16, True),
        ("0.14 to 0.17", 17, True),
        ("0.14 to 0.17", 18, False),
        ("1.34", 34, True),
        ("1.34", 35, False),
        ("released until 2026-08", 35, True),
    ],
)
def test_a_statement_holds_for_releases_of_its_versions(
    versions: str, minor: int, *, holds: bool
) -> None:
    statement = msgspec.structs.replace(STATEMENTS[0], versions=versions)

    assert holds is statement.holds_for(minor)


def test_each_autoscaler_has_statements_of_claims_and_of_extended_resources() -> None:
    topics = (Topic.SEES_CLAIMS, Topic.SCALE_FROM_ZERO, Topic.EXTENDED_RESOURCES)
    lacking = [
        (component, topic)
        for component in (Component.CLUSTER_AUTOSCALER, Component.KARPENTER)
        for topic in topics
        if not statements_about(component, topic)
    ]

    assert lacking == []


def test_kueue_reads_templates_of_jobs_and_pods_of_the_others() -> None:
    kinds = ("Job", "JobSet", "RayJob", "Deployment", "StatefulSet", "Pod", "LeaderWorkerSet", "")

    assert [kind for kind in kinds if counts_template(kind)] == ["Job", "JobSet", "RayJob"]


def test_assess_says_what_native_costs_in_the_words_of_the_table() -> None:
    autoscalers = {Component.CLUSTER_AUTOSCALER, Component.KARPENTER}
    assert {Component.KUBERNETES, *autoscalers, Component.KUEUE} == {
        statement.component for statement in NATIVE_COSTS
    }
    text = assess_text.native_costs(dict.fromkeys(Component))
    assert all(statement.sentence in text for statement in NATIVE_COSTS)
