"""Findings of the check of the devices in use."""

import pytest

from allocator.model.feature_gates import Features
from allocator.model.usage import gather_usage
from kube.api.resource import ResourceClaim
from sidecar.ownership.drift import differs
from testing.allocation.builders import allocated_claim, result


def share(memory: str = "10Gi", *, share_id: str = "1", name: str = "a") -> ResourceClaim:
    return allocated_claim(result("gpu-0", share=share_id, consumed={"memory": memory}), name=name)


def whole(device: str = "gpu-0", *, name: str = "a") -> ResourceClaim:
    return allocated_claim(result(device), name=name)


@pytest.mark.parametrize(
    ("want", "counted", "expected"),
    [
        pytest.param(False, (), (), id="nothing is in use"),
        pytest.param(False, (whole(),), (whole(),), id="the same device"),
        pytest.param(True, (whole(),), (whole("gpu-1"),), id="another device"),
        pytest.param(True, (whole(),), (), id="a device that is free"),
        pytest.param(True, (whole(),), (whole(name="b"),), id="another claim"),
        pytest.param(False, (share(),), (share(),), id="the same share"),
        pytest.param(False, (share("1Gi"),), (share("1024Mi"),), id="an amount in another format"),
        pytest.param(True, (share(),), (share("20Gi"),), id="another amount of a share"),
        pytest.param(True, (share(),), (share(share_id="2"),), id="another share"),
        pytest.param(True, (share(), share()), (share(),), id="a share that is counted twice"),
        pytest.param(
            False,
            (share(), share("20Gi", share_id="2", name="b")),
            (share("20Gi", share_id="2", name="b"), share()),
            id="counted in another order",
        ),
        pytest.param(
            True,
            (share("10Gi"), share("20Gi", share_id="2", name="b")),
            (share("20Gi"), share("10Gi", share_id="2", name="b")),
            id="the same sum of other amounts",
        ),
    ],
)
def test_differs(
    want: bool, counted: tuple[ResourceClaim, ...], expected: tuple[ResourceClaim, ...]
) -> None:
    usages = [gather_usage(claims, Features()) for claims in (counted, expected)]

    assert want == differs(*usages)
