"""Devices that cannot be prepared time and again."""

from driver.faults.prepare_failures import BOUND, HOLD_S, KIND, PrepareFailures


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_device_that_fails_too_often_has_a_fault() -> None:
    failures = PrepareFailures(Clock())

    for _ in range(BOUND - 1):
        failures.record_failure(["gpu-0"], "the disk is full")
    assert {} == failures.read()
    failures.record_failure(["gpu-0"], "the disk is full")

    (fault,) = failures.read().values()
    assert (KIND, f"failed {BOUND} times: the disk is full") == (fault.kind, fault.message)


def test_a_success_begins_anew() -> None:
    failures = PrepareFailures(Clock())
    for _ in range(BOUND - 1):
        failures.record_failure(["gpu-0", "gpu-1"], "")

    failures.record_success(["gpu-0"])
    failures.record_failure(["gpu-0", "gpu-1"], "")

    assert {"gpu-1"} == failures.read().keys()


def test_it_is_over_when_nobody_tries_any_more() -> None:
    clock = Clock()
    failures = PrepareFailures(clock)
    for _ in range(BOUND):
        failures.record_failure(["gpu-0"], "")

    clock.now_s = HOLD_S - 1
    assert {"gpu-0"} == failures.read().keys()
    clock.now_s = HOLD_S
    assert {} == failures.read()


def test_tries_that_are_far_apart_are_not_in_a_row() -> None:
    clock = Clock()
    failures = PrepareFailures(clock)

    for _ in range(2 * BOUND):
        failures.record_failure(["gpu-0"], "")
        clock.now_s += HOLD_S

    assert {} == failures.read()
