"""Policies and the devices of a node, for the status of DeviceCompatibilityPolicies."""

from collections.abc import Collection, Sequence

import msgspec

from allocator.model.devices import PoolState
from allocator.model.scheduler_support import SchedulerSupport
from controllers.policies.status import (
    PolicyReport,
    usage_of,
)
from kube.api.meta import ObjectMeta
from kube.api.policy import (
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
    Enforcement,
)
from kube.api.resource import Device, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    applied_configuration,
    attribute_of,
    consumes,
    counter_set,
    device,
    pool_of,
    result,
    rule,
)
from testing.allocation.builders import policy as written

MODE = attribute_of("mode")


NOW = "2026-11-20T12:00:00Z"


def only(*modes: str) -> str:
    return f"{MODE} in {list(modes)}".replace("'", '"')


def policy(**accepts: str | None) -> DeviceCompatibilityPolicy:
    """A policy with a rule for each mode: its devices' demands on others."""
    policy_under_test = written(
        *(rule(mode, only(mode), only=text) for mode, text in accepts.items())
    )
    metadata = ObjectMeta(name="modes", uid="u-1", generation=3, creation_timestamp=NOW)
    return msgspec.structs.replace(policy_under_test, metadata=metadata)


def audited(policy_under_test: DeviceCompatibilityPolicy) -> DeviceCompatibilityPolicy:
    spec = msgspec.structs.replace(policy_under_test.spec, enforcement=Enforcement.AUDIT)
    return msgspec.structs.replace(policy_under_test, spec=spec)


APART = policy(mig=only("mig"), mps=only("mps"))


def gpu(name: str, mode: str) -> Device:
    """A partition of one of the GPUs of a node; the name begins with that of the GPU."""
    return device(name, consumes(name.split("-", maxsplit=1)[0], x=1), attributes={"mode": mode})


NODE_DEVICES = (gpu("g0-a", "mig"), gpu("g0-b", "mps"), gpu("g0-c", "mps"), gpu("g1-a", "mig"))


SETS = (counter_set("g0", x=4), counter_set("g1", x=4))


def report(
    policy_under_test: DeviceCompatibilityPolicy = APART,
    devices: Sequence[Device] = NODE_DEVICES,
    claims: Sequence[ResourceClaim] = (),
    pools: Sequence[str] = ("node-1",),
    state: PoolState = PoolState.COMPLETE,
    *,
    drivers: Collection[str] = (DRIVER,),
    support: SchedulerSupport = SchedulerSupport(),  # noqa: B008 - a frozen value
) -> PolicyReport:
    policy_report = PolicyReport(policy_under_test, drivers, support)
    for pool in pools:
        listed = devices if state is PoolState.COMPLETE else ()
        policy_report.inspect(
            pool_of(*listed, counters=SETS, pool=pool, state=state), usage_of(claims)
        )
    return policy_report


def sliced(name: str, interval: str, namespace: str) -> ResourceClaim:
    """A claim that has a share of a GPU, with this interval of time slices."""
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return allocated_claim(
        result("g0-a", share=name),
        name=name,
        namespace=namespace,
        config=[
            applied_configuration(
                apiVersion="resource.nvidia.com/v1beta1", kind="GpuConfig", sharing=sharing
            )
        ],
    )


SLICED = (sliced("short", "Short", "here"), sliced("long", "Long", "there"))


def status(
    reported: PolicyReport, counting: DeviceCompatibilityPolicy | None = None
) -> DeviceCompatibilityPolicyStatus:
    return reported.status(None, counting or reported.policy.source, NOW)


HELD = (
    allocated_claim(result("g0-a"), name="mine", namespace="here"),
    allocated_claim(result("g0-b"), name="theirs", namespace="there"),
    allocated_claim(result("g0-c"), name="ours", namespace="here"),
)
