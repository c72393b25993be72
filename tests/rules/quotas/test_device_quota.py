"""DeviceQuotas beside the published devices, and the namespaces that there are."""

from typing import NamedTuple

import pytest

from rules.context.context import Context
from testing.device_quotas import COSTLY_SELECTOR
from testing.documents import Document, attributes, cel, device, device_quota, limit, resource_slice
from testing.rule_cases import finding_lines, findings_of
from testing.rule_contexts import GPUS, context

_LIMIT = "spec.limits[0]"
_NAMESPACES = {"a": {"team": "vision"}, "b": {}}

MANY = resource_slice(
    *(
        device(f"gpu-{index}", **attributes(index=index), capacity={"memory": {"value": "1Gi"}})
        for index in range(210)
    )
)


def shared(**policy: Document) -> Document:
    """A slice with a shared card of 80Gi."""
    capacity = {"memory": {"value": "80Gi", **policy}}
    return resource_slice(device("gpu", allowMultipleAllocations=True, capacity=capacity))


SHARES = shared(requestPolicy={"default": "80Gi", "validRange": {"min": "1Mi", "max": "80Gi"}})
VALUES = shared(requestPolicy={"default": "10Gi", "validValues": ["10Gi", "20Gi"]})
ANY = shared()


class Case(NamedTuple):
    name: str
    document: Document
    expected_findings: tuple[str, ...] = ()
    there: Context = context(GPUS, has_all_classes=True, namespaces=_NAMESPACES)


CASES = (
    Case("a capacity that is published", device_quota(limit())),
    Case(
        "a capacity that nobody has",
        device_quota(limit(capacity="memori")),
        (f"warning limitCountsNothing {_LIMIT}.capacity",),
    ),
    Case("a capacity where nothing is known", device_quota(limit(capacity="x")), (), Context()),
    Case(
        "a counter that nobody consumes",
        device_quota(limit(counter="slices")),
        (f"warning limitCountsNothing {_LIMIT}.counter",),
    ),
    Case(
        "a driver that publishes nothing",
        device_quota(limit(driver="gpu.exampel.com")),
        (f"warning limitCountsNothing {_LIMIT}.driver",),
    ),
    Case("a class", device_quota(limit(deviceClassNames=["gpu.example.com"]))),
    Case(
        "a class that does not exist",
        device_quota(limit(deviceClassNames=["gpu.exampel.com"])),
        (f"warning limitCountsNothing {_LIMIT}.deviceClassNames",),
    ),
    Case(
        "a selector of no device",
        device_quota(limit(selectors=[cel('device.attributes["gpu.example.com"].model == "x"')])),
        (f"warning limitCountsNothing {_LIMIT}.selectors",),
    ),
    Case(
        "a number of MiB for bytes",
        device_quota(limit("81920")),
        (f"warning limitBelowLeast {_LIMIT}.max",),
        context(SHARES),
    ),
    Case("the least of a share", device_quota(limit("1Mi")), (), context(SHARES)),
    Case("nothing", device_quota(limit("0")), (), context(SHARES)),
    Case("less than a card, of shares without a least", device_quota(limit("1")), (), context(ANY)),
    Case(
        "less than a card that is not shared",
        device_quota(limit("1Ki")),
        (f"warning limitBelowLeast {_LIMIT}.max",),
        context(MANY),
    ),
    Case(
        "less than the first of valid values",
        device_quota(limit("9Gi")),
        (f"warning limitBelowLeast {_LIMIT}.max",),
        context(VALUES),
    ),
    Case(
        "a selector that errors on a device",
        device_quota(limit(selectors=[cel('device.attributes["gpu.example.com"].index == 1')])),
        (f"warning selectorFails {_LIMIT}.selectors",),
    ),
    Case(
        "a selector that takes too many steps for all devices",
        device_quota(limit(selectors=[cel(COSTLY_SELECTOR)])),
        (f"warning selectorFails {_LIMIT}.selectors",),
        context(MANY),
    ),
    Case(
        "a label that a namespace has",
        device_quota(limit(), namespaceSelector={"matchLabels": {"team": "vision"}}),
    ),
    Case(
        "a label that no namespace has",
        device_quota(limit(), namespaceSelector={"matchLabels": {"team": "audio"}}),
        ("warning selectsNoNamespace spec.namespaceSelector",),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_quota_beside_the_cluster(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.there)


def test_the_closest_name_is_suggested() -> None:
    (finding,) = findings_of(device_quota(limit(capacity="memori")), CASES[0].there)

    assert finding.fix == 'did you mean "memory"?'


@pytest.mark.parametrize(
    ("most", "fix"),
    [
        ("81920", "write 80Gi for 81920 MiB, or 0 for nothing"),
        ("500m", "write 1Mi or more, or 0 for nothing"),
    ],
)
def test_what_may_be_meant_by_a_limit_that_is_too_small_is_said(most: str, fix: str) -> None:
    (finding,) = findings_of(device_quota(limit(most)), context(SHARES))

    assert finding.fix == fix
    assert finding.detail.startswith(f"{most} is less than 1Mi, the least memory that a device")
