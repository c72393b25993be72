"""Variables of a pod that ask the device plugin for more than its keys."""

from typing import NamedTuple

import pytest

from testing.builders import (
    NAMESPACE,
    container,
    finding_texts,
    gpus,
    legacy_view,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.preflight.checks.environment import check_environment
from translation.preflight.model.inputs import PreflightInput


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
        ("warning devicesExposedByEnv spec.containers[0].env",),
    ),
    Case(
        "all devices opened by hand beside a share",
        gpus(1, mem=1, fields={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        ("warning devicesExposedByEnv spec.containers[0].env",),
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
    inputs = PreflightInput(
        legacy=legacy_view(case.container),
        namespace=NAMESPACE,
        snapshot=translation_snapshot(),
        options=TranslationOptions(),
    )

    assert case.want == tuple(finding_texts(check_environment(inputs)))
