// Package plugin is the scheduler framework plugin Drawbridge: it passes on what the scheduler hands
// it to a sidecar, and does what the answer says. It decides nothing about devices.
package plugin

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"drawbridge.internal/bridge/sidecar"
)

// Name is the plugin's name in the scheduler's configuration.
const Name = "Drawbridge"

const (
	stateKey    fwk.StateKey = Name
	unavailable              = "the device allocator is not available"
	misfit                   = "the devices that the pod's claims ask for are not free on the node"
	widening                 = "none of the best nodes passed the other filters; all are looked at next"
)

// Drawbridge is the plugin of one profile.
type Drawbridge struct {
	client *sidecar.Client
	handle fwk.Handle
	claims claims
	parked *parked
	waker  *waker
	// Pods that are to ask for all nodes: with NodeNames in an answer every other node is unresolvable,
	// so a pod whose hundred best nodes lack CPU would sleep although others fit, and be answered the
	// same hundred when it wakes.
	wide *podSet
	// Of groups; only the scheduler's serial cycle uses them.
	groups     *groupMemories
	preemption *preemption
	// Once, with the first group.
	reportGroupSettings func()
	// Whether Bind writes the claims, found out with the first pod: the framework is made after its plugins.
	writesInBind func() bool
	// Whether NodeResourcesFit compares pods with what nodes have left, likewise.
	comparesResources func() bool
}

var (
	_ fwk.PreFilterPlugin     = &Drawbridge{}
	_ fwk.PreFilterExtensions = &Drawbridge{}
	_ fwk.FilterPlugin        = &Drawbridge{}
	_ fwk.PostFilterPlugin    = &Drawbridge{}
	_ fwk.PreScorePlugin      = &Drawbridge{}
	_ fwk.ScorePlugin         = &Drawbridge{}
	_ fwk.ReservePlugin       = &Drawbridge{}
	_ fwk.PreBindPlugin       = &Drawbridge{}
	_ fwk.BindPlugin          = &Drawbridge{}
	_ fwk.PostBindPlugin      = &Drawbridge{}
	_ fwk.EnqueueExtensions   = &Drawbridge{}
	_ fwk.SignPlugin          = &Drawbridge{}

	_ fwk.PodGroupPostFilterPlugin = &Drawbridge{}
)

// Name returns the plugin's name.
func (pl *Drawbridge) Name() string { return Name }

// placement is the answer about one pod, shared by all clones of a cycle's state.
type placement struct {
	verdict  sidecar.Verdict
	scores   map[string]int64 // Of the nodes that fit.
	complete bool             // No other node fits.
	narrowed bool             // The scheduler looks at these nodes only.
	lost     bool             // The sidecar did not answer.
	// There is no answer yet; the waker asks when the pod is to be tried again.
	unfinished bool
}

// cycle is the state of one attempt. The scheduler clones it per node in a dry run of preemption, so
// the sets are copied and everything else is shared.
type cycle struct {
	*placement
	group   *groupCycle // Of a member of a group.
	removed sets.Set[types.UID]
	added   sets.Set[types.UID]
	putHash uint64 // Of those in added, for a member of a group.
	bound   bool   // The claims are being written, or were.
}

// Clone returns a copy whose pods can be removed and added apart from this one's.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{
		placement: c.placement,
		group:     c.group,
		removed:   c.removed.Clone(),
		added:     c.added.Clone(),
		putHash:   c.putHash,
		bound:     c.bound,
	}
}

// cycleOf returns the state of an attempt; nil where the sidecar has nothing to do with the pod.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// SignPod keeps pods with devices out of batches of equal pods: what fits one does not fit the next.
// Pods of a group are told a node each. A profile with a plugin that does not sign has no batches at all.
func (pl *Drawbridge) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if concerns(pod) || pod.Spec.SchedulingGroup != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with devices, and those of groups, are not signable")
	}
	return nil, nil
}

// PreFilter asks once where the pod fits.
func (pl *Drawbridge) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if state.IsPodGroupSchedulingCycle() {
		return pl.preFilterMember(ctx, state, pod)
	}
	pl.client.EndParking()
	pl.preemption = nil
	if !concerns(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	requests := pl.requests(pod)
	if requests != nil {
		pl.client.Observe(nodes)
	}
	wide := pl.wide.has(pod.UID)
	answer, err := pl.client.PreFilter(ctx, &sidecar.PreFilterRequest{
		Pod:                pod,
		ClaimVersions:      pl.claims.versions(pod),
		NewestClaimVersion: pl.claims.newestVersion(),
		All:                wide,
		Requests:           requests,
	})
	if err != nil {
		state.Write(stateKey, newCycle(&placement{lost: true}))
		return nil, pl.failed(pod, err)
	}
	place := &placement{verdict: answer.Verdict, complete: true}
	switch answer.Verdict {
	case sidecar.Skip:
		return nil, fwk.NewStatus(fwk.Skip)
	case sidecar.Unschedulable:
		// From here and not from Filter: no node is filtered, the words become the pod's condition, and
		// preemption still looks at all nodes.
		pl.wide.remove(pod.UID)
		state.Write(stateKey, newCycle(place))
		return nil, fwk.NewStatus(fwk.Unschedulable, answer.Message)
	case sidecar.Unresolvable:
		if answer.Unfinished {
			place.unfinished = true
			pl.waker.soon()
		} else {
			pl.wide.remove(pod.UID)
		}
		state.Write(stateKey, newCycle(place))
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, answer.Message)
	case sidecar.Fits:
		if len(answer.Nodes) == 0 {
			// NodeNames without names would say that no node can ever be resolved.
			return nil, fwk.AsStatus(errors.New("the allocator said that the pod fits, and named no node"))
		}
	default:
		return nil, fwk.AsStatus(fmt.Errorf("the allocator answered %q: %s", answer.Verdict, answer.Message))
	}
	place.complete = answer.IsComplete()
	place.scores = make(map[string]int64, len(answer.Nodes))
	names := make(sets.Set[string], len(answer.Nodes))
	for _, node := range answer.Nodes {
		place.scores[node.Name] = max(fwk.MinNodeScore, min(node.Score, fwk.MaxNodeScore))
		names.Insert(node.Name)
	}
	// A pod that asks for all nodes and may preempt gets every node filtered: preemption looks only at
	// nodes that Filter, not NodeNames, turned down.
	place.narrowed = !wide || !mayPreempt(pod)
	state.Write(stateKey, newCycle(place))
	if !place.narrowed {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

func newCycle(place *placement) *cycle {
	return &cycle{placement: place, removed: sets.New[types.UID](), added: sets.New[types.UID]()}
}

// failed returns the status for a call that failed. While the sidecar is not usable, a pod waits
// until it is; preemption would evict pods for nothing.
func (pl *Drawbridge) failed(pod *v1.Pod, err error) *fwk.Status {
	if errors.Is(err, sidecar.ErrUnavailable) {
		klog.Background().V(2).Info("A pod waits for the sidecar", "pod", klog.KObj(pod), "err", err)
		pl.parked.add(pod)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, unavailable)
	}
	return fwk.AsStatus(err)
}

// PreFilterExtensions returns what is told about pods that come and go in a dry run.
func (pl *Drawbridge) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod takes note of a pod that is taken to be on the node: one that was removed before, or one
// that is nominated, whose claims may hold nothing yet.
func (pl *Drawbridge) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, pod fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	switch cycle := cycleOf(state); {
	case cycle == nil:
	case cycle.group != nil:
		return cycle.putBack(pod.GetPod())
	default:
		pl.move(pod.GetPod(), cycle.removed, cycle.added)
	}
	return nil
}

// RemovePod takes note of a pod that is taken to be gone from the node.
func (pl *Drawbridge) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, pod fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	switch cycle := cycleOf(state); {
	case cycle == nil:
	case cycle.group != nil:
		return cycle.takeAway(pod.GetPod())
	default:
		pl.move(pod.GetPod(), cycle.added, cycle.removed)
	}
	return nil
}

// move takes a pod out of one set, or into the other if it was not there and matters. A nominated pod that the
// scheduler never tries does not, though the scheduler counts it: whoever may write a status could nominate it.
func (pl *Drawbridge) move(pod *v1.Pod, from, to sets.Set[types.UID]) {
	if from.Has(pod.UID) {
		from.Delete(pod.UID)
	} else if pl.matters(pod) && (pod.Spec.NodeName != "" || isTried(pod)) {
		to.Insert(pod.UID)
	}
}

// matters reports whether it can make a difference for others that a pod comes or goes: it has devices
// of a driver that the sidecar gives, or we do not know which. A claim without devices yet may get some.
func (pl *Drawbridge) matters(pod *v1.Pod) bool {
	if len(pod.Spec.ResourceClaims) == 0 {
		return concerns(pod)
	}
	held := pl.claims.of(pod)
	if len(held) < len(pod.Spec.ResourceClaims) {
		return true
	}
	for _, claim := range held {
		if claim.Status.Allocation == nil {
			return true
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if pl.client.Gives(result.Driver) {
				return true
			}
		}
	}
	return false
}

// Filter answers from PreFilter's answer. It asks only where that does not say: with pods added or
// removed, and for a node beyond the names, since a nominated node is filtered before NodeNames count.
func (pl *Drawbridge) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	cycle := cycleOf(state)
	if cycle == nil {
		return nil
	}
	if cycle.lost {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, unavailable)
	}
	name := node.Node().Name
	if cycle.group != nil {
		return pl.filterMember(ctx, cycle, name)
	}
	if cycle.removed.Len() == 0 && cycle.added.Len() == 0 {
		if _, fits := cycle.scores[name]; fits {
			return nil
		}
		if cycle.complete {
			return fwk.NewStatus(fwk.Unschedulable, misfit)
		}
	}
	answer, err := pl.client.Filter(ctx, &sidecar.FilterRequest{
		PodUID:  pod.UID,
		Node:    name,
		Removed: sets.List(cycle.removed),
		Added:   sets.List(cycle.added),
	})
	if err != nil {
		return pl.failed(pod, err)
	}
	switch {
	case answer.Fits:
		return nil
	case answer.Unresolvable:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, answer.Message)
	default:
		return fwk.NewStatus(fwk.Unschedulable, answer.Message)
	}
}

// PostFilter runs before DefaultPreemption. It sees to a second attempt with all nodes, and ends the
// attempt while devices that help the pod are being released: between the end of a victim and the release
// of its claim no pod terminates on the node, and preemption would evict one more.
func (pl *Drawbridge) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	cycle := cycleOf(state)
	if cycle == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if cycle.lost || cycle.unfinished {
		// Nobody is evicted, and a nomination stays.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	if pl.asksInVain(cycle, pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	// Before anything is waited for or released: another node may do.
	if cycle.verdict == sidecar.Fits && cycle.narrowed && (!cycle.complete || pl.hasVictims(pod)) {
		pl.wide.add(pod.UID)
		pl.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{string(pod.UID): pod})
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, widening)
	}
	answer, err := pl.client.PostFilter(ctx, &sidecar.PodRequest{PodUID: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name})
	if err != nil {
		return nil, pl.failed(pod, err)
	}
	switch answer.Verdict {
	case sidecar.Continue:
		return nil, fwk.NewStatus(fwk.Unschedulable)
	case sidecar.Wait, sidecar.Released:
		// A result of nil keeps the nomination.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, answer.Message)
	default:
		return nil, fwk.AsStatus(fmt.Errorf("the allocator answered %q: %s", answer.Verdict, answer.Message))
	}
}

// hasVictims reports whether a pod runs that the scheduler may evict for this one. Without any it is no
// use to have all nodes filtered.
func (pl *Drawbridge) hasVictims(pod *v1.Pod) bool {
	if !mayPreempt(pod) {
		return false
	}
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	return err != nil || outranksSome(pod, nodes)
}

// asksInVain reports whether PostFilter need not ask: no victim helps, so none will be evicted, and
// no claim of the pod holds devices that could be given back.
func (pl *Drawbridge) asksInVain(cycle *cycle, pod *v1.Pod) bool {
	if cycle.verdict != sidecar.Unresolvable {
		return false
	}
	for _, claim := range pl.claims.of(pod) {
		if claim.Status.Allocation != nil {
			return false
		}
	}
	return true
}

// PreScore ranks the nodes for pods that the sidecar has nothing to do with. Score is skipped where nothing is known.
func (pl *Drawbridge) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	cycle := cycleOf(state)
	if cycle == nil {
		return pl.rankPlain(state, pod, nodes)
	}
	if len(cycle.scores) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns the score of PreFilter's answer, or the rank, from 0 to 100.
func (pl *Drawbridge) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	if cycle := cycleOf(state); cycle != nil {
		return cycle.scores[node.Node().Name], nil
	}
	return rankOf(state, node.Node().Name), nil
}

// ScoreExtensions returns nil: the scores are between 0 and 100 already.
func (pl *Drawbridge) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve numbers a reservation; the next request tells the sidecar.
func (pl *Drawbridge) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	switch cycle := cycleOf(state); {
	case cycle == nil:
	case cycle.group != nil:
		pl.reserveMember(state, cycle.group, pod, node)
	default:
		pl.wide.remove(pod.UID)
		pl.client.Reserve(pod, node)
	}
	return nil
}

// Unreserve gives the reservation up, and has taken back what PreBind wrote.
func (pl *Drawbridge) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	cycle := cycleOf(state)
	if cycle == nil || (cycle.group != nil && pl.unreserveInCycle(state, cycle.group, pod)) {
		return
	}
	if !cycle.bound {
		pl.client.Drop(pod.UID)
		return
	}
	if err := pl.client.Unreserve(ctx, request(pod, node)); err != nil {
		// Later requests say that the reservation is given up.
		klog.FromContext(ctx).Info("Unreserve failed", "pod", klog.KObj(pod), "node", node, "err", err)
	}
}

func request(pod *v1.Pod, node string) *sidecar.PodRequest {
	return &sidecar.PodRequest{PodUID: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, Node: node}
}

// PreBindPreFlight skips PreBind, and the nomination that is written before it, where it has nothing
// to do: for other pods, and in a profile where Bind writes the claims.
func (pl *Drawbridge) PreBindPreFlight(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if cycleOf(state) == nil || pl.writesInBind() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind has the claims written where something else binds before this plugin could.
func (pl *Drawbridge) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	cycle := cycleOf(state)
	if cycle == nil || pl.writesInBind() {
		return nil
	}
	return pl.writeClaims(ctx, cycle, pod, node)
}

// Bind has the claims written, and leaves the Binding to the next plugin. Before each PreBind that is
// not skipped the scheduler writes a nomination into the pod's status, which this saves.
func (pl *Drawbridge) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if cycle := cycleOf(state); cycle != nil && pl.writesInBind() {
		if status := pl.writeClaims(ctx, cycle, pod, node); !status.IsSuccess() {
			return status
		}
	}
	return fwk.NewStatus(fwk.Skip)
}

// bindsFirst reports whether nothing that binds comes before this plugin: no other plugin of the profile,
// and no extender. Otherwise a pod would be bound before its claims are written.
func bindsFirst(handle fwk.Handle) bool {
	lister, ok := handle.(interface{ ListPlugins() *config.Plugins })
	if !ok {
		return false
	}
	for _, extender := range handle.Extenders() {
		if extender.IsBinder() {
			return false
		}
	}
	return isFirst(lister.ListPlugins().Bind)
}

// isFirst reports whether this plugin comes before all others.
func isFirst(plugins config.PluginSet) bool {
	return len(plugins.Enabled) > 0 && plugins.Enabled[0].Name == Name
}

// writeClaims has the claims allocated and reserved for the pod; it waits for binding conditions.
func (pl *Drawbridge) writeClaims(ctx context.Context, cycle *cycle, pod *v1.Pod, node string) *fwk.Status {
	cycle.bound = true
	preBind := pl.client.PreBind
	if cycle.group != nil {
		preBind = pl.client.PreBindMember
	}
	answer, err := preBind(ctx, request(pod, node))
	if err != nil {
		return fwk.AsStatus(err)
	}
	switch answer.Verdict {
	case sidecar.OK:
		return nil
	case sidecar.Unschedulable:
		return fwk.NewStatus(fwk.Unschedulable, answer.Message)
	default:
		return fwk.AsStatus(fmt.Errorf("the allocator answered %q: %s", answer.Verdict, answer.Message))
	}
}

// PostBind forgets the reservation: what it said is in the pod's claims.
func (pl *Drawbridge) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if cycleOf(state) != nil {
		pl.client.Settle(pod.UID)
	}
}
