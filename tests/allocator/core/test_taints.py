from typing import NamedTuple

import pytest

from allocator.core import taints
from allocator.core.model import Features
from allocator.core.outcome import Reason
from kube.api.resource import DeviceTaint, DeviceToleration
from tests.allocator.builders import device, taint, tolerates


class Case(NamedTuple):
    want: bool
    name: str
    toleration: DeviceToleration
    taint: DeviceTaint


CASES = (
    Case(True, "equal in all", tolerates("broken", "fan", "NoExecute"), taint("broken", "fan", "NoExecute")),
    Case(False, "another value", tolerates("broken", "fan"), taint("broken", "ram")),
    Case(True, "any value, where Exists", tolerates("broken", operator="Exists"), taint("broken", "ram")),
    Case(False, "another key", tolerates("broken", operator="Exists"), taint("hot")),
    Case(True, "any key, where it names none", tolerates(), taint("hot")),
    Case(False, "another effect", tolerates("hot", effect="NoExecute"), taint("hot")),
    Case(True, "any effect, where it names none", tolerates("hot"), taint("hot", effect="NoExecute")),
    Case(True, "an empty operator is Equal", tolerates("hot", "x", operator=""), taint("hot", "x")),
    Case(False, "an unknown operator never matches", tolerates("hot", operator="Gt"), taint("hot")),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tolerates(case: Case) -> None:
    assert case.want == taints.tolerates(case.toleration, case.taint)


def test_every_blocking_taint_needs_a_toleration() -> None:
    tainted = device(taints=(taint("a"), taint("b", effect="NoExecute")))

    assert taint("b", effect="NoExecute") == taints.blocking(tainted, (tolerates("a"),))
    assert taints.blocking(tainted, (tolerates("a"), tolerates("b"))) is None


@pytest.mark.parametrize("effect", ["", "None", "PreferNoSchedule"])
def test_other_effects_never_block(effect: str) -> None:
    assert taints.blocking(device(taints=(taint(effect=effect),)), ()) is None


def test_refusal_names_the_taint() -> None:
    found = taints.refusal(device(taints=(taint("broken", "fan"),)), (), Features())

    assert found is not None
    assert found.reason is Reason.TAINT
    assert found.detail == "taint broken=fan:NoSchedule is not tolerated"


def test_nothing_is_tainted_while_the_gate_is_off() -> None:
    off = Features(device_taints=False)

    assert taints.refusal(device(taints=(taint(),)), (), off) is None
