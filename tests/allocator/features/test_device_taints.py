from typing import NamedTuple

import pytest

from allocator.features import device_taints as taints
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from kube.api.resource import DeviceTaint, DeviceToleration
from testing.allocation.builders import device, taint, tolerates


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
    device_ = device(taints=(taint("a"), taint("b", effect="NoExecute")))

    assert taint("b", effect="NoExecute") == taints.find_untolerated(device_, (tolerates("a"),))
    assert taints.find_untolerated(device_, (tolerates("a"), tolerates("b"))) is None


@pytest.mark.parametrize("effect", ["", "None", "PreferNoSchedule"])
def test_other_effects_never_block(effect: str) -> None:
    assert taints.find_untolerated(device(taints=(taint(effect=effect),)), ()) is None


def test_rejection_names_the_taint() -> None:
    rejection = taints.rejection(device(taints=(taint("broken", "fan"),)), (), Features())

    assert rejection is not None
    assert rejection.reason is Reason.TAINT
    assert rejection.detail == "untolerated taint broken=fan:NoSchedule"


def test_taints_are_ignored_while_the_gate_is_off() -> None:
    off = Features(device_taints=False)

    assert taints.rejection(device(taints=(taint(),)), (), off) is None
