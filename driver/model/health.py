"""The health of devices: a fault counts at once, and is over after some time without it.

Each relapse doubles that while, up to a bound, so that a device that flaps does not drag pods along. A
device that stays healthy for the bound is taken for a new one.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from kube.api.resource import DeviceTaint
from kube.names import GROUP

UNHEALTHY: Final = f"{GROUP}/unhealthy"
"""Key of the taint of devices with a fault; its value is the kind of the fault."""


class Effect(StrEnum):
    """The effect of a taint: none, keep new claims away, or evict pods as well."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


_WEAK_TO_STRONG: Final = tuple(Effect)

EFFECTS: Final[Mapping[str, Effect]] = {
    "lost": Effect.NO_EXECUTE,
    "xid": Effect.NO_SCHEDULE,
    "ecc": Effect.NO_SCHEDULE,
    "linkDown": Effect.NO_SCHEDULE,
    "unmonitored": Effect.NONE,
}
"""Kind of a fault to its effect, unless settings say otherwise; other kinds are NoSchedule."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a device.

    Attributes:
        kind: A label value, such as `linkDown`.
        message: The message, for people.
    """

    kind: str
    message: str = ""


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A device that has, or recently had, a fault.

    Attributes:
        fault: The latest.
        began: The time at which the fault was first seen, in UTC.
        seen_s: The time at which the fault was last seen, in seconds of the clock of `observe`.
        relapses: The number of times the fault came back after it was over.
        is_over: It has been away for long enough.
    """

    fault: Fault
    began: datetime
    seen_s: float
    relapses: int = 0
    is_over: bool = False


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The time without a fault that makes a device healthy again.

    Attributes:
        first_s: The time after the first fault, in seconds.
        max_s: The upper bound of that time after any number of relapses, in seconds. A device that
            is healthy for as long is forgotten.
    """

    first_s: float
    max_s: float

    def wait_s(self, relapses: int) -> float:
        """Return the time after so many relapses.

        >>> [Recovery(first_s=30, max_s=100).wait_s(relapses) for relapses in range(3)]
        [30, 60, 100]
        """
        wait_s = self.first_s
        for _ in range(relapses):
            if wait_s >= self.max_s:
                break
            wait_s *= 2
        return min(wait_s, self.max_s)


Healths = Mapping[str, DeviceHealth]
"""Device to its health; those that were always healthy are left out."""


def observe(
    healths: Healths, faults: Mapping[str, Fault], recovery: Recovery, now_s: float, now: datetime
) -> Healths:
    """Return the health of devices after an observation of their faults.

    Args:
        healths: The healths that the previous observation returned.
        faults: Device to its fault, as seen now.
        recovery: The time after which a fault is over.
        now_s: A clock that never goes back.
        now: The wall clock, in UTC.
    """
    after = {
        name: _with_fault(healths.get(name), fault, now_s, now) for name, fault in faults.items()
    }
    for name, health in healths.items():
        if name in faults:
            continue
        # What was stored in a machine that was then set back to an earlier state is of the future.
        seen_s = min(health.seen_s, now_s)
        away_s = now_s - seen_s
        is_over = health.is_over or away_s >= recovery.wait_s(health.relapses)
        if not is_over or away_s < recovery.wait_s(health.relapses) + recovery.max_s:
            after[name] = msgspec.structs.replace(health, seen_s=seen_s, is_over=is_over)
    return dict(sorted(after.items()))


def _with_fault(
    health: DeviceHealth | None, fault: Fault, now_s: float, now: datetime
) -> DeviceHealth:
    if health is None:
        return DeviceHealth(fault=fault, began=now, seen_s=now_s)
    if health.is_over:
        relapses = health.relapses + 1
        return DeviceHealth(fault=fault, began=now, seen_s=now_s, relapses=relapses)
    began = health.began if fault.kind == health.fault.kind else now
    return msgspec.structs.replace(health, fault=fault, began=began, seen_s=now_s)


def unhealthy(healths: Healths) -> Mapping[str, tuple[Fault, datetime]]:
    """Return the devices that count as unhealthy, with the fault and when it began."""
    return {
        name: (health.fault, health.began) for name, health in healths.items() if not health.is_over
    }


def effect_of(kind: str, effects: Mapping[str, Effect]) -> Effect:
    """Return the effect of a kind of fault."""
    return effects.get(kind) or EFFECTS.get(kind, Effect.NO_SCHEDULE)


def worst_faults(
    sources: Iterable[Mapping[str, Fault]], effects: Mapping[str, Effect]
) -> Mapping[str, Fault]:
    """Return one fault per device: that of the strongest effect, then the first by kind."""
    worst: dict[str, Fault] = {}
    for faults in sources:
        for name, fault in faults.items():
            worst[name] = min(
                (worst.get(name, fault), fault), key=lambda candidate: _rank(candidate, effects)
            )
    return worst


def _rank(fault: Fault, effects: Mapping[str, Effect]) -> tuple[int, str]:
    return -_WEAK_TO_STRONG.index(effect_of(fault.kind, effects)), fault.kind


def health_taints(
    faults: Mapping[str, tuple[Fault, datetime]], effects: Mapping[str, Effect]
) -> Mapping[str, DeviceTaint]:
    """Return device to the taint of its fault."""
    return {
        name: DeviceTaint(
            key=UNHEALTHY,
            value=fault.kind,
            effect=effect_of(fault.kind, effects).value,
            time_added=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        for name, (fault, began) in faults.items()
    }
