"""Samples that count as growth of a process's memory."""

import pytest

from e2e.memory_growth import grown


def samples(*sizes: int) -> list[dict[str, int]]:
    return [{"webhook": size} for size in sizes]


def test_a_process_that_stays_larger_has_grown() -> None:
    assert {"webhook": (100, 190)} == grown(samples(90, 90, 100, 100, 150, 150, 190, 195))


@pytest.mark.parametrize("peak", [6, 7])
def test_a_process_that_is_larger_for_one_sample_has_not(peak: int) -> None:
    sizes = [100] * 12
    sizes[peak + 3] = 240

    assert {} == grown(samples(*sizes))


def test_too_few_samples_show_nothing() -> None:
    with pytest.raises(ValueError, match="3 samples"):
        grown(samples(1, 2, 3))
