"""The answer as SARIF: the requirements of the format, as far as we use it.

The types below are those parts of the official schema (sarif-schema-2.1.0.json) that we write, with
what it requires, strict about everything else. The whole schema was asked by hand.
"""

from typing import Annotated, Any, Literal

import msgspec

from answers.manifests.check import CheckedFinding, CheckReport
from cli.verbs.check import sarif
from findings.field_path import FieldPath
from findings.finding import Code, warning
from kube.manifests.dump import dump_yaml
from testing import documents
from testing import rule_cases as cases
from testing.command import drawbridge

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Uri = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9/:._~%-]+$")]
HelpUri = Annotated[
    str, msgspec.Meta(pattern=r"^https://[a-z.]+/[0-9.]+/docs/reference/codes\.html#[a-z]+$")
]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Text(Strict):
    text: str


class SarifRule(Strict):
    id: str
    help_uri: HelpUri | None = None
    help: Text | None = None


class Driver(Strict):
    name: str
    semantic_version: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+")]
    rules: list[SarifRule]
    information_uri: Uri | None = None


class Tool(Strict):
    driver: Driver


class ArtifactLocation(Strict):
    uri: Uri


class Region(Strict):
    start_line: Positive


class PhysicalLocation(Strict):
    artifact_location: ArtifactLocation
    region: Region


class LogicalLocation(Strict):
    fully_qualified_name: str


class Location(Strict):
    logical_locations: list[LogicalLocation]
    physical_location: PhysicalLocation | None = None


class SarifResult(Strict):
    rule_id: str
    rule_index: NonNegative
    level: Literal["none", "note", "warning", "error"]
    message: Text
    locations: list[Location]
    partial_fingerprints: dict[str, str]


class Run(Strict):
    tool: Tool
    column_kind: Literal["utf16CodeUnits", "unicodeCodePoints"]
    results: list[SarifResult]


class Log(Strict):
    schema: Uri = msgspec.field(name="$schema")
    version: Literal["2.1.0"]
    runs: Annotated[list[Run], msgspec.Meta(min_length=1)]


def log(*inputs: dict[str, Any]) -> Log:
    result = drawbridge("check", "-f", "-", "-o", "sarif", stdin=dump_yaml(inputs))
    assert result.exit_code in (0, 1), result.stderr
    return msgspec.json.decode(result.stdout, type=Log)


def test_all_findings_are_valid_sarif() -> None:
    rows = (*cases.CLAIMS, *cases.SELECTORS, *cases.CONFIGS, *cases.PODS)
    documents = [
        {**case.document, "metadata": {**case.document["metadata"], "name": f"validated-{number}"}}
        for number, case in enumerate(rows)
    ]

    (run,) = log(*documents).runs

    warning_ids = [result.rule_id for result in run.results if result.level != "note"]
    assert warning_ids == [
        expected_line.split()[1] for case in rows for expected_line in case.expected_lines
    ]
    for result in run.results:
        assert run.tool.driver.rules[result.rule_index].id == result.rule_id


def test_a_result_says_where_it_is() -> None:
    (run,) = log(
        documents.claim(documents.exactly()), documents.claim(documents.exactly(count=33))
    ).runs
    (result,) = run.results
    (location,) = result.locations

    assert location.physical_location is not None
    assert location.physical_location.artifact_location.uri == "%3Cstdin%3E"
    assert location.physical_location.region.start_line == 18
    assert location.logical_locations[0].fully_qualified_name == (
        "ResourceClaim/default/validated: spec.devices.requests"
    )
    assert result.level == "error"


def test_each_rule_stands_once_with_its_cure() -> None:
    wrong = documents.claim(documents.exactly(count=33))
    (run,) = log(wrong, {**wrong, "metadata": {"name": "other"}}).runs

    (rule,) = run.tool.driver.rules
    assert rule.id == Code.TOO_MANY_DEVICES
    assert rule.help is not None
    assert len({result.partial_fingerprints["objectAndPath/v1"] for result in run.results}) == 2


def test_links_lead_to_the_published_site_and_nowhere_without_one() -> None:
    finding = warning(Code.CLAMPED, FieldPath(), "lowered")
    entry = CheckedFinding(object="Pod/default/a", finding=finding)
    report = CheckReport(objects=1, places=(), findings=(entry,), shown=(entry,))

    without = msgspec.json.encode(sarif.log(report, "1.2.3"))
    published = msgspec.json.decode(
        msgspec.json.encode(sarif.log(report, "1.2.3", "https://docs.example.com")), type=Log
    )

    assert b'Uri"' not in without
    (run,) = published.runs
    assert run.tool.driver.information_uri == "https://docs.example.com"
    assert run.tool.driver.rules[0].help_uri == (
        "https://docs.example.com/1.2.3/docs/reference/codes.html#clamped"
    )
