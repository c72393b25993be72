"""The status of a policy: a table per condition, the matrix, and conflicts in use."""

from typing import NamedTuple

import msgspec
import pytest

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.conflicts_in_use import find_policy_conflicts
from allocator.model.devices import PoolId, PoolState
from allocator.model.scheduler_support import SchedulerSupport
from controllers.policies.status import (
    PolicyReport,
    differs_in_more_than_counts,
    usage_of,
)
from controllers.policies.status import (
    pool_of as pool_of_slices,
)
from kube.api.meta import ObjectMeta, status_patch
from kube.api.policy import (
    MAX_EXAMPLES,
    MAX_MESSAGE,
    MAX_ROWS,
    Condition,
    Conflict,
    Conflicts,
    DeviceCompatibilityPolicyStatus,
    MatrixRow,
)
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    attribute_of,
    consumes,
    device,
    pool_of,
    result,
    rule,
    slice_of,
)
from testing.allocation.builders import policy as written
from testing.policy_status import (
    APART,
    HELD,
    MODE,
    NODE_DEVICES,
    NOW,
    SETS,
    SLICED,
    audited,
    gpu,
    only,
    policy,
    report,
    status,
)

LATER = "2026-11-20T13:00:00Z"


def condition(policy_status: DeviceCompatibilityPolicyStatus, kind: str) -> Condition:
    (reported,) = [
        condition_ for condition_ in policy_status.conditions or () if condition_.type == kind
    ]
    return reported


class Case(NamedTuple):
    name: str
    condition: str
    want: str
    message: str
    report: PolicyReport


AWARE = SchedulerSupport(policy_aware=frozenset(["aware"]))
OWNED = SchedulerSupport(owned_drivers=frozenset([APART.spec.driver]))
OWNS_ANOTHER = SchedulerSupport(owned_drivers=frozenset(["another.example.com"]))
GATE_ON = SchedulerSupport(compatibility_groups=True)
GROUPED = (
    device("g0-a", consumes("g0", x=1, groups=["mig"]), attributes={"mode": "mig"}),
    device("g0-b", consumes("g0", x=1, groups=["mps"]), attributes={"mode": "mps"}),
)

CASES = (
    Case("rules that compile and answer are valid", "Valid", "True Valid",
         f"1 pool of {DRIVER} inspected", report()),
    Case("a rule that does not compile is not", "Valid", "False RuleInvalid",
         "[ruleInvalid] spec.rules[0].compatibleOnlyWith.cel.expression: rule mig is invalid",
         report(policy(mig="device."))),
    Case("nor is it without devices", "Valid", "False RuleInvalid", "rule mig is invalid",
         report(policy(mig="device."), pools=())),
    Case("nor is one that raises on a device", "Valid", "False RuleEvaluationError",
         "no such key: y", report(policy(mig=f'{attribute_of("y")} == "1"'))),
    Case("a doubt is told and does not spoil it", "Valid", "True Valid",
         '[unknownLiteral] spec.rules[0].compatibleOnlyWith.cel.expression: rule mig compares '
         'gpu.example.com/mode with "mgi"', report(policy(mig=only("mgi")))),
    Case("without devices what compiles is valid", "Valid", "True Valid",
         "no device of the driver is published in a complete pool", report(pools=())),
    Case("what cannot be looked at is counted", "Valid", "True Valid", "no device of the driver",
         report(state=PoolState.INCOMPLETE)),
    Case("rules that agree are symmetric", "Symmetric", "True Symmetric",
         "no two devices disagree", report()),
    Case("rules that do not agree are not", "Symmetric", "False AsymmetricRule",
         "[asymmetricRule] the rule of g0-b does not accept g0-a, whose rule accepts g0-b",
         report(policy(mig=only("mig", "mps"), mps=only("mps")))),
    Case("a rule on one side only is told", "Symmetric", "True Symmetric", "[oneSidedRule]",
         report(policy(mig=only("mig"), mps=None))),
    Case("an error leaves it open", "Symmetric", "Unknown NotEvaluated", "some rules have errors",
         report(policy(mig=MODE))),
    Case("without devices nobody knows", "Symmetric", "Unknown NoDevices", "no device",
         report(pools=())),
    Case("the only policy of its driver is accepted", "Accepted", "True Accepted",
         "the policy of driver gpu.example.com; no devices in use violate it", report()),
    Case("conflicts are counted", "Accepted", "True Accepted",
         "devices in use violate it once, held by 2 claims in 2 namespaces",
         report(claims=(allocated_claim(result("g0-a"), name="one"),
                        allocated_claim(result("g0-b"), name="two", namespace="other")))),
    Case("kube-scheduler enforces no policy", "Enforced", "False NoPolicyAwareScheduler",
         "kube-scheduler ignores policies; it may allocate devices that this one keeps apart; "
         "only claims that violate it by themselves are rejected; to enforce it, give "
         "the driver to the bridge", report()),
    Case("a scheduler that evaluates policies does", "Enforced", "True PolicyAwareScheduler",
         "for pods with schedulerName aware; other schedulers ignore policies",
         report(support=AWARE)),
    Case("the bridge owns the driver", "Enforced", "True OwnedDriver",
         "the bridge owns the driver and allocates by its policy", report(support=OWNED)),
    Case("the bridge owns another driver", "Enforced", "False NoPolicyAwareScheduler",
         "kube-scheduler ignores policies", report(support=OWNS_ANOTHER)),
    Case("devices in use stay", "Enforced", "True PolicyAwareScheduler",
         "devices in use that violate it stay, and no device may join them",
         report(support=AWARE, claims=(allocated_claim(result("g0-a"), result("g0-b")),))),
    Case("an Audit policy rejects nothing", "Enforced", "False Audit",
         "spec.enforcement is Audit; nothing is rejected; to enforce it, set spec.enforcement "
         "to Enforce", report(audited(APART), support=AWARE)),
    Case("groups that say the same enforce it", "Enforced", "True CompatibilityGroups",
         "published compatibilityGroups reject what the policy rejects",
         report(devices=GROUPED, support=GATE_ON)),
    Case("not while the feature gate is off", "Enforced", "False NoPolicyAwareScheduler",
         "and enable DRADeviceCompatibilityGroups", report(devices=GROUPED)),
    Case("nor without groups", "Enforced", "False NoPolicyAwareScheduler",
         "publish compatibilityGroups that say the same", report(support=GATE_ON)),
    Case("nor without devices", "Enforced", "False NoPolicyAwareScheduler",
         "publish compatibilityGroups that say the same", report(support=GATE_ON, pools=())),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_condition(case: Case) -> None:
    condition_ = condition(status(case.report), case.condition)

    assert case.want == f"{condition_.status} {condition_.reason}"
    assert case.message in condition_.message
    assert 3 == condition_.observed_generation


def test_an_older_policy_of_the_driver_counts_instead() -> None:
    older = msgspec.structs.replace(APART, metadata=ObjectMeta(name="first", uid="u-0"))

    condition_ = condition(status(report(), older), "Accepted")

    assert ("False", "DuplicatePolicyForDriver") == (condition_.status, condition_.reason)
    assert (
        "DeviceCompatibilityPolicy first is for driver gpu.example.com too and older"
        in condition_.message
    )


def test_no_message_names_a_claim() -> None:
    claim_ = allocated_claim(result("g0-a"), result("g0-b"), name="secret", namespace="hidden")

    status_ = status(report(audited(APART), claims=(claim_,)))

    assert status_.conflicts is not None
    assert b"secret" not in msgspec.json.encode(status_)
    assert b"hidden" not in msgspec.json.encode(status_)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    before = status(report())
    broken = report(policy(mig="device.", mps=only("mps")))

    after = broken.status(before, APART, LATER)

    assert LATER == condition(after, "Valid").last_transition_time
    assert NOW == condition(after, "Accepted").last_transition_time
    assert NOW == condition(report().status(before, APART, LATER), "Valid").last_transition_time


# --- the matrix -----------------------------------------------------------------------------------


def test_the_matrix_counts_over_all_pools() -> None:
    status_ = status(report(pools=("node-1", "node-2", "node-3")))

    assert 2 == status_.rules
    assert "2 kinds, 2 of 4 pairs compatible" == status_.summary
    assert (
        MatrixRow(name="mig", devices=6, compatible_with=("mig",)),
        MatrixRow(name="mps", devices=6, compatible_with=("mps",)),
    ) == status_.matrix


def test_the_matrix_says_the_same_whatever_the_order_of_pools() -> None:
    pools = ("node-1", "node-2", "node-3")

    assert status(report(pools=pools)) == status(report(pools=pools[::-1]))


def test_what_is_forgotten_is_not_counted() -> None:
    report_ = report(pools=("node-1", "node-2"))
    report_.forget(PoolId(DRIVER, "node-2"))

    assert status(report()) == status(report_)


def test_a_pool_that_is_looked_at_again_counts_once() -> None:
    report_ = report()
    report_.inspect(pool_of(gpu("g0-a", "mig"), counters=SETS), usage_of(()))

    assert (MatrixRow(name="mig", devices=1, compatible_with=("mig",)),) == status(report_).matrix


def test_everything_is_bounded() -> None:
    names = [f"mode-{number}" for number in range(40)]
    many = policy(**{name: f'{MODE} == "{"x" * 200}{name}"' for name in names})
    devices = [gpu(f"g0-{number}", name) for number, name in enumerate(names)]
    allocated_claims = [
        allocated_claim(result(device_.name), name=device_.name) for device_ in devices
    ]

    status_ = status(report(many, devices, allocated_claims))

    assert MAX_ROWS == len(status_.matrix or ())
    assert status_.conflicts is not None
    assert MAX_EXAMPLES == len(status_.conflicts.examples or ())
    assert 40 * 39 // 2 == status_.conflicts.count
    assert all(len(condition_.message) <= MAX_MESSAGE for condition_ in status_.conditions or ())


# --- what is in use -------------------------------------------------------------------------------


def test_devices_in_use_that_exclude_each_other_are_reported_in_pairs() -> None:
    allocated_claims = (allocated_claim(result("g0-a"), name="a"), allocated_claim(result("g0-b"), name="b"),
            allocated_claim(result("g1-a"), name="c"))  # fmt: skip

    assert Conflicts(
        count=1,
        claims=2,
        namespaces=1,
        examples=(
            Conflict(
                pool="node-1",
                devices=("g0-a", "g0-b"),
                reason="the rule of device g0-b does not accept device g0-a",
            ),
        ),
    ) == status(report(claims=allocated_claims)).conflicts  # fmt: skip


def test_groups_that_only_all_of_them_lack_are_reported_as_one() -> None:
    groups = {"g0-a": "ab", "g0-b": "bc", "g0-c": "ac"}
    devices = [device(name, consumes("g0", x=1, groups=own)) for name, own in groups.items()]
    claim_ = allocated_claim(*(result(name) for name in groups))

    (policy_conflict,) = find_policy_conflicts(
        compile_policy(written(rule("all", only="true"))),
        pool_of(*devices, counters=SETS),
        usage_of([claim_]),
    )

    assert ("g0-a", "g0-b", "g0-c") == policy_conflict.devices
    assert "no compatibility group is common to all of counter set g0" == policy_conflict.reason


def test_shares_of_one_device_go_together() -> None:
    shares = (result("g0-a", share="1"), result("g0-a", share="2"))

    assert status(report(policy(mig="false"), claims=(allocated_claim(*shares),))).conflicts is None


def test_contradicting_configurations_of_one_device_are_a_conflict() -> None:
    report_ = report(claims=SLICED)

    assert (
        Conflicts(
            count=1,
            claims=2,
            namespaces=2,
            examples=(
                Conflict(
                    pool="node-1",
                    devices=("g0-a",),
                    reason="claims share device g0-a with contradicting GpuConfigs, and driver "
                    "gpu.example.com rejects a pod whose configuration differs from the first that it "
                    "prepared",
                ),
            ),
        )
        == status(report_).conflicts
    )
    assert status(report(claims=SLICED, drivers=())).conflicts is None


def test_what_an_administrator_looks_at_is_not_in_use() -> None:
    allocated_claims = (
        allocated_claim(result("g0-a")),
        allocated_claim(result("g0-b", admin_access=True), name="admin"),
    )

    assert status(report(claims=allocated_claims)).conflicts is None


# --- what is written ------------------------------------------------------------------------------


def test_a_patch_takes_away_what_is_not_there_any_more() -> None:
    patch = status_patch(APART.metadata, status(report(pools=())))

    assert {"uid": "u-1"} == patch["metadata"]
    assert patch["status"]["matrix"] is None
    assert patch["status"]["conflicts"] is None
    assert "no devices" == patch["status"]["summary"]


def test_numbers_alone_can_wait() -> None:
    status_, more = status(report()), status(report(pools=("node-1", "node-2")))

    assert status_ != more
    assert not differs_in_more_than_counts(status_, more)
    assert differs_in_more_than_counts(None, status_)
    assert differs_in_more_than_counts(status_, status(report(claims=HELD)))
    assert differs_in_more_than_counts(status_, status(report(devices=NODE_DEVICES[:1])))


def test_a_pool_is_made_of_all_its_slices() -> None:
    slices = [
        slice_of(counters=SETS, name="counters", count=2),
        slice_of(*NODE_DEVICES, name="devices", count=2),
        slice_of(gpu("old", "mig"), name="old", generation=0),
    ]

    pool = pool_of_slices(PoolId(DRIVER, "node-1"), slices)

    assert [node_device.name for node_device in NODE_DEVICES] == [
        device_.id.device for device_ in pool.devices
    ]
    assert PoolState.INCOMPLETE is pool_of_slices(pool.id, slices[:1]).state
    assert PoolState.INCOMPLETE is pool_of_slices(pool.id, ()).state
