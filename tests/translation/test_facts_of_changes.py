"""Facts that are kept up to date change by change, against the same facts gathered at once."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from testing.builders import (
    HAMI,
    NVIDIA,
    device_at_root,
    driver_slice,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    profiles,
)
from translation.profiles.device_facts import PublishedFacts, SliceSummary, facts_by_driver, summary

NODES = 4
SLICES = 2
STEPS = 200


def known_summary(
    driver: str, *devices: dict[str, Any], pool: str, generation: int = 1
) -> SliceSummary:
    slice_summary = summary(
        driver_slice(driver, *devices, pool=pool, generation=generation), profiles()
    )
    assert slice_summary is not None
    return slice_summary


def changes(random: Random) -> Iterator[tuple[str, SliceSummary | None]]:
    """Yield names of slices with their new summaries, None for one that is gone."""
    for _ in range(STEPS):
        pool = f"node-{random.randrange(NODES)}"
        name = f"{pool}-{random.randrange(SLICES)}"
        devices = [
            random.choice(
                [
                    nvidia_gpu(random.choice(["40Gi", "80Gi"])),
                    mig_device(profile=random.choice(["1g.5gb", "2g.10gb"])),
                    device_at_root(random.choice(["pci0", "pci1"]), nvidia_gpu()),
                ]
            )
            for _ in range(random.randrange(4))
        ]
        if random.random() < 0.2:
            yield name, None
        elif random.random() < 0.2:
            yield name, known_summary(HAMI, hami_gpu(), pool=pool)
        else:
            generation = random.randrange(1, 3)
            yield name, known_summary(NVIDIA, *devices, pool=pool, generation=generation)


@pytest.mark.parametrize("seed", range(40))
def test_facts_after_each_change_are_those_of_all_slices(seed: int) -> None:
    published, summaries = PublishedFacts(), dict[str, SliceSummary]()
    random = Random(seed)
    for name, new in changes(random):
        published.replace(name, summaries.pop(name, None), new)
        if new is not None:
            summaries[name] = new
        if random.random() < 0.7:  # Several changes may come between two reviews.
            assert published.by_driver() == facts_by_driver(summaries.values())


def test_facts_are_the_same_object_while_they_are_equal() -> None:
    published = PublishedFacts()
    old = known_summary(NVIDIA, nvidia_gpu(), pool="node-0")
    published.replace("node-0", None, old)
    before = published.by_driver()
    published.replace("node-1", None, known_summary(NVIDIA, nvidia_gpu(), pool="node-1"))
    new = known_summary(NVIDIA, nvidia_gpu(), pool="node-0", generation=2)
    published.replace("node-0", old, new)
    assert published.by_driver() is before


def test_a_driver_whose_last_slice_is_gone_has_no_facts() -> None:
    published = PublishedFacts()
    slice_summary = known_summary(NVIDIA, nvidia_gpu(), pool="node-0")
    published.replace("node-0", None, slice_summary)
    assert published.by_driver().keys() == {NVIDIA}
    published.replace("node-0", slice_summary, None)
    assert published.by_driver() == {}
