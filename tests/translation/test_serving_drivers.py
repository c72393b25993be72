"""Drivers of a legacy resource name."""

import pytest

from testing.builders import profiles
from translation.cluster.serving_drivers import serving_drivers
from translation.cluster.snapshot import TranslationOptions

HAMI = "hami-core-gpu.project-hami.io"
OURS = "gpu.drawbridge.internal"


@pytest.mark.parametrize(
    ("want", "resource"),
    [
        ({"gpu.nvidia.com", HAMI, OURS}, "nvidia.com/gpu"),
        ({"gpu.nvidia.com", OURS}, "nvidia.com/mig-1g.10gb"),
        ({"dra.net"}, "rdma/hca_shared_devices_a"),
        (set(), "cpu"),
    ],
)
def test_serving_drivers(want: set[str], resource: str) -> None:
    assert want == serving_drivers(resource, TranslationOptions(), profiles())


def test_a_chosen_profile_serves_the_names_of_its_vocabulary() -> None:
    options = TranslationOptions(
        profiles={"nvidia": "gpu.example.com"}, fixed=frozenset({"nvidia"})
    )

    assert {"gpu.example.com"} == serving_drivers("nvidia.com/gpu", options, profiles())


def test_a_chosen_driver_serves_its_key_alone() -> None:
    options = TranslationOptions(drivers={"nvidia.com/gpu": HAMI})

    assert {HAMI} == serving_drivers("nvidia.com/gpu", options, profiles())
