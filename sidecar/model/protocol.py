"""The protocol between the scheduler plugin and the sidecar: JSON over a unix socket.

Every call is a POST below `/v1`. The plugin decides nothing: it passes on what the scheduler hands it,
and does what the answer says. docs/bridge.md, section Protocol, has the rules in words.

A reservation costs no call: the scheduler reserves in its serial cycle, and the plugin numbers the
reservation and sends it with each later call until an answer acknowledges it. Whatever arrives twice,
late or out of order changes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from kube.api.core import Pod

PREFIX: Final = "/v1"
MAX_NODES: Final = 100
"""Names in an answer, unless all are asked for. The scheduler never samples so few.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one.go, minFeasibleNodesToFind."""

MAX_AMOUNT: Final = (1 << 63) - 1
"""The largest number that the plugin can send."""

MAX_INT32: Final = (1 << 31) - 1
"""The largest number of pods, and the highest priority, that the API can store."""


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The base of requests and answers."""


class Verdict(StrEnum):
    """The verdict on a pod."""

    SKIP = "skip"
    """PreFilter: the pod needs no devices; the plugin has nothing to do with it."""
    FITS = "fits"
    """PreFilter: on the nodes of the answer."""
    UNSCHEDULABLE = "unschedulable"
    """PreFilter: fits nowhere, but victims could help. PreBind: the devices are gone; try again."""
    UNRESOLVABLE = "unresolvable"
    """PreFilter: fits nowhere, and no victim can help."""
    ERROR = "error"
    """The attempt failed and is to be repeated."""
    OK = "ok"
    """PreBind: the claims are allocated and reserved for the pod."""
    CONTINUE = "continue"
    """PostFilter: nothing was released; preemption may look for victims."""
    WAIT = "wait"
    """PostFilter: devices of pods that are gone are being released; no further victim. PreBind: others of the
    group are waited for; ask again after `retryMillis`."""
    RELEASED = "released"
    """PostFilter: a claim of the pod was deallocated; its event wakes the pod."""
    RETRY = "retry"
    """PostFilter of a group: it fits by devices, CPU and memory, so it is tried again at once."""


class GroupPolicy(StrEnum):
    """The schedulingPolicy of a PodGroup."""

    GANG = "gang"
    """`minCount` pods get their nodes together, or none does."""
    BASIC = "basic"
    """Each pod is placed for itself."""


class GroupReference(Message, frozen=True, kw_only=True):
    """A PodGroup.

    Attributes:
        min_count: The number of pods that it needs, those that have a node among them; 1 with `basic`.
        priority: The priority of its pods.
        created: Its creationTimestamp; empty if the plugin does not know it.
    """

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    namespace: str = ""
    name: str = ""
    min_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT32)] = 1
    policy: GroupPolicy = GroupPolicy.GANG
    priority: Annotated[int, msgspec.Meta(ge=-MAX_INT32 - 1, le=MAX_INT32)] = 0
    created: str = ""


class Reservation(Message, frozen=True, kw_only=True):
    """A node that the scheduler reserved for a pod.

    Attributes:
        number: The number of this reservation; 1 for the first of a scheduler, then growing.
        node: Its name.
        group: The PodGroup in whose cycle the pod was reserved; None for a pod by itself.
    """

    number: int
    pod_uid: str = msgspec.field(name="podUID")
    pod_namespace: str = ""
    pod_name: str = ""
    node: str = ""
    group: GroupReference | None = None


class Request(Message, frozen=True, kw_only=True):
    """The fields of every request.

    Attributes:
        scheduler: Random text of this scheduler process.
        instance: `instance` of the last answer to hello.
        reservations: The reservations that no answer has acknowledged; in hello, all that are in
            force.
        unreserved: Numbers of reservations that were given up, until an answer came to a request
            that carried them.
        deadline_millis: The plugin's wait for the answer, in milliseconds; a decision ends with it,
            and so does the choice of the devices of reserved pods. 0 if the plugin does not say.
    """

    scheduler: str = ""
    instance: str = ""
    reservations: tuple[Reservation, ...] = ()
    unreserved: tuple[int, ...] = ()
    deadline_millis: int = 0


class HelloRequest(Request, frozen=True, kw_only=True):
    """POST /v1/hello: the first call of a scheduler, the one after status 409, and its heartbeat.

    From a scheduler that is not known, `reservations` replace those of the one before. Otherwise it
    is a request as any other.

    Attributes:
        usual_pods: The number of the last `UsualPods` that the plugin has, 0 without any; None if it wants none.
    """

    usual_pods: int | None = None


_Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
_NodeName = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class NodeHeadroom(Message, frozen=True, kw_only=True):
    """The resources that the pods on a node leave, those that are only assumed to be there included.

    Attributes:
        name: The node's name.
        cpu_milli: CPU in thousandths of a core.
        memory: Memory in bytes.
        pods: Number of further pods.
    """

    name: _NodeName
    cpu_milli: _Amount
    memory: _Amount
    pods: _Amount


class HeadroomChanges(Message, frozen=True, kw_only=True):
    """The nodes that changed since an earlier request.

    Attributes:
        number: The number of these changes; it grows.
        since: The number that they add to; 0 if they replace all that there was.
        nodes: Nodes that are new, or have something else left.
        removed: Names of nodes that are gone.
    """

    number: _Amount = 0
    since: _Amount = 0
    nodes: tuple[NodeHeadroom, ...] = ()
    removed: tuple[_NodeName, ...] = ()

    def __post_init__(self) -> None:
        """Reject changes that contradict each other."""
        names = [*(node.name for node in self.nodes), *self.removed]
        if len(set(names)) < len(names):
            raise ValueError("a node is named twice; name each once, in `nodes` or in `removed`")
        if self.since > self.number:
            raise ValueError(f"since {self.since} is above number {self.number}")


class ResourceRequests(Message, frozen=True, kw_only=True):
    """The requests of a pod for resources of its node.

    Attributes:
        cpu_milli: CPU in thousandths of a core.
        memory: Memory in bytes.
    """

    cpu_milli: _Amount = 0
    memory: _Amount = 0


class PreFilterRequest(Request, frozen=True, kw_only=True):
    """POST /v1/prefilter: asks for the nodes that fit this pod.

    Attributes:
        pod: The fields of it that are read here; `bridge/sidecar/pods.go` leaves out the others.
        claim_versions: `namespace/name` of each claim of the pod that the plugin's informer has to
            its resourceVersion; the sidecar waits until it has seen them, too.
        newest_claim_version: The newest resourceVersion of any claim that the plugin has seen: a
            release of another claim may be what woke the pod. Waited for, too, but not for long.
        all: Answer with all nodes that fit: the best did not pass the other filters.
        headroom: The changes on the nodes.
        requests: The amounts that NodeResourcesFit compares with them; None if it does not.
        usual_pods: The same fields as in hello.
    """

    pod: Pod
    claim_versions: Mapping[str, str] = {}
    newest_claim_version: str = ""
    all: bool = False
    headroom: HeadroomChanges | None = None
    requests: ResourceRequests | None = None
    usual_pods: int | None = None


class PlacedMember(Message, frozen=True, kw_only=True):
    """A pod of a group that is bound, or assumed to be, on a node."""

    pod_uid: str = msgspec.field(name="podUID")
    node: _NodeName


class GroupRequest(Request, frozen=True, kw_only=True):
    """POST /v1/group: asks for the nodes that fit the pods of this group together.

    Attributes:
        group: The PodGroup.
        pods: All of its pods without a node, as for PreFilter, in the scheduler's order; none in a what-if with
            those of the one before.
        placed: Its other pods.
        requests: UID of a pod to what NodeResourcesFit compares with the nodes; without one for each pod,
            what nodes have left does not count.
        claim_versions: The same versions as for PreFilter, for all pods.
        newest_claim_version: The same version as for PreFilter.
        headroom: The changes on the nodes; None in a dry run.
        removed: UIDs of pods that are taken to be gone; only in a what-if.
        what_if: Preemption asks what would be without `removed`: nothing is remembered or promised.
        pinned: UID of a pod to the only node that it may get; only in a what-if.
        excluded: UID of a pod to the nodes that other filters turned down for it.
        topology: A label of nodes of which all pods need one value; empty for none.
    """

    group: GroupReference
    pods: tuple[Pod, ...] = ()
    placed: tuple[PlacedMember, ...] = ()
    requests: Mapping[str, ResourceRequests] = {}
    claim_versions: Mapping[str, str] = {}
    newest_claim_version: str = ""
    headroom: HeadroomChanges | None = None
    removed: tuple[str, ...] = ()
    what_if: bool = False
    pinned: Mapping[str, _NodeName] = {}
    excluded: Mapping[str, tuple[_NodeName, ...]] = {}
    topology: str = ""

    def __post_init__(self) -> None:
        """Reject a request with parts that contradict each other."""
        uids = [*(pod.metadata.uid for pod in self.pods), *(pod.pod_uid for pod in self.placed)]
        names = {(pod.metadata.namespace, pod.metadata.name) for pod in self.pods}
        if len(set(uids)) < len(uids) or len(names) < len(self.pods):
            raise ValueError("a pod is named twice; name each once, in `pods` or in `placed`")
        if not self.what_if and (self.removed or self.pinned):
            raise ValueError("`removed` and `pinned` are for what-ifs; set `whatIf`")
        if self.what_if and self.headroom is not None:
            raise ValueError("a what-if changes no headroom; leave `headroom` out")


class FilterRequest(Request, frozen=True, kw_only=True):
    """POST /v1/filter: does a pod fit on one node, with other pods than there are now?

    Attributes:
        removed: UIDs of pods that are taken to be gone from the node.
        added: UIDs of nominated pods that are taken to be there.
    """

    pod_uid: str = msgspec.field(name="podUID")
    node: str = ""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class PreBindRequest(Request, frozen=True, kw_only=True):
    """POST /v1/prebind: write the allocations of a reserved pod."""

    pod_uid: str = msgspec.field(name="podUID")
    pod_namespace: str = ""
    pod_name: str = ""
    node: str = ""


class UnreserveRequest(Request, frozen=True, kw_only=True):
    """POST /v1/unreserve: take back the writes of PreBind for a pod.

    Needed after a PreBind only; otherwise `unreserved` of the next request is enough.

    Attributes:
        number: The number of the reservation that is given up. A later one of the same pod stays.
    """

    pod_uid: str = msgspec.field(name="podUID")
    node: str = ""
    number: int = 0


class PostFilterRequest(Request, frozen=True, kw_only=True):
    """POST /v1/postfilter: the possible help for a pod, or a group, that fits on no node.

    Attributes:
        pod_uid: Empty for a group.
        group: The PodGroup; None for a pod by itself.
    """

    pod_uid: str = msgspec.field(name="podUID", default="")
    group: GroupReference | None = None
    pod_namespace: str = ""
    pod_name: str = ""


class WakeRequest(Request, frozen=True, kw_only=True):
    """POST /v1/wake: asks for the pods that were turned away and could be placed now.

    Attributes:
        newest_claim_version: The version of a release that is waited for, as for PreFilter.
    """

    newest_claim_version: str = ""


class Answer(Message, frozen=True, kw_only=True):
    """The fields of every answer, also of those with status 409 and 503.

    Attributes:
        instance: The identity of this sidecar process while it leads. When it changes, the plugin
            says hello.
        acknowledged: Highest number of a reservation that has arrived.
        message: The reason, for people; without numbers where it becomes the pod's condition.
    """

    instance: str = ""
    acknowledged: int = 0
    message: str = ""


class UsualPods(Message, frozen=True, kw_only=True):
    """The nodes with other devices for the usual pods than an earlier answer said.

    What a pod without claims costs a node is the sum over the slots of its class: the usual pods that fit its CPU and
    memory before the pod, at most the slots, minus those that fit after it, times the value.

    Attributes:
        number: The number of these changes; it grows.
        since: The number that they add to; 0 if they replace all that there was.
        kinds: CPU in thousandths of a core, and memory in bytes, of the pods of each kind; with `since` 0 only.
        classes: The slots of each class of nodes: the kind's position, the number of its pods for which there are
            devices, and the value of one.
        nodes: Node to the position of its class.
        removed: Names of nodes that have no slots any more.
        more: Further nodes changed, and are told later. Until then what is known is out of date.
    """

    number: int
    since: int = 0
    kinds: tuple[tuple[int, int], ...] = ()
    classes: tuple[tuple[tuple[int, int, int], ...], ...] = ()
    nodes: Mapping[str, int] = {}
    removed: tuple[str, ...] = ()
    more: bool = False


class HelloAnswer(Answer, frozen=True, kw_only=True):
    """The readiness of the sidecar to answer.

    Attributes:
        leads: It holds the Lease. When it does not, the scheduler beside it ends.
        ready: It leads, and has seen the cluster. Until then pods with claims fail fast; `message` says why, for
            the log.
        wakeups: Grows when other drivers are served, or devices in use were counted anew; the plugin
            then has all pods that wait tried again.
        drivers: The drivers whose devices are given. Pods with devices of other drivers neither
            help nor hinder a pod, so the plugin does not ask what becomes possible without them.
        usual_pods: The slots of nodes that the plugin may not know; None if pods without claims are not scored.
        blocked: The reason that every other call gets status 503 although the sidecar is ready; empty if none does.
    """

    leads: bool = False
    ready: bool = False
    wakeups: int = 0
    drivers: tuple[str, ...] = ()
    usual_pods: UsualPods | None = None
    blocked: str = ""


class ScoredNode(Message, frozen=True, kw_only=True):
    """A node that fits, with its score from 0 to 100."""

    name: str
    score: int = 0


class PreFilterAnswer(Answer, frozen=True, kw_only=True):
    """The nodes that fit a pod.

    Attributes:
        verdict: SKIP, FITS, UNSCHEDULABLE, UNRESOLVABLE or ERROR.
        code: A stable word for the reason; empty with FITS and SKIP.
        nodes: The nodes with FITS, best first; those without CPU and memory for the pod come last.
        complete: No further node fits and has the CPU and memory. Otherwise, if none of `nodes`
            passes the other filters, the next attempt has to ask for all.
        unfinished: True with UNRESOLVABLE if there is no answer yet. Nobody is evicted, and wake
            names the pod when it is to be tried again.
        headroom: The number of the last changes of nodes that have arrived. Below their `since` it says
            that the nodes are lost here, so that all have to be sent.
        usual_pods: The same fields as in the answer to hello.
    """

    verdict: Verdict
    code: str = ""
    nodes: tuple[ScoredNode, ...] = ()
    complete: bool = True
    unfinished: bool = False
    headroom: int = 0
    usual_pods: UsualPods | None = None


class MemberAnswer(Message, frozen=True, kw_only=True):
    """The place of one pod of a group.

    Attributes:
        node: The only node that it may get; empty if the group gets by without it.
        code: The reason why it has none, as in PreFilterAnswer.
        message: The same for people.
    """

    node: str = ""
    code: str = ""
    message: str = ""


class GroupAnswer(Answer, frozen=True, kw_only=True):
    """The nodes of a group.

    Attributes:
        verdict: SKIP (no pod needs devices that are given here), FITS, UNSCHEDULABLE, UNRESOLVABLE or ERROR.
        code: A stable word for the reason; empty with FITS and SKIP.
        members: The place of each of `pods` by its UID, with FITS.
        unfinished: The same value as for PreFilter.
        headroom: The same value as for PreFilter.
    """

    verdict: Verdict
    code: str = ""
    members: Mapping[str, MemberAnswer] = {}
    unfinished: bool = False
    headroom: int = 0


class FilterAnswer(Answer, frozen=True, kw_only=True):
    """The verdict on one node for a pod.

    Attributes:
        unresolvable: It does not fit, and no victim on this node could help.
    """

    fits: bool = False
    unresolvable: bool = False
    code: str = ""


class VerdictAnswer(Answer, frozen=True, kw_only=True):
    """The answer to prebind (OK, UNSCHEDULABLE, WAIT, ERROR) and postfilter (CONTINUE, WAIT, RELEASED, RETRY).

    Attributes:
        retry_millis: The time after which to ask again, with WAIT of prebind.
    """

    verdict: Verdict
    code: str = ""
    retry_millis: int = 0


class WakeAnswer(Answer, frozen=True, kw_only=True):
    """The pods that the scheduler tries again.

    Attributes:
        pods: `namespace/name` of each, the most important first.
        more: True if there are more, for which to ask again at once.
        rest_millis: Otherwise the time after which to ask again at the earliest, whatever happens.
        next_millis: Otherwise the time after which to ask again at the latest; 0 if it does not matter.
    """

    pods: tuple[str, ...] = ()
    more: bool = False
    rest_millis: int = 0
    next_millis: int = 0
