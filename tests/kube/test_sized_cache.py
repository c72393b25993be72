"""The cache that is bounded by bytes: the order of evictions."""

from kube.collections.sized_cache import SizedCache


def cache() -> SizedCache[str, int]:
    return SizedCache(max_entries=3, max_bytes=100)


def test_the_least_recently_used_goes_first() -> None:
    values = cache()
    for number, key in enumerate("abc"):
        values.put(key, number, size=10)
    values.get("a")
    values.put("d", 3, size=10)

    assert [key for key in "abcd" if values.get(key) is not None] == ["a", "c", "d"]


def test_a_large_value_evicts_as_many_as_it_needs() -> None:
    values = cache()
    values.put("a", 1, size=40)
    values.put("b", 2, size=40)
    values.put("c", 3, size=90)

    assert (len(values), values.bytes, values.get("c")) == (1, 90, 3)


def test_a_value_that_is_put_again_counts_once() -> None:
    values = cache()
    values.put("a", 1, size=40)
    values.put("a", 2, size=50)

    assert (len(values), values.bytes, values.get("a")) == (1, 50, 2)


def test_what_is_larger_than_the_cache_leaves_it_as_it_is() -> None:
    values = cache()
    values.put("a", 1, size=40)

    assert values.put("b", 2, size=101) == 2
    assert (len(values), values.bytes) == (1, 40)


def test_clearing_drops_everything() -> None:
    values = cache()
    values.put("a", 1, size=40)
    values.clear()

    assert (len(values), values.bytes, values.get("a")) == (0, 0, None)
