package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"drawbridge.internal/bridge/sidecar"
)

const (
	composite        = "this scheduler does not support claims of pods in a composite pod group"
	anotherPlacement = "other filters turned down a node of the group; another placement is tried"
	// maxPlacements is how many placements of a group in a row may be turned down by other filters.
	maxPlacements = 8
	// maxMembers is how many pods a request has. It is one more than the sidecar places together, so that it
	// sees that there are too many.
	maxMembers = 513
)

// errTooLong becomes the condition of a group, so it has no numbers.
var errTooLong = errors.New("the pods of the group are too long to be placed together: " +
	"write less into their claims, containers, tolerations and node affinity, or make smaller groups")

// groupCycle is the answer about a pod group, shared by its members for one run over them. The scheduler
// makes a PodGroupCycleState for each run, of which this is a part.
type groupCycle struct {
	reference *sidecar.GroupReference
	verdict   sidecar.Verdict
	message   string
	members   map[types.UID]sidecar.Member
	owners    map[types.UID]types.UID // Members to what controls them.
	// The sidecar was not asked, since no member needs devices, or its answer could not be used.
	status *fwk.Status
	// Nobody is evicted for the group: the sidecar did not answer, or there is no answer yet.
	undecided bool
	// Nodes that members were told in PreFilter, and those that were reserved.
	offered  map[types.UID]string
	reserved map[types.UID]string
	// Set in a run that preemption does to see whether the group fits without victims.
	whatIf *whatIf
}

// Clone returns the same: nothing in it depends on pods that come and go.
func (g *groupCycle) Clone() fwk.StateData { return g }

// groupCycleOf returns the answer about the group of a run; nil without one.
func groupCycleOf(state fwk.PodGroupCycleState) *groupCycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*groupCycle)
}

// turnedDown returns the nodes that members were told and that other filters did not let pass. The run ends
// when there are too few, so members of the same owner that were to get that node count as well. Otherwise it
// would take a run for each of them.
func (g *groupCycle) turnedDown() map[types.UID]string {
	nodes := map[types.UID]string{}
	for pod, node := range g.offered {
		if g.isReserved(pod) {
			continue
		}
		for other, member := range g.members {
			if member.Node == node && g.owners[other] == g.owners[pod] && !g.isReserved(other) {
				nodes[other] = node
			}
		}
	}
	return nodes
}

func (g *groupCycle) isReserved(pod types.UID) bool {
	_, isReserved := g.reserved[pod]
	return isReserved
}

// preFilterMember answers from the answer about the group, for which the first member asks.
func (pl *Drawbridge) preFilterMember(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
	if pl.isInComposite(pod) {
		if concerns(pod) {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, composite)
		}
		return nil, fwk.NewStatus(fwk.Skip)
	}
	run := state.GetPodGroupSchedulingCycle()
	group := groupCycleOf(run)
	if group == nil {
		pl.client.EndParking()
		group = pl.askForGroup(ctx, pod)
		run.Write(stateKey, group)
	}
	if group.status != nil {
		if group.undecided {
			pl.parked.add(pod)
			state.Write(stateKey, newMember(group, &placement{lost: true}))
		}
		return nil, group.status
	}
	place := &placement{verdict: group.verdict, complete: true, narrowed: true}
	state.Write(stateKey, newMember(group, place))
	switch group.verdict {
	case sidecar.Unschedulable:
		return nil, fwk.NewStatus(fwk.Unschedulable, group.message)
	case sidecar.Unresolvable:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, group.message)
	}
	member, isNamed := group.members[pod.UID]
	if !isNamed {
		// It came after the group was decided about; the next run has it.
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod was not there yet when its group was placed")
	}
	if member.Node == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable, member.Message)
	}
	place.scores = map[string]int64{member.Node: fwk.MaxNodeScore}
	group.offered[pod.UID] = member.Node
	return &fwk.PreFilterResult{NodeNames: sets.New(member.Node)}, nil
}

// isInComposite reports whether the pod's group is part of a composite group, whose groups share one run.
func (pl *Drawbridge) isInComposite(pod *v1.Pod) bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.CompositePodGroup) || groupName(pod) == "" {
		return false
	}
	group, err := pl.handle.SnapshotSharedLister().PodGroups().Get(pod.Namespace, groupName(pod))
	return err == nil && group.Spec.ParentCompositePodGroupName != nil
}

// groupName returns the name of the PodGroup of a pod; empty for none.
func groupName(pod *v1.Pod) string {
	if pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return ""
	}
	return *pod.Spec.SchedulingGroup.PodGroupName
}

func newMember(group *groupCycle, place *placement) *cycle {
	member := newCycle(place)
	member.group = group
	return member
}

// askForGroup asks where the group of a pod fits. It never returns nil.
func (pl *Drawbridge) askForGroup(ctx context.Context, pod *v1.Pod) *groupCycle {
	group := &groupCycle{offered: map[types.UID]string{}, reserved: map[types.UID]string{}}
	request, err := pl.groupRequest(pod)
	if errors.Is(err, errTooLong) {
		group.status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
		return group
	}
	if err != nil {
		group.status = fwk.AsStatus(err)
		return group
	}
	group.reference, group.owners = request.Group, owners(request.Pods)
	if !slices.ContainsFunc(request.Pods, concerns) {
		group.status = fwk.NewStatus(fwk.Skip)
		return group
	}
	pl.reportGroupSettings()
	if err := pl.addSnapshot(request, group); err != nil {
		group.status = fwk.AsStatus(err)
		return group
	}
	answer, err := pl.client.Group(ctx, request)
	if err != nil {
		group.undecided = errors.Is(err, sidecar.ErrUnavailable)
		group.status = pl.failed(pod, err)
		group.message = unavailable
		return group
	}
	group.verdict, group.message, group.members = answer.Verdict, answer.Message, answer.Members
	switch answer.Verdict {
	case sidecar.Fits:
	case sidecar.Skip:
		group.status = fwk.NewStatus(fwk.Skip)
	case sidecar.Unschedulable, sidecar.Unresolvable:
		if answer.Unfinished {
			group.undecided = true
			pl.waker.soon()
		} else if group.whatIf == nil {
			pl.groups.of(request.Group.UID).forgive()
		}
	default:
		group.status = fwk.AsStatus(fmt.Errorf("the allocator answered %q: %s", answer.Verdict, answer.Message))
	}
	return group
}

// addSnapshot adds to the question about a group what depends on the kind of the run: whether victims are
// missing on the nodes, or else what other filters turned down before and what the nodes have left.
func (pl *Drawbridge) addSnapshot(request *sidecar.GroupRequest, group *groupCycle) error {
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	if group.whatIf = pl.whatIfOf(request.Group.UID, nodes); group.whatIf != nil {
		request.WhatIf, request.Removed = true, group.whatIf.removed
		group.whatIf.request = request
		return nil
	}
	pl.preemption = nil
	memory := pl.groups.of(request.Group.UID)
	memory.learn()
	memory.last = group
	request.Excluded = memory.excluded
	if request.Requests != nil {
		// Now, since members will be assumed to be on nodes of the snapshot, which gives these no new generation.
		// Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/backend/cache/snapshot.go, AssumePod.
		pl.client.Observe(nodes)
	}
	return nil
}

// owners returns what controls each of the pods that something controls.
func owners(pods []*v1.Pod) map[types.UID]types.UID {
	controllers := make(map[types.UID]types.UID, len(pods))
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			controllers[pod.UID] = owner.UID
		}
	}
	return controllers
}

// groupRequest returns the question about the group of a pod, as the scheduler's snapshot has it.
func (pl *Drawbridge) groupRequest(pod *v1.Pod) (*sidecar.GroupRequest, error) {
	snapshot, name := pl.handle.SnapshotSharedLister(), groupName(pod)
	if name == "" {
		return nil, errors.New("the pod is scheduled in a group and names none")
	}
	object, err := snapshot.PodGroups().Get(pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	members, err := snapshot.PodGroupStates().Get(pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	pods := waiting(members.UnscheduledPods())
	if slices.ContainsFunc(pods, concerns) && sidecar.PodsBytes(pods) > sidecar.MaxPodsBytes {
		return nil, errTooLong
	}
	request := &sidecar.GroupRequest{
		Group:              reference(object),
		Pods:               pods,
		ClaimVersions:      map[string]string{},
		NewestClaimVersion: pl.claims.newestVersion(),
		Topology:           topology(object),
	}
	for _, placed := range members.ScheduledPods() {
		request.Placed = append(request.Placed, sidecar.PlacedMember{PodUID: placed.UID, Node: placed.Spec.NodeName})
	}
	slices.SortFunc(request.Placed, func(a, b sidecar.PlacedMember) int {
		return strings.Compare(string(a.PodUID), string(b.PodUID))
	})
	for _, member := range request.Pods {
		for key, version := range pl.claims.versions(member) {
			request.ClaimVersions[key] = version
		}
		if requests := pl.requests(member); requests != nil {
			if request.Requests == nil {
				request.Requests = map[types.UID]*sidecar.PodRequests{}
			}
			request.Requests[member.UID] = requests
		}
	}
	return request, nil
}

func reference(group *schedulingapi.PodGroup) *sidecar.GroupReference {
	made := &sidecar.GroupReference{
		UID:       group.UID,
		Namespace: group.Namespace,
		Name:      group.Name,
		MinCount:  1,
		Policy:    sidecar.Basic,
		Created:   group.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"),
	}
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		made.Policy, made.MinCount = sidecar.Gang, max(1, gang.MinCount)
	}
	if group.Spec.Priority != nil {
		made.Priority = *group.Spec.Priority
	}
	return made
}

// topology returns the label of which all nodes of the group need one value; empty for none.
func topology(group *schedulingapi.PodGroup) string {
	if constraints := group.Spec.SchedulingConstraints; constraints != nil && len(constraints.Topology) > 0 {
		return constraints.Topology[0].Key
	}
	return ""
}

// waiting returns the pods that the scheduler tries, in an order that does not depend on the map's.
func waiting(pods map[string]*v1.Pod) []*v1.Pod {
	var waits []*v1.Pod
	for _, pod := range pods {
		if isTried(pod) {
			waits = append(waits, pod)
		}
	}
	slices.SortFunc(waits, func(a, b *v1.Pod) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return waits[:min(len(waits), maxMembers)]
}

// isTried reports whether the scheduler tries a pod without a node.
func isTried(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// filterMember answers from the answer about the group. It asks only in preemption, where victims are put
// back one after the other, once for each set of those that are still gone.
//
// Nominated pods that the scheduler adds change nothing: the sidecar counts them.
func (pl *Drawbridge) filterMember(ctx context.Context, cycle *cycle, name string) *fwk.Status {
	if _, isOffered := cycle.scores[name]; !isOffered {
		return fwk.NewStatus(fwk.Unschedulable, misfit)
	}
	if cycle.added.Len() == 0 {
		return nil
	}
	return pl.filterWhatIf(ctx, cycle)
}

// reserveMember numbers a reservation for a member. In a what-if nothing is reserved.
func (pl *Drawbridge) reserveMember(state fwk.CycleState, group *groupCycle, pod *v1.Pod, node string) {
	group.reserved[pod.UID] = node
	if group.whatIf == nil || !state.IsPodGroupSchedulingCycle() {
		pl.client.ReserveMember(pod, node, group.reference)
	}
}

// unreserveInCycle parks the reservation of a member, since the scheduler makes it again if the group fits.
// It reports false in the commit, where a reservation is given up for good.
func (pl *Drawbridge) unreserveInCycle(state fwk.CycleState, group *groupCycle, pod *v1.Pod) bool {
	if !state.IsPodGroupSchedulingCycle() {
		return false
	}
	if group.whatIf == nil {
		pl.client.Park(pod.UID)
	}
	return true
}

// PodGroupPostFilter runs before DefaultPreemption when a group does not get the pods that it needs. It does
// for a group what PostFilter does for a pod.
func (pl *Drawbridge) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, _ fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	pl.client.EndParking()
	pl.preemption = nil
	group := groupCycleOf(state)
	if group == nil || group.status.Code() == fwk.Skip {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if group.undecided {
		// Nobody is evicted, and nominations stay.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, group.words()...)
	}
	if group.status != nil {
		return nil, group.status
	}
	pods := info.GetUnscheduledPods()
	memory := pl.groups.of(group.reference.UID)
	isTriedEnough := false
	if memory.learn() {
		if memory.inARow < maxPlacements {
			return pl.tryAnotherPlacement(memory, pods)
		}
		isTriedEnough = true
		memory.forgive()
	}
	if group.verdict == sidecar.Unresolvable && !pl.holdDevices(pods) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, group.message)
	}
	answer, err := pl.client.PostFilter(ctx, &sidecar.PodRequest{Group: group.reference, PodNamespace: group.reference.Namespace})
	if err != nil {
		for _, pod := range pods {
			pl.parked.add(pod)
		}
		return nil, pl.failed(pods[0], err)
	}
	switch answer.Verdict {
	case sidecar.Continue:
	case sidecar.Wait, sidecar.Released:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, answer.Message)
	case sidecar.Retry:
		if !isTriedEnough {
			return pl.tryAnotherPlacement(memory, pods)
		}
		// What turns all placements down may be the ports or the affinity of pods that can be evicted.
	default:
		return nil, fwk.AsStatus(fmt.Errorf("the allocator answered %q: %s", answer.Verdict, answer.Message))
	}
	// DefaultPreemption would answer the same without these words, which become the group's condition.
	if group.verdict == sidecar.Unresolvable || !pl.hasVictims(pods[0]) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, group.words()...)
	}
	if pl.groups.isResting(group.reference.Namespace, time.Now()) {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, append(group.words(), tooManyVictims)...)
	}
	if pl.preemption, err = pl.beginPreemption(group.reference, pods[0]); err != nil {
		return nil, fwk.AsStatus(err)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, group.words()...)
}

// words are what the group's condition says.
func (g *groupCycle) words() []string {
	if g.message == "" {
		return nil
	}
	return []string{g.message}
}

func (pl *Drawbridge) tryAnotherPlacement(memory *groupMemory, pods []*v1.Pod) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	memory.inARow++
	pl.waker.again(pods)
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, anotherPlacement)
}

// holdDevices reports whether a claim of the pods holds devices that could be given back.
func (pl *Drawbridge) holdDevices(pods []*v1.Pod) bool {
	for _, pod := range pods {
		for _, claim := range pl.claims.of(pod) {
			if claim.Status.Allocation != nil {
				return true
			}
		}
	}
	return false
}

// reportMissingGroupSettings logs what groups need of the scheduler's configuration and do not have.
func reportMissingGroupSettings(handle fwk.Handle) {
	logger := klog.Background()
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPopFromBackoffQ) {
		logger.Info("A pod group that waits is tried again without a pause; set the feature gate " +
			"SchedulerPopFromBackoffQ=false of this scheduler")
	}
	if lister, ok := handle.(interface{ ListPlugins() *config.Plugins }); ok && !isFirst(lister.ListPlugins().PodGroupPostFilter) {
		logger.Info("Victims of a pod group are chosen while devices of others are being released; enable " +
			Name + " in podGroupPostFilter of the profile")
	}
}
