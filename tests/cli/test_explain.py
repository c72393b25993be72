"""`drawbridge explain`: every code has a cause and a fix, and its example yields it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allocator.compatibility import lint_findings
from allocator.model.outcome import Reason
from allocator.pods.claims import CLAIM_NOT_FOUND, TEMPLATE_NOT_FOUND
from cli.verbs.explain.explanation import Explanation, explanations
from findings.finding import Code
from rules.engine.registry import RULES
from testing.command import ROOT, drawbridge
from tools.code_examples import EXAMPLES, REASON_EXAMPLES
from tools.code_explanations import FIXES, REASONS, manifest_of

REASONS_WITH_EXAMPLE = frozenset({*REASON_EXAMPLES, "poolIncomplete"})


def test_every_code_is_explained() -> None:
    codes = {code.value for code in (*Code, *lint_findings.Code)}
    reasons = {reason.value for reason in Reason} | {CLAIM_NOT_FOUND, TEMPLATE_NOT_FOUND}

    assert set(explanations()) == codes | reasons
    assert set(REASONS) == reasons - codes
    assert [entry.code for entry in explanations().values() if not entry.cause] == []
    assert set(FIXES) == codes - {rule.code.value for rule in RULES}


def test_every_code_of_a_finding_has_an_example() -> None:
    without_example = {e.code for e in explanations().values() if e.example is None}
    assert without_example == set(REASONS) - REASONS_WITH_EXAMPLE


@pytest.mark.parametrize(
    "explanation",
    [
        entry
        for entry in explanations().values()
        if entry.example is not None
        and not entry.example.component  # Tests of the webhook and of the audit have these.
        and entry.code not in REASONS
    ],
    ids=lambda entry: entry.code,
)
def test_an_example_yields_its_code(explanation: Explanation, tmp_path: Path) -> None:
    example = explanation.example
    assert example is not None
    (tmp_path / "example.yaml").write_text(_whole_manifest(explanation))
    (tmp_path / "settings.yaml").write_text(example.settings)
    command = example.command or _check_with(example.snapshot)

    result = drawbridge(*(_path(word, tmp_path) for word in command.split()), "-o", "json")

    assert result.exit_code in (0, 1), result.stderr
    codes = set(_codes(json.loads(result.stdout)))
    assert explanation.code in codes
    if explanation.code in EXAMPLES:
        assert codes == {explanation.code, *EXAMPLES[explanation.code].also}


@pytest.mark.parametrize(
    "explanation",
    [
        entry
        for entry in explanations().values()
        if entry.example is not None
        and not (entry.example.command or entry.example.component)
        and entry.code not in REASONS
    ],
    ids=lambda entry: entry.code,
)
def test_an_example_of_an_error_has_no_other_error(
    explanation: Explanation, tmp_path: Path
) -> None:
    example = explanation.example
    assert example is not None
    if explanation.code in EXAMPLES and EXAMPLES[explanation.code].also:
        return  # They come together.
    if explanation.code == "exceedsDeviceQuota":
        return  # The same pod is too large for any node, too.
    (tmp_path / "example.yaml").write_text(_whole_manifest(explanation))
    (tmp_path / "settings.yaml").write_text(example.settings)
    command = _check_with(example.snapshot)

    result = drawbridge(*(_path(word, tmp_path) for word in command.split()), "-o", "json")

    findings = json.loads(result.stdout)["findings"]
    errors = {
        (entry["object"], entry["code"]) for entry in findings if entry["severity"] == "error"
    }
    own = {place for place, code in errors if code == explanation.code}
    assert {code for place, code in errors if place in own} <= {explanation.code}


def _whole_manifest(explanation: Explanation) -> str:
    """The manifest of an example, with the lines that the explanation leaves out."""
    example = explanation.example
    assert example is not None
    if not example.left_out:
        return example.manifest
    text = manifest_of(EXAMPLES[explanation.code])
    assert text.startswith(example.manifest)
    assert text.count("\n") == example.manifest.count("\n") + example.left_out
    return text


def _check_with(snapshot: str) -> str:
    return f"check -f example.yaml --snapshot {snapshot}" if snapshot else "check -f example.yaml"


def _path(word: str, folder: Path) -> str:
    """The file of the example, or of the repository, that a word of a command names."""
    if word in {"example.yaml", "settings.yaml"}:
        return str(folder / word)
    return str(ROOT / word) if word.startswith("examples/") else word


def _codes(answer: Any) -> Iterator[str]:
    """The codes of findings and blockers anywhere in an answer."""
    if isinstance(answer, dict):
        for field in ("findings", "blockers"):
            yield from (entry["code"] for entry in answer.get(field, ()))
    if isinstance(answer, dict | list):
        for below in answer.values() if isinstance(answer, dict) else answer:
            yield from _codes(below)


@pytest.mark.parametrize("code", sorted(REASONS_WITH_EXAMPLE))
def test_the_example_of_a_reason_has_it_in_a_simulation(code: str) -> None:
    example = explanations()[code].example
    assert example is not None

    result = drawbridge(
        "simulate", "-f", "-", "--snapshot", ROOT / example.snapshot, stdin=example.manifest
    )

    assert f"[{code}]" in result.stdout


def test_a_code_is_explained_as_text() -> None:
    result = drawbridge("explain", "wrongUnit")

    assert result.exit_code == 0
    assert result.stdout.startswith(
        "wrongUnit\n\nCause: The amount is written in bytes where the key counts MiB.\nFix: Write"
    )
    assert "Example: examples/mistakes/bytes-for-mebibytes.yaml" in result.stdout


def test_an_example_has_its_command_and_its_settings() -> None:
    result = drawbridge("explain", "keptBesideClaims")

    command = (
        "check -f example.yaml --snapshot examples/cluster/cluster.yaml --settings settings.yaml"
    )
    assert f"\nCommand: drawbridge {command}\n\n# settings.yaml\ntranslation:\n" in result.stdout
    assert "\n\n# example.yaml\napiVersion: v1\nkind: Pod\n" in result.stdout


def test_a_reason_is_explained() -> None:
    result = drawbridge("explain", "insufficientResource")

    assert result.exit_code == 0
    assert "Cause: The node has too little CPU, memory" in result.stdout
    assert "or has none of it at all" in result.stdout
    assert "where it has none at all, select another node or install" in result.stdout


def test_a_reason_without_an_example_says_so() -> None:
    assert drawbridge("explain", "taint").stdout.endswith("Example: none yet\n")


def test_a_long_example_is_shown_in_part() -> None:
    lines = drawbridge("explain", "tooLarge").stdout.splitlines()

    assert lines[-7:-5] == ["  - name: main-1", "    image: registry.k8s.io/pause:3.10"]
    assert lines[-1] == "# and 378 lines more, in the same way"


def test_an_example_for_the_webhook_has_its_answer_and_settings() -> None:
    text = drawbridge("explain", "gangNotAdopted").stdout

    assert "\nReported by the webhook alone: `kubectl create --dry-run=server` of the last" in text
    assert "\nAnswer: Warning: drawbridge[gangNotAdopted]: metadata.annotations[" in text
    assert "\n\n# settings.yaml\nvalidation:\n  adoptGangs: false\n\n# example.yaml\n" in text


def test_a_code_is_explained_as_json() -> None:
    answer = json.loads(drawbridge("explain", "tooManyDevices", "-o", "json").stdout)
    (explanation,) = answer["explanations"]

    assert answer["kind"] == "ExplainReport"
    assert explanation["code"] == "tooManyDevices"
    assert explanation["rules"][0]["kinds"] == ["ResourceClaim", "ResourceClaimTemplate"]


def test_without_a_code_all_are_listed() -> None:
    lines = drawbridge("explain").stdout.splitlines()

    assert [line.split()[0] for line in lines] == list(explanations())


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("wrongunits", "no code 'wrongunits'; did you mean wrongUnit?"),
        ("\x1b[31m", "no code '\\x1b[31m'; drawbridge explain lists them"),
    ],
)
def test_an_unknown_code_is_a_wrong_call(code: str, answer: str) -> None:
    result = drawbridge("explain", code)

    assert result.exit_code == 2
    assert answer in result.stderr
