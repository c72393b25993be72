"""A cache with a share for every tenant."""

from random import Random

import pytest

from kube.collections.tenant_cache import TenantCache


def cache_of(max_bytes: int = 100, max_pinned_bytes: int = 200) -> TenantCache[str, str]:
    return TenantCache(max_bytes=max_bytes, max_pinned_bytes=max_pinned_bytes)


def keys(cache: TenantCache[str, str], *names: str, tenant: str = "reader") -> str:
    """Return the names that the cache has, without using them."""
    return "".join(name for name in names if name in cache._entries)


def test_the_tenant_that_has_most_loses_its_oldest() -> None:
    cache = cache_of()
    for name, tenant in (("a", "loud"), ("b", "loud"), ("c", "quiet"), ("d", "loud")):
        cache.put(name, name, tenant=tenant, size=30)

    assert keys(cache, *"abcd") == "bcd"
    assert cache.bytes == 90
    assert (cache.size_of("loud"), cache.size_of("quiet")) == (60, 30)


def test_a_use_makes_an_entry_young() -> None:
    cache = cache_of()
    for name in "abc":
        cache.put(name, name, tenant="team-a", size=30)
    cache.get("a", tenant="team-a")
    cache.put("d", "d", tenant="team-a", size=30)

    assert keys(cache, *"abcd") == "acd"


def test_what_several_use_stays_until_the_last_of_them_loses_it() -> None:
    cache = cache_of()
    cache.put("shared", "x", tenant="loud", size=30)
    cache.get("shared", tenant="quiet")
    for name in "abcdef":
        cache.put(name, name, tenant="loud", size=30)

    assert cache.get("shared", tenant="quiet") == "x"
    assert cache.size_of("quiet") == 30


def test_an_entry_grows_with_what_is_added() -> None:
    cache = cache_of()
    cache.put("a", "a", tenant="team-a", size=10)
    entry = cache.put("b", "b", tenant="team-a", size=10)
    cache.grow(entry, 60)
    cache.put("c", "c", tenant="team-a", size=40)

    assert keys(cache, *"abc") == "c"
    cache.grow(entry, 1000)  # It was dropped, and is still in use by somebody.
    assert (cache.bytes, cache.size_of("team-a")) == (40, 40)


def test_pinned_entries_stay_and_nobody_else_loses_theirs_for_them() -> None:
    cache = cache_of()
    cache.put("other", "x", tenant="quiet", size=30)
    for name in "abcd":
        cache.put(name, name, tenant="loud", size=30, question="pod")

    assert cache.bytes == 150
    assert keys(cache, "other", *"abcd") == "otherabcd"
    cache.put("e", "e", tenant="loud", size=30)
    assert keys(cache, "other", *"abcde") == "otherabcd"
    cache.unpin("pod")
    cache.put("f", "f", tenant="loud", size=30)
    assert cache.bytes <= 100
    assert keys(cache, "other") == "other"


def test_beyond_the_last_bound_pinned_entries_go_as_well() -> None:
    cache = cache_of()
    cache.put("other", "x", tenant="quiet", size=30)
    for name in "abcdefgh":
        cache.put(name, name, tenant="loud", size=30, question="pod")

    assert cache.bytes <= 200
    assert keys(cache, "other") == "other"


@pytest.mark.parametrize("seed", range(20))
def test_sizes_are_those_of_the_entries(seed: int) -> None:
    chance = Random(seed)
    cache = cache_of()
    for _ in range(300):
        name, tenant = chance.choice("abcdefgh"), chance.choice("xyz")
        match chance.randrange(4):
            case 0:
                cache.put(name, name, tenant=tenant, size=chance.randrange(40))
            case 1:
                entry = cache.find(name, tenant=tenant, question=chance.choice([None, "pod"]))
                if entry is not None:
                    cache.grow(entry, chance.randrange(10))
            case 2:
                cache.drop(name)
            case _:
                cache.unpin("pod")
        entries = cache._entries.values()
        assert cache.bytes == sum(entry.size for entry in entries)
        assert cache.bytes <= 200 + 40
        for user in "xyz":
            used = sum(entry.size for entry in entries if user in entry.tenants)
            assert cache.size_of(user) == used
