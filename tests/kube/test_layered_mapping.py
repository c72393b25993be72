"""Mappings that share their entries, beside dicts that are copied."""

from collections.abc import Iterator, Mapping
from random import Random

import pytest

from kube.collections.layered_mapping import MAX_CHANGES, LayeredMapping, with_changes


@pytest.mark.parametrize("size", [0, MAX_CHANGES, MAX_CHANGES + 1, 3 * MAX_CHANGES])
def test_it_has_the_entries_of_a_copy(size: int) -> None:
    random = Random(size)
    expected = {f"key-{number}": number for number in range(size)}
    entries: Mapping[str, int] = dict(expected)
    for step in range(4 * MAX_CHANGES):
        before, expected_before = entries, dict(expected)
        key = f"key-{random.randrange(size + 50)}"
        value = random.choice((None, step))
        entries = with_changes(entries, {key: value})
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
        assert (entries.get(key), key in entries, len(entries)) == (
            value,
            value is not None,
            len(expected),
        )
        if step % 100 == 0:
            assert entries == expected
            assert expected == entries
            assert before == expected_before, "a mapping was changed by the next one"
            assert set(entries) == set(expected)
    assert dict(entries) == expected
    assert sum(1 for _ in entries) == len(entries)
    with pytest.raises(KeyError):
        entries["missing"]
    assert entries.get("missing", 7) == 7


class _Uncopied(dict[str, int]):
    """A dict that nobody may read as a whole."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all entries were read")

    keys = items = values = __iter__  # type: ignore[assignment]


def test_a_change_of_a_large_mapping_reads_few_entries() -> None:
    entries: Mapping[str, int] = _Uncopied({str(number): number for number in range(10_000)})
    for number in range(MAX_CHANGES):
        entries = with_changes(entries, {str(number): -number})
    assert isinstance(entries, LayeredMapping)
    assert (entries["5"], entries["9999"], len(entries)) == (-5, 9_999, 10_000)
    # The layer is full.
    with pytest.raises(AssertionError, match="all entries were read"):
        with_changes(entries, {"9999": 0})
