"""The time until a device counts as unhealthy, and until it counts as healthy again."""

from datetime import UTC, datetime, timedelta

import pytest

from driver.model.health import (
    UNHEALTHY,
    DeviceHealth,
    Effect,
    Fault,
    Healths,
    Recovery,
    effect_of,
    health_taints,
    observe,
    unhealthy,
    worst_faults,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RECOVERY = Recovery(first_s=30, max_s=240)
DOWN = Fault(kind="linkDown")
LOST = Fault(kind="lost", message="it has fallen off the bus")


def watched(*looks: tuple[float, Fault | None]) -> Healths:
    """The health of `eth0` after looks at these seconds."""
    healths: Healths = {}
    for second, fault in looks:
        faults = {"eth0": fault} if fault is not None else {}
        now = BEGAN + timedelta(seconds=second)
        healths = observe(healths, faults, RECOVERY, second, now)
    return healths


def is_unhealthy(*looks: tuple[float, Fault | None]) -> bool:
    return "eth0" in unhealthy(watched(*looks))


def test_a_fault_counts_at_once() -> None:
    assert is_unhealthy((0, DOWN))


def test_it_is_over_when_it_has_been_away_for_a_while() -> None:
    assert is_unhealthy((0, DOWN), (1, None))
    assert is_unhealthy((0, DOWN), (29, None))
    assert not is_unhealthy((0, DOWN), (30, None))


def test_the_while_begins_anew_with_each_look_that_sees_it() -> None:
    assert is_unhealthy((0, DOWN), (20, DOWN), (40, None))
    assert not is_unhealthy((0, DOWN), (20, DOWN), (50, None))


def test_a_relapse_doubles_the_while() -> None:
    relapse = ((0, DOWN), (30, None), (31, DOWN))

    assert is_unhealthy(*relapse, (61, None))
    assert is_unhealthy(*relapse, (90, None))
    assert not is_unhealthy(*relapse, (91, None))


def test_a_device_that_flaps_changes_ever_more_seldom() -> None:
    """A minute well and a second down, for a day: after a few times it stays out."""
    healths: Healths = {}
    changes, was = 0, False
    for second in range(24 * 3600):
        faults = {"eth0": DOWN} if second % 61 == 0 else {}
        healths = observe(healths, faults, RECOVERY, second, BEGAN)
        is_now = bool(unhealthy(healths))
        changes, was = changes + (is_now != was), is_now

    assert was
    assert changes < 10


def test_a_device_that_stays_healthy_is_as_good_as_new() -> None:
    assert {} == watched((0, DOWN), (30, None), (30 + 240, None))


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=str)
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_fault(jump: timedelta) -> None:
    healths = observe({}, {"eth0": DOWN}, RECOVERY, 0, BEGAN)

    early = observe(healths, {}, RECOVERY, 29, BEGAN + jump)
    late = observe(early, {}, RECOVERY, 30, BEGAN + jump)

    assert {"eth0": (DOWN, BEGAN)} == unhealthy(early)
    assert {} == unhealthy(late)


def test_a_fault_that_is_stored_as_of_the_future_is_over_in_its_time() -> None:
    healths = {"eth0": DeviceHealth(fault=DOWN, began=BEGAN, seen_s=1e300)}

    early = observe(healths, {}, RECOVERY, 100, BEGAN)
    late = observe(early, {}, RECOVERY, 130, BEGAN)

    assert {"eth0": (DOWN, BEGAN)} == unhealthy(early)
    assert {} == unhealthy(late)


def test_another_kind_of_fault_began_later() -> None:
    faults = unhealthy(watched((0, DOWN), (10, DOWN), (20, LOST), (30, LOST)))

    assert {"eth0": (LOST, BEGAN + timedelta(seconds=20))} == faults


def test_a_device_without_a_fault_is_not_kept() -> None:
    assert {} == watched((0, None))


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("lost", Effect.NO_EXECUTE),
        ("linkDown", Effect.NO_SCHEDULE),
        ("somethingElse", Effect.NO_SCHEDULE),
        ("unmonitored", Effect.NONE),
        ("xid", Effect.NO_EXECUTE),
    ],
)
def test_the_effect_is_by_kind_and_settings_come_first(kind: str, effect: Effect) -> None:
    assert effect is effect_of(kind, {"xid": Effect.NO_EXECUTE})


def test_of_several_faults_the_one_with_the_strongest_effect_counts() -> None:
    quiet = Fault(kind="unmonitored")

    faults = worst_faults(
        ({"eth0": quiet, "eth1": quiet}, {"eth0": LOST}, {"eth0": DOWN, "eth2": DOWN}), {}
    )

    assert {"eth0": LOST, "eth1": quiet, "eth2": DOWN} == faults


def test_the_taint_tells_kind_and_beginning() -> None:
    healths = {"eth0": DeviceHealth(fault=LOST, began=BEGAN, seen_s=0)}

    (taint,) = health_taints(unhealthy(healths), {}).values()

    assert (UNHEALTHY, "lost", "NoExecute") == (taint.key, taint.value, taint.effect)
    assert "2026-01-01T00:00:00Z" == taint.time_added
