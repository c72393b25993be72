"""`drawbridge check`: the findings that are printed, their forms, and the exit status."""

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from answers.manifests.check import CheckedFinding, CheckReport
from cli.__main__ import main
from cli.verbs.check.text import ALIKE, format_report
from findings.field_path import FieldPath
from findings.finding import Code, error, warning
from kube.manifests.dump import dump_yaml
from testing import documents
from testing.command import CLUSTER, EXAMPLES, drawbridge
from testing.questions import check

Document = Mapping[str, Any]

RIGHT = documents.claim(documents.exactly())
WRONG = documents.claim(documents.exactly(count=33))
DOUBTFUL = documents.claim(
    documents.exactly(tolerations=[{"operator": "Exists", "effect": "None"}])
)


def named(document: Document, name: str, namespace: str) -> Document:
    return {**document, "metadata": {"name": name, "namespace": namespace}}


class Printed(NamedTuple):
    """Options, the codes of the findings that are printed, and the exit status."""

    options: tuple[str, ...]
    codes: list[str]
    exit_code: int


PRINTED = (
    Printed((), ["tooManyDevices", "noopToleration"], 1),
    Printed(("--severity", "error"), ["tooManyDevices"], 1),
    Printed(("--ignore", "tooManyDevices"), ["noopToleration"], 0),
    Printed(("--ignore", "tooManyDevices", "--fail-on", "warning"), ["noopToleration"], 1),
    Printed(("--ignore", "tooManyDevices", "--ignore", "noopToleration"), [], 0),
    Printed(("--ignore", "tooManyDevices", "--severity", "error", "--fail-on", "warning"), [], 1),
)


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: " ".join(case.options) or "no options")
def test_which_findings_are_printed(case: Printed) -> None:
    result = check(WRONG, DOUBTFUL, options=(*case.options, "-o", "json"))

    findings = msgspec.json.decode(result.stdout)["findings"]
    assert (case.codes, case.exit_code) == (
        [finding["code"] for finding in findings],
        result.exit_code,
    )


def test_what_is_ignored_is_counted() -> None:
    (totals,) = check(WRONG, options=("--ignore", "tooManyDevices")).stdout.splitlines()

    assert totals == "1 object checked: 0 errors, 0 warnings; 1 ignored"


def test_a_code_that_does_not_exist_is_a_wrong_call() -> None:
    result = check(WRONG, options=("--ignore", "toManyDevices"))

    assert (2, "") == (result.exit_code, result.stdout)
    assert (
        "there is no finding 'toManyDevices'. Did you mean tooManyDevices or noDevices?"
        in result.stderr
    )


def test_equal_findings_on_many_objects_are_printed_once() -> None:
    many = [named(WRONG, f"c-{number}", f"team-{number % 2}") for number in range(ALIKE)]

    first, others, totals, _ = check(*many).stdout.splitlines()

    assert "ResourceClaim/team-0/c-0: spec.devices.requests: 33 devices" in first
    assert others == (
        f"  and {ALIKE - 1} more objects like it in 2 namespaces,"
        f" the last of them ResourceClaim/team-1/c-{ALIKE - 1}"
    )
    assert totals == f"{ALIKE} objects checked: {ALIKE} errors, 0 warnings"


def test_equal_findings_on_a_few_objects_have_a_line_each() -> None:
    few = [named(WRONG, f"c-{number}", "team") for number in range(ALIKE - 1)]

    lines = check(*few).stdout.splitlines()
    assert len([line for line in lines if "error: " in line]) == ALIKE - 1


def test_max_bounds_the_lines_and_says_how_many_are_left_out() -> None:
    lines = check(WRONG, DOUBTFUL, options=("--max", "1")).stdout.splitlines()

    assert lines[1:] == [
        "and 1 more, not shown because of --max",
        "2 objects checked: 1 error, 1 warning",
        "more: drawbridge explain tooManyDevices",
    ]


@pytest.mark.parametrize(
    ("codes", "line"),
    [
        ("", "more: drawbridge explain tooManyDevices"),
        (
            "https://docs/c.html",
            "more: drawbridge explain tooManyDevices, or https://docs/c.html#toomanydevices",
        ),
    ],
)
def test_the_last_line_leads_to_the_first_code_that_stops_something(codes: str, line: str) -> None:
    findings = [
        warning(Code.CLAMPED, FieldPath.of("a"), "x"),
        error(Code.TOO_MANY_DEVICES, FieldPath.of("a"), "y"),
        error(Code.NEGATIVE, FieldPath.of("a"), "z"),
    ]

    def lines_of(count: int) -> list[str]:
        shown = tuple(
            CheckedFinding(object="Pod/a/b", finding=finding) for finding in findings[:count]
        )
        report = CheckReport(objects=1, places=(), findings=shown, shown=shown)
        return list(format_report(report, codes=codes))

    assert line == lines_of(3)[-1]
    assert "1 object checked: 0 errors, 1 warning" == lines_of(1)[-1]


def test_yaml_is_the_json() -> None:
    as_json, as_yaml = (
        check(WRONG, DOUBTFUL, options=("-o", output)).stdout for output in ("json", "yaml")
    )

    assert msgspec.json.decode(as_json) == yaml.load(as_yaml, Loader=yaml.CSafeLoader)


def test_a_finding_has_the_place_of_its_object() -> None:
    document = msgspec.json.decode(check(RIGHT, WRONG, options=("-o", "json")).stdout)

    (finding,) = document["findings"]
    assert (finding["file"], finding["line"]) == ("<stdin>", 12)


def test_names_are_those_of_objects_with_findings() -> None:
    documents = (RIGHT, named(WRONG, "a", "team"), named(DOUBTFUL, "b", "team"))

    assert check(*documents, options=("-o", "name")).stdout.splitlines() == [
        "ResourceClaim/team/a",
        "ResourceClaim/team/b",
    ]
    worst = check(*documents, options=("-o", "name", "--severity", "error"))
    assert worst.stdout.splitlines() == ["ResourceClaim/team/a"]


@pytest.mark.parametrize(("fail_on", "failures"), [("error", ["a"]), ("warning", ["a", "b"])])
def test_junit_has_a_test_per_object(fail_on: str, failures: list[str]) -> None:
    documents = (named(RIGHT, "r", "t"), named(WRONG, "a", "t"), named(DOUBTFUL, "b", "t"))

    text = check(*documents, options=("-o", "junit", "--fail-on", fail_on)).stdout

    suite = ET.fromstring(text)
    tests = {test.attrib["name"].split("/")[-1]: test for test in suite}
    assert list(tests) == ["r", "a", "b"]
    assert failures == [name for name, test in tests.items() if test.find("failure") is not None]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", str(len(failures)))
    failure = tests["a"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "tooManyDevices"
    assert "split it into several claims" in (failure.text or "")


def test_github_has_a_command_per_finding() -> None:
    objects = (named(WRONG, "a", "t"), named(DOUBTFUL, "b", "t"))

    lines = check(*objects, options=("-o", "github")).stdout.splitlines()

    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning"]
    assert lines[0].startswith(
        "::error title=tooManyDevices,file=<stdin>,line=8::ResourceClaim/t/a "
    )


def test_no_name_is_a_command_of_github() -> None:
    name = "a\n::error ::b%0A,c:d"

    lines = check(named(WRONG, name, "t"), options=("-o", "github")).stdout.splitlines()

    # The name is a mistake itself.
    assert {line.partition(",")[0] for line in lines} == {
        "::error title=invalidName",
        "::error title=tooManyDevices",
    }
    assert any("ResourceClaim/t/a\\n::error ::b%250A,c:d spec" in line for line in lines)


def test_junit_has_no_control_characters() -> None:
    text = check(named(WRONG, "a\x1b[2J<", "t"), options=("-o", "junit")).stdout

    assert ET.fromstring(text)[0].attrib["name"] == "ResourceClaim/t/a\\x1b[2J<"


def test_the_line_is_that_of_the_field(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    shutil.copy(EXAMPLES / "mistakes" / "bytes-for-mebibytes.yaml", file)
    call = ("check", "-f", file, "--snapshot", CLUSTER)
    line = file.read_text().splitlines().index("        nvidia.com/gpumem: 8Gi") + 1

    github = drawbridge(*call, "-o", "github").stdout
    log = json.loads(drawbridge(*call, "-o", "sarif").stdout)

    assert f"line={line}::" in github
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
    assert f"{file}:{line}: error" in drawbridge(*call).stdout


def test_standard_input_has_the_name_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\nspec:\n  devices: another file\n")

    line = dump_yaml([WRONG]).splitlines().index("    requests:") + 1

    def printed(form: str) -> str:
        return check(WRONG, options=("-o", form, "--stdin-name", str(file))).stdout

    assert printed("text").startswith(f"{file}:{line}: error: ")
    assert f"file={file},line={line}::" in printed("github")
    assert f'file="{file}"' in printed("junit")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "compressed"])
@pytest.mark.parametrize("name", [(), ("--stdin-name", "pod.yaml")], ids=["unnamed", "named"])
def test_a_field_of_standard_input_has_the_line_that_it_has_in_the_file(
    pack: Callable[[bytes], bytes], name: tuple[str, ...]
) -> None:
    file = EXAMPLES / "mistakes" / "bytes-for-mebibytes.yaml"
    text = file.read_bytes()
    line = text.decode().splitlines().index("        nvidia.com/gpumem: 8Gi") + 1
    call = ["check", "-f", "-", "--snapshot", str(CLUSTER), *name, "-o", "github"]

    result = CliRunner().invoke(main, call, input=pack(text), catch_exceptions=False)

    assert f"line={line}::" in result.stdout
