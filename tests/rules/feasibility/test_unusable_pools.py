"""Published devices that cannot be used are a finding that names the cause."""

from typing import Any, NamedTuple

import pytest

from allocator.model.feature_gates import Features
from rules.context.context import Context
from testing.documents import EXAMPLE, Document, attributes, claim, device, resource_slice
from testing.feasibility_cases import (
    EXACT,
    NODE_A,
    NODE_B,
    allocated_claim,
    cluster_context,
    example_request,
    gpu,
)
from testing.rule_cases import finding_lines, findings_of

GATES_OFF = Features(partitionable_devices=False)
GROUPS_ON = Features(compatibility_groups=True)


def pool(*devices: Document, name: str = "node-a", count: int = 1, **spec: Any) -> Document:
    of_pool = {"name": name, "generation": 1, "resourceSliceCount": count}
    node = {} if "sharedCounters" in spec or "nodeSelector" in spec else {"nodeName": name}
    return resource_slice(*devices, **{"name": name, **node, "pool": of_pool, **spec})


_MIG = f'device.attributes["{EXAMPLE}"].mode == "mig"'
_MPS = f'device.attributes["{EXAMPLE}"].mode == "mps"'


def consuming(name: str, counter_set: str = "gpu-0", groups: tuple[str, ...] = ()) -> Document:
    consumed = {"counterSet": counter_set, "counters": {"slices": {"value": "1"}}}
    grouped = {"compatibilityGroups": list(groups)} if groups else {}
    return device(name, **attributes(mode=name), consumesCounters=[consumed | grouped])


COUNTERS = pool(
    count=2,
    name="counters",
    nodeName="node-a",
    pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2},
    sharedCounters=[{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}],
)
GROUPED = (
    pool(consuming("mig", groups=("mig",)), consuming("mps", groups=("mps",)), count=2),
    COUNTERS,
)


class Unusable(NamedTuple):
    """Attributes: cause: Part of the message."""

    name: str
    cause: str
    context: Context


UNUSABLE = (
    Unusable(
        "an unknown counter set",
        f"pool node-a of driver {EXAMPLE}: invalid (counter set gpu-0 not found)",
        cluster_context(pool(consuming("gpu-0"))),
    ),
    Unusable(
        "a duplicate device",
        f"pool node-a of driver {EXAMPLE}: invalid (duplicate device name gpu-0)",
        cluster_context(pool(gpu("gpu-0"), gpu("gpu-0"))),
    ),
    Unusable(
        "compatibility groups without their gate",
        f"pool node-a of driver {EXAMPLE}: compatibilityGroups need feature gate"
        " DRADeviceCompatibilityGroups, which is off",
        cluster_context(*GROUPED),
    ),
    Unusable(
        "partitionable devices without their gate",
        f"pool node-a of driver {EXAMPLE}: partitionable devices need feature gate"
        " DRAPartitionableDevices, which is off",
        cluster_context(
            resource_slice({**gpu("gpu-0"), "nodeName": "node-a"}, perDeviceNodeSelection=True),
            features=GATES_OFF,
        ),
    ),
    Unusable(
        "a missing node",
        f"pool node-x of driver {EXAMPLE}: node node-x does not exist",
        cluster_context(pool(gpu("gpu-0"), name="node-x")),
    ),
    Unusable(
        "a node selector without a node",
        f"pool fabric of driver {EXAMPLE}: no node matches its nodeSelector",
        cluster_context(
            pool(
                gpu("gpu-0"),
                name="fabric",
                nodeSelector={
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                    ]
                },
            )
        ),
    ),
    Unusable(
        "devices beside shared counters",
        f"pool node-a of driver {EXAMPLE}: slice node-a has sharedCounters, so the scheduler"
        " ignores its devices",
        cluster_context(
            pool(
                consuming("gpu-0"),
                nodeName="node-a",
                sharedCounters=[{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}],
            )
        ),
    ),
    Unusable(
        "several pools of one cause",
        f"pools node-x and 2 more of driver {EXAMPLE}: node node-x",
        cluster_context(*(pool(gpu("gpu-0"), name=f"node-{name}", nodeName="node-x") for name in "xyz")),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE, ids=lambda case: case.name)
def test_the_cause_is_named(case: Unusable) -> None:
    (finding,) = findings_of(claim(example_request()), case.context)

    assert ("warning", "noUsableDevice", EXACT) == (
        finding.severity,
        finding.code,
        str(finding.path),
    )
    assert "selected devices can be used: " in finding.message
    assert case.cause in finding.message


def test_groups_are_evaluated_with_their_gate() -> None:
    context = cluster_context(*GROUPED, features=GROUPS_ON)

    assert finding_lines(claim(example_request()), context) == ()
    assert finding_lines(
        claim(example_request(_MIG), example_request(_MPS, name="mps")), context
    ) == ("error incompatibleModes spec.devices.requests",)


def test_usable_pools_are_enough() -> None:
    context = cluster_context(NODE_B, pool(gpu("gpu-0"), gpu("gpu-0")))

    assert finding_lines(claim(example_request()), context) == ()


def test_an_incomplete_pool_is_the_reason_why_nothing_fits_now() -> None:
    incomplete = pool(gpu("gpu-0"), count=2)

    (finding,) = findings_of(claim(example_request()), cluster_context(incomplete))

    assert finding.code == "doesNotFitNow"
    reason = f"pool node-a is incomplete: 1 of 2 slices of generation 1, driver {EXAMPLE}"
    assert finding.advice == (
        f"no node can satisfy this now: {reason}; wait until its driver has published all of it, "
        "or ask an administrator to look at the driver on node node-a"
    )


def test_a_device_in_use_is_no_unusable_device() -> None:
    names = tuple(device_["name"] for device_ in NODE_A["spec"]["devices"])
    context = cluster_context(NODE_A, current_claims=(allocated_claim(*names),))

    assert finding_lines(claim(example_request()), context) == (
        "warning doesNotFitNow spec.devices",
    )
