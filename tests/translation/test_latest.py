"""The latest result of a function is kept while its arguments are the same objects."""

from collections.abc import Mapping

from kube.collections.latest import keep_latest


def test_same_objects_are_answered_without_another_call() -> None:
    calls: list[Mapping[str, int]] = []

    @keep_latest
    def total(first: Mapping[str, int], second: Mapping[str, int]) -> int:
        calls.append(first)
        return sum(first.values()) + sum(second.values())

    first_counts, second_counts = {"a": 1}, {"b": 2}
    assert [total(first_counts, second_counts), total(first_counts, second_counts)] == [3, 3]
    assert len(calls) == 1


def test_other_objects_are_answered_anew() -> None:
    @keep_latest
    def total(first: Mapping[str, int], second: Mapping[str, int]) -> int:
        return sum(first.values()) + sum(second.values())

    first_counts, second_counts = {"a": 1}, {"b": 2}
    assert [
        total(first_counts, second_counts),
        total(second_counts, second_counts),
        total(second_counts, first_counts),
        total({"a": 5}, second_counts),
    ] == [3, 4, 3, 7]
