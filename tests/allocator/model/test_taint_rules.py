from typing import Final

import msgspec
import pytest

from allocator.model.taint_rules import apply_taint_rules
from kube.api.meta import ObjectMeta
from kube.api.resource import DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from testing.allocation.builders import device, slice_of, taint


def rule(name: str, selector: DeviceTaintSelector | None) -> DeviceTaintRule:
    return DeviceTaintRule(
        metadata=ObjectMeta(name=name),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint(name)),
    )


ANY: Final = DeviceTaintSelector()
DRIVER: Final = "gpu.example.com"


@pytest.mark.parametrize(
    ("want", "rules"),
    [
        pytest.param("a:own b:", [], id="no rule"),
        pytest.param("a:own b:", [rule("x", None)], id="no selector matches nothing"),
        pytest.param("a:own,x b:x", [rule("x", ANY)], id="an empty selector matches all"),
        pytest.param("a:own,x b:x", [rule("x", DeviceTaintSelector(driver=DRIVER))], id="a driver"),
        pytest.param(
            "a:own b:", [rule("x", DeviceTaintSelector(driver="other"))], id="another one"
        ),
        pytest.param("a:own,x b:x", [rule("x", DeviceTaintSelector(pool="node-1"))], id="a pool"),
        pytest.param(
            "a:own b:", [rule("x", DeviceTaintSelector(pool="node-2"))], id="another pool"
        ),
        pytest.param("a:own b:x", [rule("x", DeviceTaintSelector(device="b"))], id="a device"),
        pytest.param("a:own b:", [rule("x", DeviceTaintSelector(device="c"))], id="another device"),
        pytest.param(
            "a:own,x,y b:x,y",
            [rule("y", ANY), rule("x", DeviceTaintSelector(driver=DRIVER, pool="node-1"))],
            id="several rules, by name",
        ),
    ],
)
def test_apply_taint_rules(want: str, rules: list[DeviceTaintRule]) -> None:
    slice_ = slice_of(device("a", taints=(taint("own"),)), device("b"))
    before = msgspec.json.encode(slice_, enc_hook=str)

    (apply_taint_rule,) = apply_taint_rules((slice_,), rules)

    devices = apply_taint_rule.spec.devices or ()
    assert want == " ".join(
        f"{first_device.name}:{','.join(taint_.key for taint_ in first_device.taints or ())}"
        for first_device in devices
    )
    assert before == msgspec.json.encode(slice_, enc_hook=str)
    assert (apply_taint_rule is slice_) == ("x" not in want)
