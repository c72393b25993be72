"""The controller that removes scheduling gates from pods once DeviceQuotas have room for them.

One process decides: the leader. It charges a pod before it removes the gate, and goes on charging it whatever
becomes of the write. Before it lets a pod through that no quota limits, it reads whether a new one does. A new
leader first waits until no write of the one before can be under way, and then
lists pods and claims from a quorum. A write of a process that has lost the Lease is denied by a policy
(`admission.quota_gates`), and one that comes twice fails at the test of the gate.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from admission.fence import is_part_current
from admission.quota_gates import HOLDER_POLICY, gate_documents
from controllers.model.settings import ControllerSettings
from controllers.quotas.driver_owners import DriverOwners
from controllers.quotas.events import waiting_events
from controllers.quotas.feed import QuotaFeed
from controllers.quotas.unlimited_pods import UnlimitedPods
from kube.api.core import Pod
from kube.api.urls import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from kube.client.client import Client, PatchType
from kube.errors import Forbidden, KubeError, NotFound
from kube.logs import get_logger
from kube.names import FIELD_MANAGER_PREFIX, QUOTA_GATE
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, NewEventRecorder
from kube.runtime.informers import Subscription
from process.fairness.turns import Rests
from quotas.gates.admission_order import Decisions, decide, unknown_accounts
from quotas.gates.counted_objects import is_gated
from quotas.gates.tenants import waiting_by_tenant
from quotas.gates.usage import Key

WORKERS: Final = 8
"""Gates that are removed at a time."""
MARGIN_S: Final = 0.5
"""A write may take so much longer than its timeout, to be on the safe side."""
RESOURCES: Final[Mapping[str, Resource]] = {
    "MutatingAdmissionPolicy": MUTATING_ADMISSION_POLICIES,
    "MutatingAdmissionPolicyBinding": MUTATING_ADMISSION_POLICY_BINDINGS,
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": VALIDATING_ADMISSION_POLICY_BINDINGS,
}
NOT_CHECKED: Final = "whether the policies that hold pods back are installed is not known yet"
NOT_INSTALLED: Final = (
    "the policies that hold pods back are not installed; docs/quota-gates.md has the command"
)

_APPLY_AGAIN: Final = "apply the policies again, as docs/quota-gates.md says"
_ROUND: Final = "round"
_CONFIRMATION: Final = "confirmation"

log = get_logger()


class QuotaGateController:
    """Decides about the pods that wait; the leader runs it.

    Attributes:
        listeners: Called when `fault` has changed.
        controllers: The controllers to run.
    """

    def __init__(
        self,
        client: Client,
        feed: QuotaFeed,
        recorder: EventRecorder,
        settings: ControllerSettings,
        *,
        namespace: str,
        identity: str,
        owners: DriverOwners,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listen to the usage.

        Args:
            namespace: The namespace in which the controllers are installed.
            identity: The identity of the Lease's holder.
            owners: The drivers about which the bridge decides, or nobody while they are handed over.
            now: The wall clock, by which pods are created.
            clock: Monotonic seconds.
        """
        self._client = client
        self._feed = feed
        self._recorder = NewEventRecorder(recorder)
        self._settings = settings
        self._namespace = namespace
        self._field_manager = f"{FIELD_MANAGER_PREFIX}{identity}"
        self._owners = owners
        self._now = now
        self._clock = clock
        self._rests = Rests()
        self._tenant_rests = Rests()
        self._is_settled = False
        self._policy_fault = NOT_CHECKED
        self._denial = ""
        self._denied_pods: set[Key] = set()
        self.listeners: Final[list[Callable[[], None]]] = []
        subscriptions: tuple[Subscription[Any], ...] = (*feed.subscriptions, *owners.subscriptions)
        self._decisions: Controller[str] = Controller(
            "quota-gates", self._decide, subscriptions=subscriptions, backoff=settings.backoff()
        )
        self._removals: Controller[Key] = Controller(
            "quota-gate-removals",
            self._remove,
            subscriptions=subscriptions,
            backoff=settings.backoff(),
            workers=WORKERS,
        )
        self._unlimited = UnlimitedPods(client, feed)
        self._confirmations: Controller[str] = Controller(
            "quota-gate-confirmations",
            self._confirm,
            subscriptions=subscriptions,
            backoff=settings.backoff(),
        )
        self._checks: Controller[str] = Controller(
            "quota-gate-policies", self._check, subscriptions=(), backoff=settings.backoff()
        )
        self._checks.queue.add("")
        self._decisions.queue.add("")
        feed.listeners.append(self._usage_changed)
        owners.listeners.append(self._usage_changed)
        self.controllers: Final[Sequence[Controller[Any]]] = (
            self._decisions,
            self._removals,
            self._confirmations,
            self._checks,
        )

    @property
    def fault(self) -> str:
        """Return the reason nobody decides about pods; empty if somebody does."""
        return self._policy_fault or self._denial

    def _usage_changed(self) -> None:
        self._decisions.queue.add("")

    # --- decisions --------------------------------------------------------------------------------

    async def _decide(self, _: str) -> float | None:
        """Let pods through as far as there is room; return when to come back."""
        if not self._is_settled:
            await self._settle()
        began_s = self._clock()
        if left_s := self._rests.left_s(_ROUND, began_s):
            return left_s
        usage = self._feed.usage
        if self._policy_fault == NOT_INSTALLED and any(map(usage.waits, usage.pods.values())):
            # A pod with the gate may mean that they have been installed since.
            self._set_fault(await self._find_policy_fault(), self._denial)
        # Whoever deletes the policies wants no pod to wait.
        is_held = self._policy_fault != NOT_INSTALLED
        unconfirmed = self._unlimited.unconfirmed() if is_held else {}
        if unconfirmed:
            self._confirmations.queue.add("")
        withheld = self._owners.withheld(usage.book.tenants.drivers)
        # Outstanding claims are looked at once, and not for each tenant: users choose the number of both.
        unknown = unknown_accounts(usage)
        now_s, longest_s = self._now().timestamp(), 0.0
        later: list[float] = []
        for tenant, keys in waiting_by_tenant(usage).items():
            turn_s = self._clock()
            if left_s := self._tenant_rests.left_s(tenant, turn_s):
                later.append(left_s)
                continue
            decisions = decide(
                usage,
                withheld,
                now_s,
                waiting_pods=keys,
                unknown=unknown,
                is_held=is_held,
                unconfirmed=unconfirmed,
            )
            self._carry_out(decisions)
            ended_s = self._clock()
            self._tenant_rests.add(tenant, ended_s - turn_s, ended_s)
            longest_s = max(longest_s, ended_s - turn_s)
            if decisions.next_s is not None:
                later.append(decisions.next_s)
        # A round looks at all pods that wait; where these are many, changes wait for one another. The tenant that
        # has most of them has only itself wait.
        ended_s = self._clock()
        self._rests.add(_ROUND, ended_s - began_s - longest_s, ended_s)
        return min(later, default=None)

    def _carry_out(self, decisions: Decisions) -> None:
        """Queue the removals of gates, and record events about the pods that wait."""
        for key in decisions.let_through:
            self._removals.queue.add(key)
        for waiting in decisions.waiting:
            for event in waiting_events(waiting, self._feed.usage, self._recorder.is_new):
                self._recorder.record(event)
        if decisions.let_through:
            log.info("quota.let_through", pods=len(decisions.let_through))

    async def _confirm(self, _: str) -> float | None:
        """Read the quotas of pods that no known one limits; return when to come back."""
        began_s = self._clock()
        if left_s := self._rests.left_s(_CONFIRMATION, began_s):
            return left_s
        unconfirmed = self._unlimited.unconfirmed()
        if unconfirmed:
            await self._unlimited.confirm(unconfirmed)
            self._decisions.queue.add("")
        # Whoever may create pods may write the gate, and cause this.
        ended_s = self._clock()
        self._rests.add(_CONFIRMATION, ended_s - began_s, ended_s)
        return None

    async def _settle(self) -> None:
        """Wait for the last write of an earlier leader, and for all that it wrote."""
        await asyncio.sleep(self._settings.quota_gate_timeout + MARGIN_S)
        for subscription in (self._feed.pods, self._feed.claims):
            listing = self._client.pages(subscription.resource, limit=1)
            try:
                version = (await anext(listing)).resource_version
            finally:
                await listing.aclose()
            subscription.refresh()
            await subscription.wait_seen({("", ""): version})
        await self._feed.wait_pod_groups()
        self._is_settled = True
        log.info("quota.settled")

    # --- writes -----------------------------------------------------------------------------------

    async def _remove(self, key: Key) -> None:
        """Remove the gate of a pod that was let through."""
        pod = self._feed.pods.store.get(key)
        if pod is None or not is_gated(pod) or self._feed.usage.waits(pod):
            self._forget_denial(key)
            return
        try:
            raw = await self._client.patch(
                PODS,
                pod.metadata.name,
                removal_patch(pod),
                PatchType.JSON,
                msgspec.Raw,
                namespace=pod.metadata.namespace,
                field_manager=self._field_manager,
                timeout_s=self._settings.quota_gate_timeout,
            )
        except NotFound:
            self._forget_denial(key)
            return
        except Forbidden as error:
            log.warning("quota.removal_denied", pod="/".join(key), error=str(error))
            self._denied_pods.add(key)
            self._set_fault(self._policy_fault, f"the removal of a gate is denied: {error}")
            raise
        self._denied_pods.clear()  # Others that are still denied say so again.
        self._set_fault(self._policy_fault, "")
        self._feed.pods.put(bytes(raw))

    def _forget_denial(self, key: Key) -> None:
        """Forget the denial of a pod that needs no removal any more; the fault ends with the last one."""
        self._denied_pods.discard(key)
        if not self._denied_pods:
            self._set_fault(self._policy_fault, "")

    # --- policies ---------------------------------------------------------------------------------

    async def _check(self, _: str) -> float:
        """Compare the policies of the cluster with ours; return when to come back."""
        self._set_fault(await self._find_policy_fault(), self._denial)
        return self._settings.quota_gate_check_period

    def _set_fault(self, policy_fault: str, denial: str) -> None:
        if (policy_fault, denial) == (self._policy_fault, self._denial):
            return
        self._policy_fault, self._denial = policy_fault, denial
        self._decisions.queue.add("")
        for listener in self.listeners:
            listener()

    async def _find_policy_fault(self) -> str:
        """Describe the faults of the policies; while some of them are there, pods go on waiting."""
        faults: list[str] = []
        found_names: set[str] = set()
        for document in gate_documents(self._namespace):
            kind, name = document["kind"], document["metadata"]["name"]
            try:
                policy = await self._client.get(RESOURCES[kind], name, dict[str, Any])
            except NotFound:
                faults.append(f"{kind} {name} is missing")
                continue
            except KubeError as error:
                return f"{NOT_CHECKED}: {error}"
            found_names.add(name)
            if not is_part_current(policy, document):
                faults.append(
                    f"{kind} {name} is not that of this version for namespace {self._namespace}"
                )
        # Helm leaves this one, see `admission.quota_gates`.
        if not found_names - {HOLDER_POLICY}:
            return NOT_INSTALLED
        return f"{faults[0]}; {_APPLY_AGAIN}" if faults else ""


def removal_patch(pod: Pod) -> list[dict[str, Any]]:
    """Return the JSON patch that removes the gate of this very pod, and fails if it has none."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    path = f"/spec/schedulingGates/{gates.index(QUOTA_GATE)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"{path}/name", "value": QUOTA_GATE},
        {"op": "remove", "path": path},
    ]
