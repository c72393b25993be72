"""Templates beside quotas on device keys; these count no claims."""

from typing import NamedTuple

import pytest

from findings.finding import Severity
from quotas.resource_quotas.scopes import Quota, Scope
from testing.builders import DRANET, HAMI, NAMESPACE, NVIDIA, translation_snapshot
from translation.cluster.snapshot import TemplateSummary, TranslationOptions, TranslationSnapshot
from translation.model.dimensions import AMOUNT_FIX, PERCENTAGE_FIX
from translation.preflight.quotas.uncounted_templates import find_uncounted_templates

GPU = "requests.nvidia.com/gpu"
MEMORY = "requests.nvidia.com/gpumem"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
DEVICES = ".deviceclass.resource.k8s.io/devices"
ALWAYS = (Scope(name="NotTerminating"),)


def counting(*hard: str, scopes: tuple[Scope, ...] = ()) -> Quota:
    return Quota(names=frozenset(hard), scopes=scopes)


def templates(**classes: str) -> dict[tuple[str, str], TemplateSummary]:
    return {
        (NAMESPACE, name): TemplateSummary(digest="", classes=frozenset({device_class}))
        for name, device_class in classes.items()
    }


def cluster(*quotas: Quota, **fields: object) -> TranslationSnapshot:
    named = {f"quota-{number}": quota for number, quota in enumerate(quotas)}
    defaults = {"quotas": {NAMESPACE: named}, "templates": templates(share=HAMI)}
    return translation_snapshot(**{**defaults, **fields})


class Case(NamedTuple):
    name: str
    snapshot: TranslationSnapshot
    want: tuple[str, ...] = ()
    """Quotas with a finding, and the key."""


CASES = (
    Case("a template of the driver", cluster(counting(GPU)), (f"quota-0 spec.hard[{GPU}]",)),
    Case("no template", cluster(counting(GPU), templates={})),
    Case("a template of another namespace", cluster(counting(GPU), templates={
        ("b", "share"): TemplateSummary(digest="", classes=frozenset({HAMI}))})),
    Case("a template of another driver", cluster(
        counting(GPU), templates=templates(nic="nic"), class_drivers={"nic": frozenset({DRANET})})),
    Case("a class that may select any device", cluster(
        counting(GPU), templates=templates(odd="odd"), class_drivers={"odd": frozenset()}),
        (f"quota-0 spec.hard[{GPU}]",)),
    Case("a class that does not exist", cluster(counting(GPU), templates=templates(odd="odd"))),
    Case("a quota on no device", cluster(counting("pods", "requests.cpu"))),
    Case("a quota on a key of another driver", cluster(counting("requests.rdma/hca_a"))),
    Case("the quota counts the class", cluster(counting(GPU, f"{HAMI}{DEVICES}"))),
    Case("the quota counts the class, and its memory is not counted", cluster(
        counting(MEMORY, f"{HAMI}{DEVICES}")), (f"quota-0 spec.hard[{MEMORY}]",)),
    Case("another one counts it by its implicit name", cluster(counting(GPU), counting(f"{IMPLICIT}{HAMI}"))),
    Case("a quota with a scope counts no claims", cluster(
        counting(GPU, f"{HAMI}{DEVICES}", scopes=ALWAYS)), (f"quota-0 spec.hard[{GPU}]",)),
    Case("the class maps the key, so that its claims count", cluster(
        counting(GPU), extended_resources={"nvidia.com/gpu": HAMI})),
    Case("two quotas", cluster(counting(GPU), counting("requests.koordinator.sh/gpu")),
         (f"quota-0 spec.hard[{GPU}]", "quota-1 spec.hard[requests.koordinator.sh/gpu]")),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_templates_that_a_quota_does_not_count(case: Case) -> None:
    findings = find_uncounted_templates(case.snapshot, TranslationOptions())

    assert case.want == tuple(
        f"{name} {finding.path}" for (_, name), finding in sorted(findings.items())
    )
    assert {Severity.WARNING} >= {finding.severity for finding in findings.values()}
    assert {NAMESPACE} >= {namespace for namespace, _ in findings}


def test_the_finding_names_the_templates_the_drivers_and_the_classes() -> None:
    several = templates(a=HAMI, b=NVIDIA, c=HAMI)

    (finding,) = find_uncounted_templates(
        cluster(counting(GPU), templates=several), TranslationOptions()
    ).values()

    assert finding.message == (
        "a pod that names ResourceClaimTemplate a (and 2 more) gets devices of "
        f"{NVIDIA}, {HAMI} that this does not count"
    )
    assert finding.fix.startswith(f"count {NVIDIA}{DEVICES}, {HAMI}{DEVICES}, too")


def test_memory_of_a_template_is_limited_by_no_number_of_devices() -> None:
    (finding,) = find_uncounted_templates(cluster(counting(MEMORY)), TranslationOptions()).values()

    assert finding.fix.startswith(f"{AMOUNT_FIX}; a template goes")


def test_a_percentage_of_memory_has_no_conversion() -> None:
    quota = counting(f"{MEMORY}-percentage")

    (finding,) = find_uncounted_templates(cluster(quota), TranslationOptions()).values()

    assert finding.fix.startswith(f"{PERCENTAGE_FIX}; a template goes")
