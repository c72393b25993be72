"""The pods that get through when not all of them can."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from allocator.declarations.model import GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup, PodGroupSpec, SchedulingPolicy
from allocator.model.feature_gates import Features
from controllers.quotas.events import waiting_events
from controllers.quotas.projections import project_quota_claim, project_quota_pod
from kube.api.device_quota import DeviceQuota, QuotaEnforcement, QuotaLimit
from kube.api.meta import rfc3339
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.ledger import Totals
from quotas.gates.admission_order import (
    GROUP_QUIET_S,
    MAX_PASSED_S,
    MISSING_S,
    Decisions,
    decide,
)
from quotas.gates.counted_objects import MAX_CLAIMS, TOO_MANY_CLAIMS, QuotaClaim
from quotas.gates.groups import KnownPodGroup, known_pod_group
from quotas.gates.usage import ALONE_S, QuotaUsage
from quotas.gates.waiting_note import waiting_note
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.counting import slow_by
from testing.device_quotas import capacity_limit, device_limit, quota

NOW = 1_795_000_000.0
ONE = 10**9
OTHER = "example.com/other"


class Stage:
    """A cluster with pods that are added in words."""

    def __init__(self, *quotas: DeviceQuota, clock: Callable[[], float] = time.monotonic) -> None:
        self.usage = QuotaUsage(Features(), clock)
        for each in quotas:
            self.usage.replace_quota(each.metadata.name, each)
        self.usage.replace_namespace("default", {})
        for name, device_class in classes().items():
            self.usage.replace_class(name, device_class)
        devices = (device(name, capacity={"memory": "80Gi"}) for name in "abcdefgh")
        self.usage.replace_slices({"a": slice_of(*devices)})

    def add(
        self,
        name: str,
        count: int = 1,
        *,
        age_s: float = 0,
        priority: int = 0,
        gates: Sequence[str] = (QUOTA_GATE,),
        claims: Sequence[str] | None = None,
        group: str = "",
        minimum: int = 0,
        scheduling_group: dict[str, str] | None = None,
        scheduler: str = "default-scheduler",
        **metadata: Any,
    ) -> None:
        """Add a pod with a claim of so many devices."""
        names = [name] if claims is None else claims
        if claims is None:
            self.usage.replace_claim(("default", name), requesting(count))
        created = rfc3339(datetime.fromtimestamp(NOW - age_s, UTC))
        annotations = {}
        if group:
            annotations["gang.scheduling.koordinator.sh/name"] = group
        if minimum:
            annotations["gang.scheduling.koordinator.sh/min-available"] = str(minimum)
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": created,
                "annotations": annotations,
                **metadata,
            },
            "spec": {
                "schedulingGroup": scheduling_group,
                "schedulerName": scheduler,
                "priority": priority,
                "schedulingGates": [{"name": gate} for gate in gates],
                "resourceClaims": [{"name": each, "resourceClaimName": each} for each in names],
            },
        }
        self.usage.replace_pod(("default", name), project_quota_pod(msgspec.json.encode(document)))

    def remove(self, name: str) -> None:
        """Remove a pod, and its claim with it."""
        self.usage.replace_pod(("default", name), None)
        self.usage.replace_claim(("default", name), None)

    def decide(self, *, now_s: float = NOW, **options: Any) -> Decisions:
        self.charge()
        return decide(self.usage, options.pop("withheld", {}), now_s, **options)

    def charge(self) -> None:
        for key in tuple(self.usage.book.outstanding):
            self.usage.book.charge(key)

    def totals(self) -> Totals:
        (account,) = self.usage.book.accounts("default")
        return self.usage.book.ledger.totals(account)


def requesting(count: int = 1) -> QuotaClaim:
    document = msgspec.to_builtins(claim(request(count=count)), enc_hook=str)
    return project_quota_claim(msgspec.json.encode(document))


def names(decisions: Decisions) -> list[str]:
    return [name for _, name in decisions.let_through]


def test_pods_come_through_by_priority_then_by_age() -> None:
    stage = Stage(quota(device_limit(3)))
    stage.add("young")
    stage.add("old", age_s=60)
    stage.add("important", priority=10)
    stage.add("oldest", age_s=90)

    assert names(stage.decide()) == ["important", "oldest", "old"]
    assert stage.totals() == Totals(promised=3 * ONE, waiting=ONE)


def test_the_second_round_remembers_the_first() -> None:
    stage = Stage(quota(device_limit(1)))
    stage.add("first", age_s=1)
    stage.add("second")
    assert names(stage.decide()) == ["first"]

    assert names(stage.decide()) == []

    stage.remove("first")
    assert names(stage.decide()) == ["second"]


def test_a_smaller_pod_passes_a_larger_one_for_ten_minutes() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("running", 2, gates=())
    stage.add("large", 4, age_s=MAX_PASSED_S - 1)
    stage.add("small")

    decisions = stage.decide()

    assert names(decisions) == ["small"]
    assert decisions.next_s == 1


def test_then_the_budget_is_saved_for_the_larger() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("running", 2, gates=())
    stage.add("large", 4, age_s=MAX_PASSED_S)
    stage.add("small")

    decisions = stage.decide()

    assert names(decisions) == []
    assert [waiting.is_saved for waiting in decisions.waiting] == [False, True]

    stage.remove("running")
    assert names(stage.decide()) == ["large"]


def test_nothing_is_saved_for_what_never_fits() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("impossible", 5, age_s=10 * MAX_PASSED_S)
    stage.add("small")

    assert names(stage.decide()) == ["small"]


def test_every_quota_has_to_have_room() -> None:
    stage = Stage(
        quota(device_limit(8), name="devices"),
        quota(capacity_limit("memory", "100Gi"), name="memory"),
    )
    stage.add("first", age_s=1)
    stage.add("second")

    assert names(stage.decide()) == ["first"]


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"is_held": False}, {}),
        ({}, {"enforcement": QuotaEnforcement.AUDIT}),
    ],
)
def test_nobody_waits_where_nothing_is_to_be_held(options: Any, most: Any) -> None:
    stage = Stage(quota(device_limit(0), **most))
    stage.add("pod")
    stage.add("unknown", claims=["missing"])

    assert names(stage.decide(**options)) == ["pod", "unknown"]


def test_nothing_is_promised_of_a_driver_about_which_another_decides() -> None:
    """Such pods were let through without a charge, and all of them got devices once the bridge gave up its driver."""
    stage = Stage(quota(device_limit(8)))
    stage.add("pod", age_s=MISSING_S)

    (waiting,) = stage.decide(withheld={DRIVER: "the bridge decides"}).waiting

    assert waiting_note(waiting, stage.usage.book.ledger) == "the bridge decides"
    assert stage.totals() == Totals(waiting=ONE)
    assert names(stage.decide(withheld={"other.example.com": ""})) == ["pod"]


def test_a_pod_of_the_bridge_that_has_the_gate_waits_for_nothing() -> None:
    """The bridge decides about it, and nobody else may remove the gate."""
    stage = Stage(quota(device_limit(1)))
    stage.add("pod", count=2, scheduler=SCHEDULER_NAME)

    assert names(stage.decide(withheld={DRIVER: "the bridge decides"})) == ["pod"]
    assert stage.totals() == Totals(waiting=2 * ONE)


def test_what_a_pod_waits_for_is_reported_after_a_while_only() -> None:
    """A driver is handed over within seconds."""
    stage = Stage(quota(device_limit(8)))
    stage.add("pod")

    decisions = stage.decide(withheld={DRIVER: "it is handed over"})

    assert (decisions.waiting, decisions.next_s) == ((), MISSING_S)


def test_pods_of_other_devices_pass_a_pod_of_a_driver_that_is_handed_over() -> None:
    stage = Stage(quota(device_limit(8)))
    stage.add("pod", age_s=10 * MAX_PASSED_S)
    stage.add("none", claims=())

    assert names(stage.decide(withheld={DRIVER: ""})) == ["none"]


def test_a_pod_without_its_claims_waits_for_them() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("pod", claims=["later"])
    assert names(stage.decide()) == []

    stage.usage.replace_claim(("default", "later"), requesting())
    assert names(stage.decide()) == ["pod"]


def test_a_shared_claim_is_charged_with_its_first_pod() -> None:
    stage = Stage(quota(device_limit(1)))
    stage.usage.replace_claim(("default", "shared"), requesting())
    for number in range(10):
        stage.add(f"pod-{number}", claims=["shared"])

    assert len(names(stage.decide())) == 10
    assert stage.totals() == Totals(promised=ONE)


def test_our_gate_is_the_last_to_be_removed() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("pod", gates=(OTHER, QUOTA_GATE))
    assert names(stage.decide()) == []

    stage.add("pod")
    assert names(stage.decide()) == ["pod"]


def test_two_gates_that_are_both_removed_last_do_not_wait_for_each_other_for_ever() -> None:
    clock = [0.0]
    stage = Stage(quota(device_limit(4)), clock=lambda: clock[0])
    stage.add("pair", gates=(OTHER, QUOTA_GATE))
    stage.add("three", gates=(OTHER, "example.com/third", QUOTA_GATE))
    assert stage.decide().next_s == ALONE_S

    clock[0] = ALONE_S - 1
    stage.add("pair", gates=(OTHER, QUOTA_GATE))
    assert stage.decide() == Decisions((), (), 1.0)

    clock[0] = ALONE_S
    assert names(stage.decide()) == ["pair"]
    assert stage.totals().promised == ONE


def test_a_pod_that_is_held_back_otherwise_holds_nobody_up() -> None:
    stage = Stage(quota(device_limit(1)))
    stage.add("queued", age_s=10 * MAX_PASSED_S, gates=(OTHER, QUOTA_GATE))
    stage.add("pod")

    assert names(stage.decide()) == ["pod"]


def test_a_pod_that_is_being_deleted_gets_nothing() -> None:
    stage = Stage(quota(device_limit(1)))
    stage.add("leaving", age_s=1, deletionTimestamp="2026-11-24T13:00:00Z")
    stage.add("pod")

    assert names(stage.decide()) == ["pod"]


def test_nothing_is_decided_while_charges_are_not_known() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("pod")
    stage.charge()
    stage.add("running", gates=())  # Its charge is outstanding.

    assert names(decide(stage.usage, {}, NOW)) == []
    assert names(stage.decide()) == ["pod"]


# --- groups ---------------------------------------------------------------------------------------


def test_a_group_comes_through_together_or_not_at_all() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("running", gates=())
    for number in range(4):
        stage.add(f"member-{number}", group="ring", minimum=4, age_s=20)
    assert names(stage.decide()) == []

    stage.remove("running")
    assert len(names(stage.decide())) == 4


def test_a_group_waits_for_its_members_however_long_that_takes() -> None:
    """Three of four came through after ten seconds, and held a budget that was of no use to them."""
    stage = Stage(quota(device_limit(4)))
    for number in range(3):
        stage.add(f"member-{number}", group="ring", minimum=4)
    decisions = stage.decide()
    assert (names(decisions), decisions.waiting, decisions.next_s) == ([], (), MISSING_S)

    (waiting,) = stage.decide(now_s=NOW + MAX_PASSED_S).waiting
    assert waiting_note(waiting, stage.usage.book.ledger) == (
        "Koordinator gang default/ring needs 4 pods, and has 3; they get through together, once there are "
        "enough"
    )

    stage.add("member-3", group="ring", minimum=4)
    assert len(names(stage.decide())) == 4


def test_members_that_need_no_devices_count() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("worker", group="ring", minimum=2)
    assert names(stage.decide(now_s=NOW + MAX_PASSED_S)) == []

    stage.add("launcher", claims=(), gates=(), group="ring", minimum=2)
    assert names(stage.decide()) == ["worker"]


def test_a_member_that_is_made_again_counts_with_those_that_run() -> None:
    stage = Stage(quota(device_limit(4)))
    for number in range(3):
        stage.add(f"member-{number}", group="ring", minimum=4, gates=())
    stage.add("again", group="ring", minimum=4)

    assert names(stage.decide()) == ["again"]


def test_a_member_that_is_made_again_does_not_wait_for_members_that_have_ended() -> None:
    stage = Stage(quota(device_limit(4)))
    for number in range(2):
        stage.add(f"member-{number}", group="ring", minimum=4, gates=())
    stage.add("again", group="ring", minimum=4)

    assert names(stage.decide()) == ["again"]


def test_the_rest_of_a_half_group_goes_first() -> None:
    """A leader that is lost between two removals leaves half a group behind."""
    stage = Stage(quota(device_limit(4)))
    stage.add("old", age_s=60)
    for number in range(4):
        gates = () if number < 2 else (QUOTA_GATE,)
        stage.add(f"member-{number}", group="ring", minimum=4, gates=gates)

    assert names(stage.decide()) == ["member-2", "member-3"]


def test_more_members_than_are_needed_come_through_as_far_as_there_is_room() -> None:
    stage = Stage(quota(device_limit(3)))
    for number in range(5):
        stage.add(f"member-{number}", group="ring", minimum=2, age_s=9 - number)

    decisions = stage.decide()
    assert (names(decisions), decisions.next_s) == (["member-0", "member-1"], 0)

    decisions = stage.decide()
    assert names(decisions) == ["member-2"]
    assert [waiting.unit.pods for waiting in decisions.waiting] == [
        (("default", "member-3"),),
        (("default", "member-4"),),
    ]


def test_a_group_larger_than_it_needs_comes_through_at_once_where_there_is_room() -> None:
    stage = Stage(quota(device_limit(8)))
    for number in range(5):
        stage.add(f"member-{number}", group="ring", minimum=2)

    assert len(names(stage.decide())) == 5


def test_a_group_that_fits_not_even_with_its_minimum_is_told_so() -> None:
    stage = Stage(quota(device_limit(2)))
    for number in range(5):
        stage.add(f"member-{number}", group="ring", minimum=3)

    (waiting,) = stage.decide().waiting
    assert waiting_note(waiting, stage.usage.book.ledger) == (
        "DeviceQuota team, limit devices: 3 devices needed, 2 of 2 devices left; "
        "this pod never gets through unless the limit is raised; 3 pods of the group wait together"
    )
    assert len(waiting.unit.pods) == 5


GROUP_DECLARATIONS: Mapping[GroupSystem, dict[str, Any]] = {
    GroupSystem.KUBERNETES: {"scheduling_group": {"podGroupName": "ring"}},
    GroupSystem.KOORDINATOR: {"labels": {"pod-group.scheduling.sigs.k8s.io": "ring"}},
    GroupSystem.VOLCANO: {"annotations": {"scheduling.k8s.io/group-name": "ring"}},
    GroupSystem.COSCHEDULING: {"labels": {"scheduling.x-k8s.io/pod-group": "ring"}},
    GroupSystem.KAI: {"annotations": {"pod-group-name": "ring"}},
}


@pytest.mark.parametrize("system", GROUP_DECLARATIONS)
def test_the_minimum_of_a_pod_group_counts(system: GroupSystem) -> None:
    stage = Stage(quota(device_limit(4)))
    for number in range(3):
        stage.add(f"member-{number}", **GROUP_DECLARATIONS[system])

    (waiting,) = stage.decide(now_s=NOW + MAX_PASSED_S).waiting
    (event, *_) = waiting_events(waiting, stage.usage, lambda _: True)
    assert event.note == (
        f"{system} default/ring does not exist; how many pods it needs is not known, so its pods wait until it "
        "is made"
    )

    stage.usage.groups.replace_pod_group(GroupName(system, "default", "ring"), KnownPodGroup(4))
    (waiting,) = stage.decide(now_s=NOW + MAX_PASSED_S).waiting
    (later, *_) = waiting_events(waiting, stage.usage, lambda _: True)
    assert later.note.startswith(f"{system} default/ring needs 4 pods, and has 3")
    assert later.name != event.name

    stage.add("member-3", **GROUP_DECLARATIONS[system])
    assert len(names(stage.decide())) == 4


def test_a_pod_without_its_pod_group_is_told_so_before_its_claims() -> None:
    """kube-controller-manager makes no claims for such a pod."""
    stage = Stage(quota(device_limit(4)))
    stage.add("member", claims=["missing"], **GROUP_DECLARATIONS[GroupSystem.KUBERNETES])

    (waiting,) = stage.decide(now_s=NOW + MAX_PASSED_S).waiting
    note = waiting_note(waiting, stage.usage.book.ledger)
    assert note.startswith("PodGroup default/ring does not exist")


def test_where_nothing_tells_the_minimum_a_group_is_complete_after_a_while() -> None:
    """The API server has no PodGroups of this kind."""
    stage = Stage(quota(device_limit(4)))
    stage.usage.groups.served = ()
    stage.add("member", **GROUP_DECLARATIONS[GroupSystem.VOLCANO])

    decisions = stage.decide()
    assert (names(decisions), decisions.next_s) == ([], GROUP_QUIET_S)

    assert names(stage.decide(now_s=NOW + GROUP_QUIET_S)) == ["member"]


def test_pods_of_a_group_that_are_placed_one_by_one_come_through_so() -> None:
    stage = Stage(quota(device_limit(1)))
    for number in range(2):
        stage.add(f"member-{number}", age_s=-number, **GROUP_DECLARATIONS[GroupSystem.KUBERNETES])
    basic = PodGroup(spec=PodGroupSpec(scheduling_policy=SchedulingPolicy(basic={})))
    stage.usage.groups.replace_pod_group(
        GroupName(GroupSystem.KUBERNETES, "default", "ring"),
        known_pod_group(basic, GroupSystem.KUBERNETES),
    )

    assert names(stage.decide()) == ["member-0"]


def test_members_that_no_quota_charges_do_not_wait_for_others() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("member", claims=(), group="ring", minimum=4)

    assert names(stage.decide()) == ["member"]


def test_kueue_declares_the_number_of_its_pods() -> None:
    stage = Stage(quota(device_limit(4)))
    labels = {"kueue.x-k8s.io/pod-group-name": "ring"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    stage.add("member-0", labels=labels, annotations=annotations)
    (waiting,) = stage.decide(now_s=NOW + MAX_PASSED_S).waiting
    note = waiting_note(waiting, stage.usage.book.ledger)
    assert note.startswith("Kueue pod group default/ring needs 2 pods, and has 1")

    stage.add("member-1", labels=labels, annotations=annotations)
    assert len(names(stage.decide())) == 2


@pytest.mark.parametrize(
    "annotations",
    [
        {"pod-group-name": "Not a name"},
        {"pod-group-name": "x" * 100_000},
        {
            "gang.scheduling.koordinator.sh/name": "ring",
            "gang.scheduling.koordinator.sh/min-available": "many",
        },
    ],
)
def test_what_its_scheduler_rejects_makes_no_group(annotations: dict[str, str]) -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("member", annotations=annotations)

    assert names(stage.decide()) == ["member"]
    assert len(str(stage.usage.pods)) < 10_000


# --- words ----------------------------------------------------------------------------------------


def test_a_pod_that_names_a_missing_claim_is_told_so_after_a_while() -> None:
    """It waited for good without a word, as the claim is to be made by the maker of the pod."""
    stage = Stage(quota(device_limit(1)))
    stage.add("young", claims=["missing"], age_s=4)

    decisions = stage.decide()
    assert (decisions.let_through, decisions.waiting, decisions.next_s) == ((), (), 6)

    decisions = stage.decide(now_s=NOW + 6)
    (waiting,) = decisions.waiting
    (event,) = waiting_events(waiting, stage.usage, lambda _: True)
    assert event.note == (
        "claim missing does not exist; what it will ask for is not known, so the pod waits until it is made"
    )

    stage.add("user", age_s=60)
    assert names(stage.decide()) == ["user"]
    stage.usage.replace_claim(("default", "missing"), requesting())
    (waiting,) = stage.decide(now_s=NOW + 6).waiting
    (later,) = waiting_events(waiting, stage.usage, lambda _: True)
    assert "0 of 1 device left" in later.note
    assert later.name != event.name


def test_a_waiting_pod_is_told_what_is_missing_and_who_has_it() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("running", 3, gates=())
    stage.add("pod", 2)

    (waiting,) = stage.decide().waiting
    (event,) = waiting_events(waiting, stage.usage, lambda _: True)

    assert event.note == (
        "DeviceQuota team, limit devices: 2 devices needed, 1 of 4 devices left; "
        "namespace default has 3 devices"
    )
    assert (event.reason, event.regarding.name) == ("WaitingForDeviceQuota", "pod")


def test_what_never_gets_through_is_told_so() -> None:
    stage = Stage(quota(device_limit(4, per_request="1")))
    stage.add("pod", 2)

    (waiting,) = stage.decide().waiting

    assert waiting_note(waiting, stage.usage.book.ledger) == (
        "DeviceQuota team, limit devices: 2 devices for a request, at most 1 device allowed; "
        "this pod never gets through unless the limit is raised"
    )


def test_pods_that_come_before_the_devices_of_which_a_change_told_wait_for_them() -> None:
    stage = Stage(quota(device_limit(8)))
    stage.add("before")
    stage.usage.expect_slices()
    stage.add("meanwhile")

    assert stage.decide().let_through == (("default", "before"),)

    stage.usage.replace_slices({})
    assert stage.decide().let_through == (("default", "meanwhile"),)


@pytest.mark.parametrize(
    "limit",
    [device_limit(1), device_limit(8, per_request="1"), capacity_limit("memory", "80Gi")],
    ids=["full", "cap", "memory"],
)
def test_a_pod_that_waits_goes_on_waiting_while_its_devices_are_away(limit: QuotaLimit) -> None:
    """A driver that is restarted publishes none for a while; all that waited got through."""
    stage = Stage(quota(limit))
    stage.add("holder", claims=["holder"])
    stage.usage.replace_claim(("default", "holder"), requesting(1))
    stage.add("second", count=2)
    assert names(stage.decide()) == ["holder"]

    stage.usage.replace_slices({"a": None})

    assert names(stage.decide()) == []
    stage.usage.replace_slices({"a": slice_of(device("a", capacity={"memory": "80Gi"}))})
    assert names(stage.decide()) == []


def test_what_waits_gets_through_without_devices_once_there_is_room() -> None:
    """Else no autoscaler would add the first node of that kind."""
    stage = Stage(quota(device_limit(2)))
    stage.add("holder", count=2, age_s=2)
    stage.add("second", age_s=1)
    assert names(stage.decide()) == ["holder"]
    stage.usage.replace_slices({"a": None})
    assert names(stage.decide()) == []

    stage.remove("holder")

    assert names(stage.decide()) == ["second"]


@pytest.mark.parametrize("change", ["class", "claim", "quota"])
def test_what_a_pod_waited_with_is_forgotten_when_it_asks_for_something_else(change: str) -> None:
    stage = Stage(quota(device_limit(0)))
    stage.add("pod")
    assert names(stage.decide()) == []
    stage.usage.replace_slices({"a": None})
    assert names(stage.decide()) == []

    match change:
        case "class":
            (device_class, *_) = classes().values()
            stage.usage.replace_class(device_class.metadata.name, device_class)
        case "claim":
            stage.usage.replace_claim(("default", "pod"), requesting(2))
        case _:
            stage.usage.replace_quota("team", None)

    assert names(stage.decide()) == ["pod"]


def test_memory_in_use_counts_while_its_devices_are_away() -> None:
    stage = Stage(quota(capacity_limit("memory", "80Gi")))
    holder = msgspec.to_builtins(allocated_claim(result("a")), enc_hook=str)
    stage.usage.replace_claim(("default", "h"), project_quota_claim(msgspec.json.encode(holder)))
    stage.add("pod")
    assert names(stage.decide()) == []

    stage.usage.replace_slices({"a": None})

    assert names(stage.decide()) == []
    stage.usage.replace_claim(("default", "h"), None)
    assert names(stage.decide()) == ["pod"]


def test_nothing_is_promised_of_a_driver_of_another_while_its_devices_are_away() -> None:
    stage = Stage(quota(device_limit(8)))
    stage.add("pod", age_s=MISSING_S)
    withheld = {DRIVER: "the bridge decides"}
    assert names(stage.decide(withheld=withheld)) == []

    stage.usage.replace_slices({"a": None})

    assert names(stage.decide(withheld=withheld)) == []


# --- long pods ------------------------------------------------------------------------------------


def test_a_pod_with_too_many_claims_never_gets_through_and_is_told_so() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("long", claims=[f"c{number}" for number in range(MAX_CLAIMS + 1)], age_s=MISSING_S)
    stage.add("short")

    decisions = stage.decide()

    assert names(decisions) == ["short"]
    (waiting,) = decisions.waiting
    assert waiting_note(waiting, stage.usage.book.ledger) == TOO_MANY_CLAIMS


def test_a_pod_with_as_many_claims_as_it_may_have_gets_through() -> None:
    stage = Stage(quota(device_limit(MAX_CLAIMS)))
    claims = [f"c{number}" for number in range(MAX_CLAIMS)]
    for name in claims:
        stage.usage.replace_claim(("default", name), requesting())
    stage.add("long", claims=claims)

    assert names(stage.decide()) == ["long"]
    assert stage.totals() == Totals(promised=MAX_CLAIMS * ONE)


def test_where_nothing_is_limited_a_pod_may_have_any_number_of_claims() -> None:
    stage = Stage()
    stage.add("long", claims=[f"c{number}" for number in range(MAX_CLAIMS + 1)])

    assert names(stage.decide()) == ["long"]


def test_a_round_does_not_look_at_the_claims_of_pods_that_never_get_through() -> None:
    """Each round took 20 ms for each pod that named 4,000 claims, and everybody else waited for it."""
    stage = Stage(quota(device_limit(4)))
    for number in range(10):
        claims = [f"c{number}-{index}" for index in range(4000)]
        stage.add(f"long-{number}", claims=claims, age_s=MISSING_S)
    began_s = time.process_time()

    decisions = stage.decide()

    assert len(decisions.waiting) == 10
    assert time.process_time() - began_s < 0.05 * slow_by()


def test_a_change_that_concerns_no_claim_charges_none_anew() -> None:
    stage = Stage(quota(device_limit(4)))
    stage.add("pod")
    assert names(stage.decide()) == ["pod"]
    stage.charge()
    key = ("default", "pod")
    pod = stage.usage.pods[key]

    later = msgspec.structs.replace(pod.metadata, resource_version="2")
    stage.usage.replace_pod(key, msgspec.structs.replace(pod, metadata=later))

    assert not stage.usage.book.outstanding
    assert stage.totals() == Totals(promised=ONE)
