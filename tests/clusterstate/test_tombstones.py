"""The memory of devices that are in use and no longer published."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.pods.claims import Name
from clusterstate.cluster_cache import MAX_BATCH, ClusterCache
from clusterstate.kinds import Changes, Kind
from kube.api.meta import convert
from kube.api.resource import Device, DeviceTaintRule, ResourceClaim, ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    attribute_of,
    claim,
    device,
    device_class,
    node,
    policy,
    request,
    result,
    rule,
    slice_of,
)

NODE = "node-0"
ASKED = claim(request())
ONE_MODE = policy(
    *(rule(mode, f'{attribute_of("mode")} == "{mode}"', groups=mode) for mode in "ab")
)
FITS, DOES_NOT_FIT = "Plan", "DoesNotFit"


def gpu(name: str, mode: str = "a") -> Device:
    return device(name, attributes={"mode": mode})


def published(*devices: Device, **fields: Any) -> ResourceSlice:
    return slice_of(*devices, pool=NODE, **{"node": NODE, **fields})


def user(name: str = "gpu-0") -> ResourceClaim:
    return allocated_claim(result(name, pool=NODE), name="user")


def slices(**changed: ResourceSlice | None) -> Changes:
    return {Kind.SLICE: {("", name): slice_ for name, slice_ in changed.items()}}


def claims(**changed: ResourceClaim | None) -> Changes:
    return {Kind.CLAIM: {("default", name): claim_ for name, claim_ in changed.items()}}


def cache_with(*changes: Changes, **options: Any) -> ClusterCache:
    """A cache of a node, after changes, under a policy that keeps devices in use to one mode."""
    cache = ClusterCache(Features(), **options)
    begin: Changes = {
        Kind.NODE: {("", NODE): node(NODE)},
        Kind.CLASS: {("", "gpu"): device_class()},
        Kind.POLICY: {("", "policy"): ONE_MODE},
    }
    for batch in (begin, *changes):
        cache.apply(batch)
    return cache


def verdict(cluster: Cluster) -> str:
    return type(cluster.verdict(cluster.resolve([ASKED]), NODE)).__name__


def remembered(cache: ClusterCache) -> list[str]:
    assert cache.cluster.options.tombstones is cache.tombstones
    return sorted(device_id.device for device_id in cache.tombstones)


BEGIN = (slices(one=published(gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))), claims(user=user()))


@pytest.mark.parametrize(("mode", "want"), [("a", FITS), ("b", DOES_NOT_FIT)])
def test_a_device_that_vanishes_counts_as_it_was_last_seen(mode: str, want: str) -> None:
    cache = cache_with(*BEGIN, slices(one=published(gpu("gpu-1", mode))))

    assert verdict(cache.cluster) == want


def test_of_a_device_that_was_never_seen_nothing_is_known() -> None:
    cache = cache_with(claims(user=user()), slices(one=published(gpu("gpu-1"))))

    assert verdict(cache.cluster) == DOES_NOT_FIT
    assert remembered(cache) == []


def test_nodes_whose_vanished_devices_differ_get_verdicts_of_their_own() -> None:
    modes = {"node-0": "a", "node-1": "b"}
    cache = cache_with(
        {Kind.NODE: {("", "node-1"): node("node-1")}},
        *(
            slices(**{pool: slice_of(gpu("gpu-0", mode), gpu("gpu-1"), pool=pool, node=pool)})
            for pool, mode in modes.items()
        ),
        claims(**{pool: allocated_claim(result("gpu-0", pool=pool), name=pool) for pool in modes}),
        slices(**{pool: slice_of(gpu("gpu-1"), pool=pool, node=pool) for pool in modes}),
    )

    assert verdicts(cache.cluster) == {"node-0": FITS, "node-1": DOES_NOT_FIT}


ONLY_1 = published(gpu("gpu-1"))


@pytest.mark.parametrize(
    ("want", "changes"),
    [
        pytest.param(["gpu-0"], (slices(one=ONLY_1),), id="in use"),
        pytest.param(["gpu-0"], (slices(one=None),), id="the slice is gone"),
        pytest.param(
            ["gpu-0"], (slices(one=None, two=ONLY_1),), id="the slice has another name then"
        ),
        pytest.param(
            [], (slices(one=ONLY_1), slices(one=published(gpu("gpu-0", "b")))), id="published again"
        ),
        pytest.param([], (slices(one=ONLY_1), claims(user=None)), id="not in use any more"),
        pytest.param(
            [], (slices(one=ONLY_1), claims(user=user("gpu-1"))), id="its claim has another device"
        ),
        pytest.param(
            ["gpu-0"],
            (
                slices(one=ONLY_1),
                claims(user=allocated_claim(result("gpu-0", pool=NODE, request="r"), name="user")),
            ),
            id="counted anew for the same claim",
        ),
        pytest.param(
            ["gpu-0"],
            (slices(one=ONLY_1), claims(user=None, other=user())),
            id="from one claim to another at once",
        ),
        pytest.param(
            ["gpu-0", "gpu-2"],
            ({**slices(one=ONLY_1), **claims(other=user("gpu-2"))},),
            id="in use from the moment when it vanishes",
        ),
        pytest.param(
            ["gpu-0"],
            (slices(two=published(gpu("gpu-1"), generation=2)),),
            id="only a slice of an older generation has it",
        ),
        pytest.param(
            ["gpu-0", "gpu-2"],
            (
                slices(two=published(gpu("gpu-1"), generation=2)),
                claims(other=user("gpu-2")),
            ),
            id="allocated when only a slice of an older generation has it",
        ),
        pytest.param(
            ["gpu-0"],
            (slices(two=published(gpu("gpu-1"), generation=2)), slices(one=None)),
            id="a slice of an older generation had it, and is gone",
        ),
        pytest.param(
            [],
            (
                slices(two=published(gpu("gpu-1"), generation=2, count=2)),
                slices(one=published(gpu("gpu-0"), generation=2, count=2)),
            ),
            id="its slice follows to the next generation",
        ),
        pytest.param(
            ["gpu-0"],
            (
                slices(one=ONLY_1),
                slices(**{f"slice-{number}": ONLY_1 for number in range(MAX_BATCH + 1)}),
            ),
            id="the view is built anew",
        ),
        pytest.param(
            ["gpu-0"],
            (slices(one=None, **{f"slice-{number}": ONLY_1 for number in range(MAX_BATCH)}),),
            id="it vanishes with a crowd of changes",
        ),
    ],
)
def test_what_is_remembered(want: list[str], changes: tuple[Changes, ...]) -> None:
    assert remembered(cache_with(*BEGIN, *changes)) == want


def test_the_newest_generation_is_remembered() -> None:
    cache = cache_with(
        *BEGIN,
        slices(two=published(gpu("gpu-0", "b"), generation=2)),
        slices(two=published(gpu("gpu-1", "b"), generation=3)),
    )

    assert verdict(cache.cluster) == FITS, "not the mode a of the slice of generation 1"


def test_a_view_that_is_built_beside_another_remembers_the_same() -> None:
    """Devices included that vanish with a change that waits for its part."""
    cache = cache_with(
        slices(one=published(gpu("gpu-0"), gpu("gpu-1")), two=slice_of(gpu("x"), pool="p")),
        claims(user=user()),
        slices(two=None, one=ONLY_1),
        max_part=1,
    )
    assert cache.is_behind
    assert remembered(cache) == []

    other = cache.fork({})
    other.apply({})

    assert remembered(other) == ["gpu-0"]
    assert verdict(other.cluster) == FITS


def test_a_tombstone_has_no_other_device() -> None:
    cache = cache_with(*BEGIN, slices(one=ONLY_1))

    (tombstone,) = cache.tombstones.values()

    assert [gpu("gpu-0")] == list(tombstone.slice.spec.devices or ())


# --- the law --------------------------------------------------------------------------------------

POOLS = ("node-0", "node-1", "shared")
DEVICES = ("gpu-0", "gpu-1", "gpu-2")


def random_slice(rng: Random, pool: str) -> ResourceSlice:
    devices_ = [gpu(name, rng.choice("ab")) for name in rng.sample(DEVICES, rng.randrange(4))]
    generation = rng.randrange(1, 4)
    where: dict[str, Any] = {"all_nodes": True} if pool == "shared" else {"node": pool}
    return slice_of(
        *devices_,
        name=rng.choice(("x", "y")),
        pool=pool,
        generation=generation,
        count=2 if generation == 2 else 1,  # All slices of a generation say the same.
        **where,
    )


def random_changes(rng: Random) -> dict[Kind, dict[Name, Any]]:
    changes: dict[Kind, dict[Name, Any]] = {}
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice((Kind.SLICE, Kind.SLICE, Kind.CLAIM, Kind.CLAIM, Kind.TAINT_RULE))
        pool = rng.choice(POOLS)
        if kind is Kind.SLICE:
            slice_ = random_slice(rng, pool)
            key, new = ("", f"{pool}-{slice_.metadata.name}"), rng.choice([None, slice_, slice_])
        elif kind is Kind.CLAIM:
            name = f"user-{rng.randrange(4)}"
            used = allocated_claim(result(rng.choice(DEVICES), pool=pool), name=name)
            key, new = ("default", name), rng.choice([None, used, used])  # type: ignore[assignment]
        else:
            spec = {
                "deviceSelector": {"driver": DRIVER, "device": rng.choice(DEVICES)},
                "taint": {"key": "ill", "effect": "NoSchedule"},
            }
            rule_ = convert({"metadata": {"name": "rule"}, "spec": spec}, DeviceTaintRule)
            key, new = ("", "rule"), rng.choice([None, rule_])  # type: ignore[assignment]
        changes.setdefault(kind, {})[key] = new
    return changes


def verdicts(cluster: Cluster) -> Mapping[str, str]:
    """The verdict on each node, from the cache of classes."""
    try:
        pending = cluster.resolve([claim(request())])
        return {name: type(outcome).__name__ for name, outcome, _ in cluster.verdicts(pending)}
    except AttemptFailed as error:
        return {"": str(error)}


@pytest.mark.parametrize("max_part", [None, 1])
@pytest.mark.parametrize("seed", range(12))
def test_a_view_that_is_kept_up_to_date_is_one_that_is_built_with_its_tombstones(
    seed: int, max_part: int | None
) -> None:
    rng = Random(seed)
    everything: dict[Kind, dict[Name, Any]] = {
        Kind.NODE: {("", name): node(name) for name in POOLS[:2]},
        Kind.CLASS: {("", "gpu"): device_class()},
        Kind.POLICY: {("", "policy"): ONE_MODE},
    }
    cache = ClusterCache(Features(), max_part=max_part)
    cache.apply(everything)
    for _ in range(40):
        changes = random_changes(rng)
        cache.apply(changes)
        for kind, objects in changes.items():
            everything.setdefault(kind, {}).update(objects)
        while cache.is_behind:
            cache.apply({})
        anew = ClusterCache(Features(), tombstones=cache.tombstones)
        anew.apply(
            {
                kind: {key: value for key, value in objects.items() if value is not None}
                for kind, objects in everything.items()
            }
        )

        assert verdicts(cache.cluster) == verdicts(anew.cluster)
        assert dict(cache.tombstones).keys() == dict(anew.tombstones).keys()
        assert all(cache.cluster.usage.of(device_id) for device_id in cache.tombstones)
