"""Keys that a cluster renamed, and HAMi's own defaults: the meaning of a pod there."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from findings.finding import Code
from kube.errors import ConfigError
from kube.quantity import Quantity
from process.model.settings import parse_settings
from process.profiles.profile_files import load_profiles
from quotas.resource_quotas.scopes import Quota, devices_of_class
from testing.builders import (
    HAMI,
    NAMESPACE,
    admit,
    container,
    derived_claims,
    devices_of,
    exactly,
    finding_texts,
    gpus,
    pod,
    record_of,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.model.choices import Choices, CorePolicy, HamiDefaults
from translation.pipeline.translate import Refused, Translated
from translation.preflight.checks.quotas import quota_amounts
from translation.reading.renamed_keys import renaming_fault
from webhook.settings import Settings

RENAMED = TranslationOptions(
    renamed_keys={
        "example.com/vgpu": "nvidia.com/gpu",
        "example.com/mem": "nvidia.com/gpumem",
    }
)


def test_a_pod_with_renamed_keys_gets_the_claims_of_the_keys() -> None:
    written = pod(container(amounts={"example.com/vgpu": 2, "example.com/mem": 3000}))
    usual = pod(gpus(2, mem=3000))

    translated = translation_of(written, options=RENAMED)

    assert [claim.spec for claim in translated.claims] == [
        claim.spec for claim in translation_of(usual).claims
    ]


def test_a_renamed_count_alone_is_hamis_whole_gpu() -> None:
    (claim,) = translation_of(
        pod(container(amounts={"example.com/vgpu": 1})), options=RENAMED
    ).claims

    assert devices_of(claim)["requests"] == [exactly(HAMI, cores="100")]


def test_the_key_that_was_renamed_stays_the_device_plugins() -> None:
    record = translation_of(pod(gpus(1)), options=RENAMED).record

    assert ["nvidia"] == [used.vocabulary for used in record.profiles]


def test_the_pod_loses_the_names_that_it_wrote_and_the_record_keeps_them() -> None:
    after, _ = admit(
        pod(container(amounts={"cpu": 1, "example.com/vgpu": 1, "example.com/mem": 3000})),
        options=RENAMED,
    )

    (recorded,) = record_of(after)["containers"]
    assert {"cpu": 1} == after["spec"]["containers"][0]["resources"]["limits"]
    assert {"example.com/mem": "3k", "example.com/vgpu": "1"} == recorded["limits"]


def test_claims_derive_from_the_record_alone() -> None:
    written = pod(container(amounts={"example.com/vgpu": 1, "example.com/mem": 3000}))
    translated = translation_of(written, options=RENAMED)

    derived = derived_claims(written, translated.annotation, translation_snapshot())

    assert translated.claims == derived


def test_a_second_apply_changes_nothing() -> None:
    after, _ = admit(pod(container(amounts={"example.com/vgpu": 1})), options=RENAMED)

    again, answer = admit(after, options=RENAMED)

    assert (after, ()) == (again, answer.operations)


def test_a_record_that_renames_other_keys_is_refused() -> None:
    after, _ = admit(pod(container(amounts={"example.com/vgpu": 1})), options=RENAMED)

    _, answer = admit(after)

    assert not answer.allowed


def test_findings_point_at_what_was_written() -> None:
    outcome = translation_outcome(
        pod(container(amounts={"example.com/vgpu": 1, "example.com/mem": "8Gi"})), options=RENAMED
    )

    assert [
        "error wrongUnit spec.containers[0].resources.limits[example.com/mem]"
    ] == finding_texts(outcome.findings)
    assert "8Gi is a number of bytes, and example.com/mem counts MiB" == outcome.findings[0].message
    (correction,) = outcome.findings[0].corrections
    assert "spec.containers[0].resources.limits[example.com/mem]" == str(correction.path)


def test_bytes_become_the_unit_of_the_key() -> None:
    options = TranslationOptions(choices=Choices(hami=HamiDefaults(memory_factor=1024)))

    (finding,) = translation_outcome(
        pod(container(amounts={COUNT: 1, MEMORY: "8Gi"})), options=options
    ).findings

    assert (
        "8Gi is a number of bytes, and nvidia.com/gpumem counts units of 1024 MiB"
        == finding.message
    )
    assert "write 8 for 8Gi" == finding.fix
    assert [Quantity(8)] == [correction.amount for correction in finding.corrections]


def test_bytes_that_are_no_whole_units_are_not_corrected() -> None:
    options = TranslationOptions(choices=Choices(hami=HamiDefaults(memory_factor=1024)))

    (finding,) = translation_outcome(
        pod(container(amounts={COUNT: 1, MEMORY: "512Mi"})), options=options
    ).findings

    assert ("wrongUnit", ()) == (finding.code, finding.corrections)


def test_both_names_of_a_key_are_refused() -> None:
    outcome = translation_outcome(
        pod(container(amounts={"example.com/mem": 1000, "nvidia.com/gpumem": 2000})),
        options=RENAMED,
    )

    (finding,) = outcome.findings
    assert "example.com/mem" in finding.message


def test_a_quota_counts_the_renamed_key() -> None:
    written = pod(container(amounts={"example.com/mem": 1000}))
    translated = translation_of(written, options=RENAMED)
    vocabularies = vocabularies_in_force(RENAMED, translation_snapshot().profiles)
    legacy = translated.record.legacy_pod()
    readings = {"hami": vocabularies["hami"].translate(legacy)}

    counted = [key for key, _ in quota_amounts(legacy, readings, vocabularies)]

    assert "example.com/mem" in counted


MIG, OWN_MIG = "nvidia.com/mig-1g.5gb", "example.com/mig"
OWN_MEMORY = "example.com/mem"


@pytest.mark.parametrize(
    ("lines", "amounts", "is_refused"),
    [
        # A line on devices of the class counts no memory.
        pytest.param(
            [f"requests.{OWN_MEMORY}", devices_of_class(HAMI)],
            {OWN_MEMORY: 1000},
            True,
            id="an amount",
        ),
        pytest.param(
            [f"requests.{OWN_MEMORY}", devices_of_class(HAMI)],
            {"nvidia.com/gpumem": 1000},
            True,
            id="an amount by its other name",
        ),
        pytest.param(
            [f"limits.{OWN_MEMORY}"],
            {"nvidia.com/gpumem": 1000},
            True,
            id="a limit by its other name",
        ),
        pytest.param([f"requests.{OWN_MIG}"], {MIG: 1}, True, id="MIG devices by their other name"),
        pytest.param(
            [f"requests.{OWN_MIG}"], {"nvidia.com/gpu": 1}, False, id="a whole GPU beside them"
        ),
    ],
)
def test_a_quota_on_a_renamed_key_is_about_the_devices_of_the_key(
    lines: list[str], amounts: Mapping[str, int], *, is_refused: bool
) -> None:
    """The first four pods were admitted, and the line limited nothing; the last one was denied."""
    snapshot = translation_snapshot(quotas={NAMESPACE: {"gpus": Quota(names=frozenset(lines))}})
    options = TranslationOptions(renamed_keys={**RENAMED.renamed_keys, OWN_MIG: MIG})

    outcome = translation_outcome(
        pod(container(amounts=amounts)), snapshot=snapshot, options=options
    )

    assert is_refused == isinstance(outcome, Refused)
    assert [Code.QUOTA_NOT_COUNTED] * is_refused == [entry.code for entry in outcome.findings]


@pytest.mark.parametrize(
    ("name", "own_name", "want"),
    [
        ("example.com/gpu", "nvidia.com/gpu", None),
        ("gpu", "nvidia.com/gpu", "is not the name of an extended resource"),
        ("kubernetes.io/gpu", "nvidia.com/gpu", "is not the name of an extended resource"),
        ("requests.kubernetes.io/gpu", "nvidia.com/gpu", "is not the name"),
        ('example.com/"]', "nvidia.com/gpu", "is not the name of an extended resource"),
        ("example.com/gpu", "example.com/other", "a key of no vocabulary"),
        ("volcano.sh/vgpu-number", "nvidia.com/gpu", "is a key of the vocabulary volcano"),
    ],
)
def test_renaming_fault(name: str, own_name: str, want: str | None) -> None:
    fault = renaming_fault(name, own_name)

    assert fault is None if want is None else want in (fault or "")


class Case(NamedTuple):
    name: str
    amounts: Mapping[str, int]
    defaults: HamiDefaults
    devices: int
    want: Mapping[str, str]


COUNT, MEMORY, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
# Source: Project-HAMi/HAMi 4707fb0, pkg/device/nvidia/device.go, GenerateResourceRequests.
CASES = (
    Case("default cores of a share", {COUNT: 1, MEMORY: 3000}, HamiDefaults(cores=25), 1,
         {"memory": "3000Mi", "cores": "25"}),
    Case("cores that are named", {COUNT: 1, MEMORY: 3000, CORES: 7}, HamiDefaults(cores=25), 1,
         {"memory": "3000Mi", "cores": "7"}),
    Case("a count alone takes all cores", {COUNT: 1}, HamiDefaults(cores=25), 1, {"cores": "100"}),
    Case("default memory of a count alone", {COUNT: 1}, HamiDefaults(memory=4096), 1,
         {"memory": "4Gi", "cores": "100"}),
    Case("default memory beside cores", {COUNT: 1, CORES: 7}, HamiDefaults(memory=4096), 1,
         {"memory": "4Gi", "cores": "7"}),
    Case("all memory by percentage", {COUNT: 1, PERCENT: 100}, HamiDefaults(memory=4096), 1,
         {"cores": "100"}),
    Case("memory in another unit", {COUNT: 1, MEMORY: 3}, HamiDefaults(memory_factor=1024), 1,
         {"memory": "3Gi", "cores": "0"}),
    Case("a default count", {MEMORY: 3000}, HamiDefaults(count=2), 2,
         {"memory": "3000Mi", "cores": "0"}),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hami_defaults(case: Case) -> None:
    options = TranslationOptions(default_gpu_owner="hami", choices=Choices(hami=case.defaults))

    translated = translation_of(pod(container(amounts=case.amounts)), options=options)

    (claim,) = translated.claims
    (request,) = devices_of(claim)["requests"]
    wanted = {name: Quantity(amount) for name, amount in case.want.items()}
    requested = request["exactly"]["capacity"]["requests"]
    assert case.devices == request["exactly"]["count"]
    assert wanted == {name: Quantity(amount) for name, amount in requested.items()}


def test_no_default_count_is_no_gpu() -> None:
    options = TranslationOptions(choices=Choices(hami=HamiDefaults(count=0)))

    translated = translation_of(pod(container(amounts={MEMORY: 3000})), options=options)

    assert () == translated.claims
    assert ["noDeviceRequested"] == [finding.code for finding in translated.findings]


def test_a_core_policy_is_a_variable_of_containers_with_gpus() -> None:
    options = TranslationOptions(choices=Choices(hami=HamiDefaults(core_policy=CorePolicy.FORCE)))

    after, _ = admit(pod(gpus(1, mem=3000), container("other")), options=options)

    variable = {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}
    first, second = after["spec"]["containers"]
    assert ([variable], None) == (first["env"], second.get("env"))


def test_defaults_are_recorded_for_hamis_pods_only() -> None:
    options = TranslationOptions(choices=Choices(hami=HamiDefaults(cores=25)))

    def choices(document: Document) -> object:
        return record_of(admit(document, options=options)[0]).get("choices")

    assert {"hami": {"cores": 25}} == choices(pod(gpus(1, mem=3000)))
    assert choices(pod(gpus(1))) is None


@pytest.mark.parametrize(
    ("translation", "want"),
    [
        (
            "renamedKeys: {a.example/b: nvidia.com/gpu, a.example/c: nvidia.com/gpu}",
            "both stand for",
        ),
        ("renamedKeys: {cpu: nvidia.com/gpu}", "is not the name of an extended resource"),
        ("hami: {defaultCores: 101}", "defaultCores"),
        ("hami: {defaultCore: 1}", "did you mean defaultCores?"),
        ("hami: {corePolicy: hard}", "corePolicy"),
    ],
)
def test_settings_that_make_no_sense_are_refused(translation: str, want: str) -> None:
    with pytest.raises(ConfigError, match=want.replace("?", r"\?")):
        parse_settings(
            f"translation: {{{translation}}}", "test", {}, kind=Settings, variables={}
        ).translation.checked_options(load_profiles())


def test_pods_with_defaults_of_a_record_stay_as_they_were() -> None:
    outcome = translation_outcome(pod(gpus(1, mem=3000)))

    assert isinstance(outcome, Translated)
    assert "choices" not in outcome.annotation
