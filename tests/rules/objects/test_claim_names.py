"""Names of claims that the API server rejects: the messages, and fields that it drops."""

import pytest

from allocator.model.feature_gates import Features
from rules.context.context import Context
from rules.model import formats
from testing.documents import Document, claim, config, exactly, first, sub, template
from testing.rule_cases import finding_lines, findings_of


@pytest.mark.parametrize(
    ("document", "message", "fix"),
    [
        (
            claim(exactly("GPU_0")),
            '"GPU_0" must be a DNS label: lowercase letters, digits and "-", at most 63 characters',
            'use "gpu-0"',
        ),
        (
            claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/numa-node"}]),
            f'the name after the slash of "gpu.example.com/numa-node" must be {formats.AN_IDENTIFIER}',
            "use the name of an attribute that the driver publishes",
        ),
        (
            claim(exactly(count=2), constraints=[{"matchAttribute": "/numa"}]),
            'the domain of "/numa" must be a DNS subdomain of at most 63 characters',
            "",
        ),
        (
            claim(exactly(), config=[{}]),
            "is required",
            "name the driver and its parameters, or remove the configuration",
        ),
        (
            claim(exactly(), config=[config({"a": 1}, "gpu", "gpu", driver="a.b")]),
            'duplicate name "gpu"',
            "remove it",
        ),
    ],
)
def test_a_finding_says_what_would_be_right(document: Document, message: str, fix: str) -> None:
    (finding,) = findings_of(document)

    assert (finding.message, finding.fix) == (message, fix)


@pytest.mark.parametrize("document", [claim(exactly()), template(exactly())])
def test_the_name_of_the_object_is_validated(document: Document) -> None:
    renamed_document = {**document, "metadata": {"name": "GPU"}}

    assert finding_lines(renamed_document) == ("error invalidName metadata.name",)


def test_a_domain_in_upper_case_is_that_of_a_driver_and_not_of_an_attribute() -> None:
    """Kubernetes before 1.37 accepts both, so this is no row of the table for real API servers."""
    driver, attribute = "GPU.example.com", {"matchAttribute": "GPU.example.com/numa"}
    document = claim(
        exactly(count=2), constraints=[attribute], config=[config({"a": 1}, driver=driver)]
    )

    assert finding_lines(document) == (
        "error invalidName spec.devices.constraints[0].matchAttribute",
    )


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202e", "x" * 100_000])
def test_names_of_strangers_stay_on_one_line(name: str) -> None:
    document = claim(
        exactly(name, deviceClassName=name, tolerations=[{"key": name, "value": name}]),
        first(sub(name), name="nic"),
        constraints=[{"requests": ["nic", "nic"], "matchAttribute": f"{name}/{name}"}],
        config=[config({"a": 1}, driver=name)],
    )
    findings = findings_of(document)

    assert {finding.code for finding in findings} >= {"invalidName", "invalidToleration"}
    for finding in findings:
        assert finding.message.isprintable()
        assert finding.fix.isprintable()
        assert str(finding.path).isprintable()
        assert len(finding.message) < 300


def test_names_in_fields_that_a_disabled_gate_drops_are_not_validated() -> None:
    tolerations = [{"key": "a b", "operator": "Exists"}]
    document = claim(
        exactly(count=2, tolerations=tolerations), constraints=[{"distinctAttribute": "a.b/c-d"}]
    )
    features = Features(device_taints=False, consumable_capacity=False)

    assert str(finding_lines(document)).count("error invalidName") == 2
    assert "invalidName" not in str(finding_lines(document, Context(features=features)))


def test_a_list_of_strangers_is_reported_once() -> None:
    document = claim(
        exactly(count=2),
        constraints=[{"matchAttribute": "a.b/c"}] * 10_000,
        config=[config({"a": 1}, driver="a.b")] * 10_000,
    )

    assert finding_lines(document) == (
        "error invalidList spec.devices.constraints",
        "error invalidList spec.devices.config",
    )
