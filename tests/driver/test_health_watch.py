"""Faults as they reach slices and the kubelet."""

from collections.abc import Mapping
from datetime import UTC, datetime

from driver.current import CurrentNode
from driver.health_watch import HealthWatch
from driver.plan.health import Fault, Recovery
from testing.driver.builders import PUBLICATION

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class ToldFaults:
    """A source whose faults the test tells."""

    def __init__(self) -> None:
        self.faults: Mapping[str, Fault] = {}

    def read(self) -> Mapping[str, Fault]:
        return self.faults


def test_faults_of_all_sources_come_and_go() -> None:
    first, second = ToldFaults(), ToldFaults()
    seconds = iter((0.0, 1.0, 2.0, 40.0))
    watch = HealthWatch(
        CurrentNode(PUBLICATION),
        (first, second),
        Recovery(first_s=30, max_s=300),
        {},
        now=lambda: NOW,
        clock=lambda: next(seconds),
    )

    watch.look()
    assert {} == watch.faults

    first.faults = {"gpu-0": Fault(kind="xid")}
    second.faults = {"gpu-0": Fault(kind="lost"), "eth0": Fault(kind="linkDown")}
    watch.look()
    assert {"gpu-0": "lost", "eth0": "linkDown"} == {
        name: fault.kind for name, (fault, _) in watch.faults.items()
    }

    first.faults, second.faults = {}, {"eth0": Fault(kind="linkDown")}
    watch.look()
    assert {"gpu-0", "eth0"} == watch.faults.keys()
    watch.look()
    assert {"eth0"} == watch.faults.keys()
