"""Knowledge that is told of changes says what knowledge made anew would say."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.core.model import Features
from allocator.pod_claims import Name
from kube.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceClaimTemplateSpec
from tests.allocator.builders import (
    allocated,
    claim,
    device_class,
    devices,
    match,
    node,
    policy,
    request,
    result,
    rule,
    slice_of,
)
from webhook.knowledge import Around, Knowledge
from webhook.picture import CROWD, Changes, Kind
from webhook.rules.enforcement import Configured, Enforcement
from webhook.rules.judge import Judged, judge
from webhook.rules.mark import Mark, Seen

NODES = [f"node-{number}" for number in range(3)]
ASKED = (
    claim(request(count=2)),
    claim(request(count=3)),
    claim(request("a"), request("b", count=2), constraints=[match("example.com/root")]),
    claim(request("req-0", 'device.driver == "nobody"')),
)


def everything() -> dict[Kind, dict[Name, Any]]:
    return {
        Kind.NODE: {("", name): node(name) for name in NODES},
        Kind.SLICE: {
            ("", f"{name}-slice"): slice_of(*devices("gpu-0", "gpu-1"), pool=name) for name in NODES
        },
        Kind.CLASS: {("", "gpu"): device_class()},
    }


def knowing(changes: Changes) -> Knowledge:
    made = Knowledge(Features())
    made.apply(changes)
    return made


def told(
    knowledge: Knowledge,
    asked: Iterable[ResourceClaim] = ASKED,
    around: Around = Around(),  # noqa: B008 - a frozen value
) -> list[str]:
    """Return severity, code and message of all that is said of claims."""
    context = knowledge.context(around)
    return [
        f"{one.severity} {one.code} {one.message}"
        for each in asked
        for one in judge(Judged(view=each, namespace="default"), context)
    ]


def codes(knowledge: Knowledge, *asked: ResourceClaim, around: Around = Around()) -> list[str]:  # noqa: B008
    """Return severity and code of all that is said of claims."""
    return [" ".join(each.split(" ")[:2]) for each in told(knowledge, asked, around)]


def changed(rng: Random, name: str) -> Changes:
    """Return one change."""
    kind = rng.choice([Kind.NODE, Kind.SLICE, Kind.CLAIM, Kind.CLASS, Kind.POLICY])
    if kind is Kind.NODE:
        return {kind: {("", name): rng.choice([None, node(name, zone="a")])}}
    if kind is Kind.SLICE:
        some = devices(*rng.sample(["gpu-0", "gpu-1", "gpu-2"], rng.randrange(1, 4)))
        new = slice_of(*some, pool=name, generation=rng.randrange(1, 3), count=rng.randrange(1, 3))
        return {kind: {("", f"{name}-slice"): rng.choice([None, new, new])}}
    if kind is Kind.CLAIM:
        held = allocated(result(rng.choice(["gpu-0", "gpu-1"]), pool=name), name=name)
        return {kind: {("default", name): rng.choice([None, claim(name=name), held])}}
    if kind is Kind.CLASS:
        other = device_class("gpu", 'device.driver != "other"')
        return {kind: {("", "gpu"): rng.choice([None, device_class(), other])}}
    apart = policy(rule("all", groups=("a",)))
    return {kind: {("", "policy"): rng.choice([None, apart])}}


@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_where_knowledge_made_anew_begins(seed: int) -> None:
    rng, kept = Random(seed), everything()
    knowledge = knowing(kept)
    for _ in range(10):
        changes = changed(rng, rng.choice(NODES))
        knowledge.apply(changes)
        for kind, each in changes.items():
            kept.setdefault(kind, {}).update(each)
        anew = {
            kind: {key: value for key, value in each.items() if value is not None}
            for kind, each in kept.items()
        }

        assert told(knowing(anew)) == told(knowledge)
        assert knowing(anew).stocks() == knowledge.stocks()


def test_what_no_node_has_is_an_error_and_what_is_in_use_a_warning() -> None:
    knowledge = knowing(everything())
    assert codes(knowledge, *ASKED[:2]) == ["error moreThanAnyNode"]

    held = {("default", name): allocated(result("gpu-0", pool=name), name=name) for name in NODES}
    knowledge.apply({Kind.CLAIM: held})
    assert codes(knowledge, ASKED[0]) == ["warning doesNotFitNow"]

    knowledge.apply({Kind.CLAIM: {("default", NODES[0]): None}})
    assert codes(knowledge, ASKED[0]) == []


def test_a_crowd_of_nodes_counts_as_one_by_one() -> None:
    knowledge = knowing(everything())

    crowd = {("", f"n{each}"): node(f"n{each}") for each in range(CROWD + 1)}
    large = slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), pool="n7")
    knowledge.apply({Kind.NODE: crowd, Kind.SLICE: {("", "n7-slice"): large}})

    assert codes(knowledge, *ASKED[:2]) == []


def test_less_than_the_mark_or_somebody_who_adds_nodes_is_no_proof() -> None:
    knowledge = knowing(everything())
    (driver,) = knowledge.stocks()["gpu"]
    more = Mark(classes={"gpu": {driver: Seen(nodes=9)}})

    for around in (
        Around(mark=more),
        Around(growers={"Karpenter"}),
        Around(configured=Configured(cluster=Enforcement.WARN)),
    ):
        assert codes(knowledge, ASKED[1], around=around) == ["warning moreThanAnyNode"]
    equal = Around(mark=Mark(classes=knowledge.stocks()))
    assert codes(knowledge, ASKED[1], around=equal) == ["error moreThanAnyNode"]


def test_a_class_that_maps_an_extended_resource_is_known() -> None:
    mapped = device_class()
    spec = replace(mapped.spec, extended_resource_name="example.com/gpu")
    knowledge = knowing({Kind.CLASS: {("", "gpu"): replace(mapped, spec=spec)}})

    assert knowledge.context().extended_resources["example.com/gpu"] == "gpu"


def test_what_objects_ask_for_is_known_as_long_as_they_ask() -> None:
    wanted = claim(request(), name="a")
    made = ResourceClaimTemplate(
        metadata=wanted.metadata, spec=ResourceClaimTemplateSpec(spec=wanted.spec)
    )
    place = ("default", "a")
    knowledge = knowing({Kind.CLAIM: {place: wanted}, Kind.TEMPLATE: {place: made}})
    context = knowledge.context()
    assert {place: wanted.spec.devices} == context.claims == context.templates
    assert [wanted] == list(knowledge.stored(Kind.CLAIM))

    knowledge.apply({Kind.CLAIM: {place: allocated(result(), name="a")}})
    context = knowledge.context()
    assert context.claims == {}
    assert set(context.allocated) == {place}

    knowledge.apply({Kind.CLAIM: {place: None}, Kind.TEMPLATE: {place: None}})
    context = knowledge.context()
    assert not context.templates
    assert not context.allocated
