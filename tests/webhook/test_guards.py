"""What a pod's own words say beside its keys: variables that ask the device plugin for more."""

from typing import NamedTuple

import pytest

from tests.builders import Document, container, gpus, legacy, told
from webhook.guards import environment


class Case(NamedTuple):
    name: str
    container: Document
    want: tuple[str, ...] = ()


def with_variable(name: str, value: str) -> Document:
    return gpus(1, fields={"env": [{"name": name, "value": value}]})


CASES = (
    Case(
        "all devices opened by hand",
        with_variable("NVIDIA_VISIBLE_DEVICES", "all"),
        ("warning opensDevices spec.containers[0].env",),
    ),
    Case(
        "all devices opened by hand beside a share",
        gpus(1, mem=1, fields={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        ("warning opensDevices spec.containers[0].env",),
    ),
    Case("no device opened by hand", with_variable("NVIDIA_VISIBLE_DEVICES", "void")),
    Case(
        "GPUDirect storage is the plugin's to bring",
        with_variable("NVIDIA_GDS", "enabled"),
        ("warning notInjected spec.containers[0].env",),
    ),
    Case("a feature that is off", with_variable("NVIDIA_GDS", "disabled")),
    Case("capabilities stay as they are", with_variable("NVIDIA_DRIVER_CAPABILITIES", "all")),
    Case(
        "a container without devices opens them without us",
        container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_environment(case: Case) -> None:
    assert case.want == tuple(told(environment(legacy(case.container))))
