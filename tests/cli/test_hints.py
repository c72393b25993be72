"""Hints about keys that people copy from examples of older versions."""

import pytest

from answers.cluster.hints import hints
from kube.api.resource import DeviceRequest
from testing.allocation.builders import alternative, claim, device_class, first_of, request

DRIVER = "gpu.example.com"

WRONG = (
    (f'attributes["{DRIVER}"].model == "A"', "write device.attributes[...], there is no variable"),
    (f"capacity['{DRIVER}'].memory > 1", "write device.capacity[...], there is no variable"),
    (f'device.attributes["{DRIVER}"].model.string == "A"', "leave out .string: an attribute is"),
    (f'device.attributes["{DRIVER}"].index.int == 1', "leave out .int: an attribute is its value"),
    (f'device.attributes["{DRIVER}"]["up"].bool', "leave out .bool: an attribute is its value"),
    ('device.attributes["model"] == "A"', "takes the domain first, usually the driver"),
    ("device.attributes.model == 'A'", 'write device.attributes["DOMAIN"].model'),
)  # fmt: skip
RIGHT = (
    f'device.attributes["{DRIVER}"].model == "A"',
    f'device.attributes["{DRIVER}"].string == "A"',
    f'device.attributes["{DRIVER}"].name.startsWith("attributes[")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("1Gi")) >= 0',
    f'"model" in device.attributes["{DRIVER}"]',
)


@pytest.mark.parametrize(("expression", "hint"), WRONG)
def test_hints(expression: str, hint: str) -> None:
    in_class = hints({"gpu": device_class("gpu", expression)})
    in_claim = hints({}, (claim(request("r", expression)),))
    in_alternative = hints({}, (claim(first_of("r", alternative("s", expression))),))

    assert in_class[0].startswith("DeviceClass gpu: ")
    assert hint in in_class[0]
    assert hint in in_claim[0]
    assert hint in in_alternative[0]


@pytest.mark.parametrize("expression", RIGHT)
def test_nothing_to_say_of_what_is_right(expression: str) -> None:
    assert hints({"gpu": device_class("gpu", expression)}) == []


def test_a_request_of_older_versions_lacks_exactly() -> None:
    (hint,) = hints({}, (claim(DeviceRequest(name="gpu")),))

    assert hint.startswith("ResourceClaim default/claim-0, request gpu: since v1beta2")
