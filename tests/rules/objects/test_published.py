"""Attributes that claims and classes read and nobody publishes."""

from typing import NamedTuple

import pytest

from allocator.model.requests import Expression
from allocator.model.selectors import DeviceField, selector_chain
from kube.api.meta import convert
from kube.api.resource import ResourceSlice
from rules.context.context import Context
from rules.context.inventory import Inventory
from testing.documents import (
    EXAMPLE,
    Document,
    attributes,
    cel,
    claim,
    device,
    device_class,
    exactly,
    first,
    resource_slice,
    sub,
)
from testing.rule_cases import finding_lines, findings_of
from testing.rule_contexts import GPUS, context, named_class

_EXACT = "spec.devices.requests[0].exactly"
_FIRST = "spec.devices.requests[0].firstAvailable"
_LARGE = f'device.attributes["{EXAMPLE}"].model == "large"'
_HUGE = f'device.attributes["{EXAMPLE}"].model == "huge"'
_INDEX = f'device.attributes["{EXAMPLE}"].index == 1'
_INCOMPLETE: Document = {
    **GPUS,
    "spec": {**GPUS["spec"], "pool": {**GPUS["spec"]["pool"], "resourceSliceCount": 2}},
}


def asking_document(*expressions: str, **fields: object) -> Document:
    selectors = (
        {"selectors": [cel(expression) for expression in expressions]} if expressions else {}
    )
    return exactly(deviceClassName=EXAMPLE, **selectors, **fields)


def amount(key: str) -> Document:
    return {"requests": {key: "1Gi"}}


class Case(NamedTuple):
    name: str
    document: Document
    expected_findings: tuple[str, ...] = ()
    there: Context = context(GPUS)


CASES = (
    Case("a device that is there", claim(asking_document(_LARGE))),
    Case(
        "a device that is not there",
        claim(asking_document(_HUGE)),
        (f"warning selectorMatchesNothing {_EXACT}.selectors",),
    ),
    Case(
        "a device that is not there, where nothing is known",
        claim(asking_document(_HUGE)),
        (),
        context(),
    ),
    Case(
        "a class without devices",
        claim(exactly(deviceClassName="nobody.example.com")),
        (f"warning noDevices {_EXACT}.deviceClassName",),
    ),
    Case(
        "an attribute that some device has not",
        claim(asking_document(_INDEX)),
        (f"warning selectorFails {_EXACT}.selectors",),
    ),
    Case(
        "an attribute that some device has not, guarded",
        claim(asking_document(f'has(device.attributes["{EXAMPLE}"].index) && {_INDEX}')),
    ),
    Case(
        "a first alternative that is not there",
        claim(
            first(
                sub("huge", deviceClassName=EXAMPLE, selectors=[cel(_HUGE)]),
                sub("any", deviceClassName=EXAMPLE),
            )
        ),
        (),
        context(GPUS),
    ),
    Case(
        "no alternative that is there",
        claim(
            first(
                sub("huge", deviceClassName=EXAMPLE, selectors=[cel(_HUGE)]),
                sub("none", deviceClassName="nobody.example.com"),
            )
        ),
        (
            f"warning noDevices {_FIRST}[1].deviceClassName",
            f"warning selectorMatchesNothing {_FIRST}[0].selectors",
        ),
    ),
    Case("a capacity that is there", claim(asking_document(capacity=amount("memory")))),
    Case(
        "a capacity that is not there",
        claim(asking_document(capacity=amount("cores"))),
        (f"error capacityNotPublished {_EXACT}.capacity.requests[cores]",),
    ),
    Case(
        "a capacity in the words of selectors",
        claim(asking_document(capacity=amount(f"{EXAMPLE}/memory"))),
        (f"error capacityNotPublished {_EXACT}.capacity.requests[{EXAMPLE}/memory]",),
    ),
    Case(
        "a capacity that is not there, in a pool that is not whole",
        claim(asking_document(capacity=amount("cores"))),
        (f"warning capacityNotPublished {_EXACT}.capacity.requests[cores]",),
        context(_INCOMPLETE),
    ),
    Case(
        "a capacity that one alternative asks for in vain",
        claim(
            first(
                sub("a", deviceClassName=EXAMPLE, capacity=amount("cores")),
                sub("b", deviceClassName=EXAMPLE),
            )
        ),
        (f"warning capacityNotPublished {_FIRST}[0].capacity.requests[cores]",),
    ),
    Case(
        "a class that is not there",
        claim(exactly(deviceClassName="gpu.example.org")),
        (f"warning deviceClassMissing {_EXACT}.deviceClassName",),
        context(has_all_classes=True),
    ),
    Case(
        "a class that is not known, where not all are",
        claim(exactly(deviceClassName="gpu.example.org")),
    ),
    Case(
        "a class of devices that are not there",
        device_class(f'device.driver == "{EXAMPLE}" && {_HUGE}'),
        ("warning selectorMatchesNothing spec.selectors",),
    ),
    Case(
        "a class of a driver that is not there",
        device_class('device.driver == "nobody.example.com"'),
    ),
    Case("a class of devices that are there", device_class(f'device.driver == "{EXAMPLE}"')),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_validate(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.there)


def test_the_cure_of_a_capacity_is_how_slices_spell_it() -> None:
    document = claim(asking_document(capacity=amount(f"{EXAMPLE}/memory")))

    (finding,) = findings_of(document, context(GPUS))

    assert finding.fix == 'use "memory", as published'


@pytest.mark.parametrize(
    ("selector", "fix"),
    [
        (
            f'device.attributes["{EXAMPLE}"].modle == "large"',
            (
                f"no device has attribute {EXAMPLE}/modle; "
                f'did you mean device.attributes["{EXAMPLE}"].model?'
            ),
        ),
        (
            'device.attributes["gpu.exmaple.com"].model == "large"',
            (
                "no device has attribute gpu.exmaple.com/model; "
                f'did you mean device.attributes["{EXAMPLE}"].model?'
            ),
        ),
        (
            f'device.attributes["{EXAMPLE}"].memory == "40Gi"',
            (
                f"no device has attribute {EXAMPLE}/memory; "
                f'did you mean device.capacity["{EXAMPLE}"].memory?'
            ),
        ),
        (
            f'device.capacity["{EXAMPLE}"].vram.compareTo(quantity("1Gi")) >= 0',
            f'no device has capacity {EXAMPLE}/vram; known names: "memory"',
        ),
        (_INDEX, "check first that it exists: has(device.attributes[...].name) && ..."),
        (
            f'device.attributes["{EXAMPLE}"].model > 40',
            'compare values of one type: published are model: "large", "small"',
        ),
    ],
    ids=[
        "a misspelt attribute",
        "a misspelt domain",
        "a capacity read as an attribute",
        "a capacity unlike any other",
        "an attribute of some devices",
        "an attribute of another type",
    ],
)
def test_a_failing_selector_gets_the_name_that_is_published(selector: str, fix: str) -> None:
    findings = findings_of(claim(asking_document(selector)), context(GPUS))

    assert [("selectorFails", fix)] == [(finding.code.value, finding.fix) for finding in findings]


def test_a_guarded_misspelling_that_matches_nothing_gets_the_name_that_is_published() -> None:
    domain = f'device.attributes["{EXAMPLE}"]'
    document = claim(asking_document(f'has({domain}.modle) && {domain}.modle == "large"'))

    (finding,) = findings_of(document, context(GPUS))

    assert f"no device has attribute {EXAMPLE}/modle; did you mean {domain}.model?" == finding.fix


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (f'device.attributes["{EXAMPLE}/model"] == "x"', "attributes"),
        (f"device.attributes['{EXAMPLE}/model'].string == 'x'", "attributes"),
        (f'device.capacity["{EXAMPLE}/model"].compareTo(quantity("1")) > 0', "capacity"),
    ],
)
def test_a_qualified_name_in_a_selector_is_taken_apart(expression: str, written: str) -> None:
    findings = findings_of(claim(asking_document(expression)))

    assert [f'write device.{written}["{EXAMPLE}"].model'] == [finding.fix for finding in findings]


def test_two_classes_of_one_extended_resource() -> None:
    name = "example.com/gpu"
    document = device_class(f'device.driver == "{EXAMPLE}"', extendedResourceName=name)
    twin = named_class("twin.example.com", extendedResourceName=name)

    assert finding_lines(document, Context(classes={twin.metadata.name: twin})) == (
        "warning duplicateExtendedResource spec.extendedResourceName",
    )


def test_the_fix_of_selectors_that_match_nothing_has_the_published_values() -> None:
    large = f'device.capacity["{EXAMPLE}"].memory.compareTo(quantity("99Gi")) > 0'

    (finding,) = findings_of(claim(asking_document(_HUGE, large)), context(GPUS))

    assert finding.fix == 'published are memory: 40Gi, 80Gi; model: "large", "small"'


def test_the_values_of_an_attribute_that_identifies_devices_are_not_listed() -> None:
    numbered = [device(f"gpu-{number}", **attributes(model=f"m{number}")) for number in range(9)]

    (finding,) = findings_of(claim(asking_document(_HUGE)), context(resource_slice(*numbered)))

    assert finding.fix == ""


def test_published_values_follow_the_slices() -> None:
    inventory = Inventory()
    model = DeviceField(EXAMPLE, "model")
    (old, new) = (
        convert(resource_slice(device(**attributes(model=name))), ResourceSlice)
        for name in ("old", "new")
    )
    every_device = selector_chain(())
    inventory.replace_slice(None, old)
    assert inventory.published_values(model, every_device) == '"old"'

    inventory.replace_slice(old, new)

    assert inventory.published_values(model, every_device) == '"new"'


def test_values_are_those_of_the_class() -> None:
    """A device of another class of the driver does not help a claim of this one."""
    slice_ = resource_slice(
        device("whole", **attributes(kind="gpu", model="H100")),
        device("part", **attributes(kind="mig", model="A100")),
    )
    inventory = Inventory([convert(slice_, ResourceSlice)])
    whole = f'device.attributes["{EXAMPLE}"].kind == "gpu"'
    of_class = selector_chain((Expression(text=whole, origin=""),))

    assert inventory.published_values(DeviceField(EXAMPLE, "model"), of_class) == '"H100"'
