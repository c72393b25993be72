"""A picture that is told of changes is the picture that would be made anew."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allocator.cluster import Cluster
from allocator.core.model import Features
from allocator.core.problem import Rules
from allocator.pod_claims import Name
from kube.api.meta import ObjectMeta, view
from kube.api.resource import DeviceTaintRule
from tests.allocator.builders import (
    DRIVER,
    allocated,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)
from webhook.picture import CROWD, Changes, Kind, Picture

NODES = [f"node-{number}" for number in range(4)]
ASKED = claim(request(count=2))


def taint_rule(driver: str = DRIVER) -> DeviceTaintRule:
    spec = {"deviceSelector": {"driver": driver}, "taint": {"key": "ill", "effect": "NoSchedule"}}
    return view({"metadata": {"name": "rule"}, "spec": spec}, DeviceTaintRule)


def verdicts(cluster: Cluster) -> dict[str, str]:
    found = cluster.verdicts(cluster.ask([ASKED]))
    return {node: type(outcome).__name__ for node, outcome, _ in found}


def everything() -> dict[Kind, dict[Name, Any]]:
    return {
        Kind.NODE: {("", name): node(name) for name in NODES},
        Kind.SLICE: {("", name): slice_of(*devices("gpu-0", "gpu-1"), pool=name) for name in NODES},
        Kind.CLASS: {("", "gpu"): device_class()},
    }


def made(changes: Changes) -> Picture:
    picture = Picture(Features())
    picture.apply(changes)
    return picture


@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_where_a_new_picture_begins(seed: int) -> None:
    rng, kept = Random(seed), everything()
    picture = made(kept)
    for _ in range(12):
        name = rng.choice(NODES)
        changes: dict[Kind, dict[Name, Any]] = {}
        kind = rng.choice([Kind.NODE, Kind.SLICE, Kind.CLAIM, Kind.TAINT_RULE])
        if kind is Kind.NODE:
            changes[kind] = {("", name): rng.choice([None, node(name, zone="a")])}
        elif kind is Kind.SLICE:
            some = devices(*rng.sample(["gpu-0", "gpu-1", "gpu-2"], rng.randrange(1, 4)))
            changes[kind] = {("", name): rng.choice([None, slice_of(*some, pool=name)])}
        elif kind is Kind.CLAIM:
            held = allocated(result(rng.choice(["gpu-0", "gpu-1"]), pool=name), name=name)
            changes[kind] = {("default", name): rng.choice([None, claim(name=name), held])}
        else:
            changes[kind] = {("", "rule"): rng.choice([None, taint_rule(), taint_rule("other")])}
        picture.apply(changes)
        for changed, each in changes.items():
            kept.setdefault(changed, {}).update(each)
        anew = {
            what: {key: value for key, value in each.items() if value is not None}
            for what, each in kept.items()
        }

        assert verdicts(made(anew).cluster) == verdicts(picture.cluster)


def test_a_class_that_comes_later_counts() -> None:
    picture = made({**everything(), Kind.CLASS: {}})

    picture.apply({Kind.CLASS: {("", "gpu"): device_class()}})

    assert dict.fromkeys(NODES, "Plan") == verdicts(picture.cluster)


def test_crowds_are_taken_in_together() -> None:
    picture = made(everything())
    before = picture.cluster
    picture.apply({Kind.NODE: {("", "node-0"): node("node-0", zone="b")}})
    assert picture.cluster is before

    crowd: Mapping[Name, Any] = {("", f"n{each}"): node(f"n{each}") for each in range(CROWD + 1)}
    picture.apply({Kind.NODE: crowd})

    assert picture.cluster is not before
    assert len(picture.cluster.nodes) == len(NODES) + CROWD + 1


def test_no_changes_are_no_new_version() -> None:
    picture = made(everything())
    version = picture.version

    picture.apply({})
    assert picture.version == version

    picture.apply({Kind.TEMPLATE: {("a", "b"): None}})
    assert picture.version > version


def test_a_class_maps_an_extended_resource() -> None:
    mapped = device_class()
    spec = view({"extendedResourceName": "example.com/gpu"}, type(mapped.spec))
    named = type(mapped)(metadata=ObjectMeta(name="gpu"), spec=spec)

    picture = made({Kind.CLASS: {("", "gpu"): named}})

    assert picture.extended_resources["example.com/gpu"] == "gpu"


def test_a_gate_that_is_off_lets_rules_do_nothing() -> None:
    picture = Picture(Features(device_taint_rules=False))

    picture.apply({**everything(), Kind.TAINT_RULE: {("", "rule"): taint_rule()}})

    assert dict.fromkeys(NODES, "Plan") == verdicts(picture.cluster)


def test_rules_of_the_allocator_are_those_of_the_gates() -> None:
    features = Features(consumable_capacity=False)

    assert Rules(features=features) == Picture(features).cluster.rules
