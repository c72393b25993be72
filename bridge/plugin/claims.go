package plugin

import (
	"context"
	"strconv"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// claims are the scheduler's cache of ResourceClaims and the pods that name them.
type claims struct {
	tracker fwk.ResourceClaimTracker
	pods    cache.Indexer
	index   string
	newest  atomic.Uint64 // Version of the newest claim that an event was about.
}

// of returns the claims of a pod that exist.
func (c *claims) of(pod *v1.Pod) []*resourceapi.ResourceClaim {
	var held []*resourceapi.ResourceClaim
	for _, name := range claimNames(pod) {
		if claim, err := c.tracker.Get(pod.Namespace, name); err == nil {
			held = append(held, claim)
		}
	}
	return held
}

// versions returns the resourceVersion of each claim of a pod by `namespace/name`.
//
// The scheduler's watch can be ahead of the sidecar's. Without these a pod that an event woke is told
// "no" by a sidecar that has not seen the event yet, and sleeps until the next one.
func (c *claims) versions(pod *v1.Pod) map[string]string {
	versions := map[string]string{}
	for _, claim := range c.of(pod) {
		versions[claim.Namespace+"/"+claim.Name] = claim.ResourceVersion
	}
	return versions
}

// pod returns the current state of a pod; nil if it is gone.
func (c *claims) pod(known *v1.Pod) *v1.Pod {
	object, exists, err := c.pods.GetByKey(known.Namespace + "/" + known.Name)
	if err != nil || !exists {
		return nil
	}
	if pod, ok := object.(*v1.Pod); ok && pod.UID == known.UID {
		return pod
	}
	return nil
}

// newestVersion returns the version of the newest claim that an event was about; empty without any.
func (c *claims) newestVersion() string {
	if newest := c.newest.Load(); newest > 0 {
		return strconv.FormatUint(newest, 10)
	}
	return ""
}

// see takes note of an event's version. Versions of one resource are numbers in their order (KEP-5504).
func (c *claims) see(claim *resourceapi.ResourceClaim) {
	version, err := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	if err != nil {
		return
	}
	for {
		newest := c.newest.Load()
		if version <= newest || c.newest.CompareAndSwap(newest, version) {
			return
		}
	}
}

// claimNames returns the names of those claims of a pod that have been created.
func claimNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && name != nil {
			names = append(names, *name)
		}
	}
	return names
}

// claimKeys indexes pods by the claims that they name.
func claimKeys(object any) ([]string, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, name := range claimNames(pod) {
		keys = append(keys, pod.Namespace+"/"+name)
	}
	return keys, nil
}

// EventsToRegister says which events may help a pod that this plugin turned away.
func (pl *Drawbridge) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// Nodes that the pod's own selector, affinity or tolerations left out are not in answers.
		{
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable,
			},
			PreQueueingHintFn: pl.noPods,
			QueueingHintFn:    pl.askSidecar,
		},
		{
			Event:             fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			PreQueueingHintFn: pl.podsOfClaim,
			QueueingHintFn:    pl.afterClaim,
		},
		// A reservation that is given up frees devices without any claim being changed.
		{
			Event:             fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete},
			PreQueueingHintFn: pl.afterForgottenPod,
			QueueingHintFn:    pl.askSidecar,
		},
		{Event: fwk.ClusterEvent{
			Resource:   fwk.TargetPod,
			ActionType: fwk.UpdatePodGeneratedResourceClaim | fwk.UpdatePodToleration | fwk.UpdatePodLabel,
		}},
		{
			Event:             fwk.ClusterEvent{Resource: fwk.DeviceClass, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			PreQueueingHintFn: pl.noPods,
			QueueingHintFn:    pl.askSidecar,
		},
		// A deleted slice can complete a pool whose other slices are of a newer generation.
		{
			Event:             fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			PreQueueingHintFn: pl.noPods,
			QueueingHintFn:    pl.askSidecar,
		},
	}, nil
}

// noPods has the sidecar say which pods an event helps, instead of looking at all of them.
func (pl *Drawbridge) noPods(klog.Logger, any, any) (fwk.PreQueueingHintResult, error) {
	pl.waker.soon()
	return fwk.PreQueueingHintResult{}, nil
}

// askSidecar is noPods for one pod.
func (pl *Drawbridge) askSidecar(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) {
	pl.waker.soon()
	return fwk.QueueSkip, nil
}

// podsOfClaim narrows a claim's event to the pods that name it; whom a release helps, the sidecar says.
func (pl *Drawbridge) podsOfClaim(_ klog.Logger, before, after any) (fwk.PreQueueingHintResult, error) {
	old, changed, err := util.As[*resourceapi.ResourceClaim](before, after)
	if err != nil || (old == nil && changed == nil) {
		pl.waker.soon() // The state at a deletion is not known.
		return fwk.PreQueueingHintResult{}, nil
	}
	claim := changed
	if claim == nil {
		claim = old
	}
	pl.claims.see(claim)
	if frees(old, changed) || freesPlace(old, changed) {
		pl.waker.soon()
	}
	if !mayHelpPodsOf(old, changed) {
		return fwk.PreQueueingHintResult{}, nil
	}
	objects, err := pl.claims.pods.ByIndex(pl.claims.index, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return fwk.PreQueueingHintResult{}, err
	}
	var pods []types.NamespacedName
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			pods = append(pods, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return fwk.PreQueueingHintResult{Pods: pods}, nil
}

// afterClaim decides whether a claim's event is worth another attempt for a pod.
func (pl *Drawbridge) afterClaim(_ klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, changed, err := util.As[*resourceapi.ResourceClaim](before, after)
	if err != nil || (old == nil && changed == nil) {
		pl.waker.soon() // The state at a deletion is not known.
		return fwk.QueueSkip, nil
	}
	if changed != nil {
		pl.claims.see(changed)
	}
	if frees(old, changed) || freesPlace(old, changed) {
		pl.waker.soon()
	}
	if changed == nil || !names(pod, changed) || !mayHelpPodsOf(old, changed) {
		return fwk.QueueSkip, nil
	}
	// A finalizer that is added is the first half of a binding.
	if old != nil && old.UID == changed.UID && equality.Semantic.DeepEqual(old.Status, changed.Status) &&
		(old.DeletionTimestamp == nil) == (changed.DeletionTimestamp == nil) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func names(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if pod.Namespace != claim.Namespace {
		return false
	}
	for _, name := range claimNames(pod) {
		if name == claim.Name {
			return true
		}
	}
	return false
}

// frees reports whether devices that other pods can use became free, or may have.
func frees(old, changed *resourceapi.ResourceClaim) bool {
	if old == nil {
		return false
	}
	if old.Status.Allocation != nil {
		return changed == nil || changed.Status.Allocation == nil ||
			!equality.Semantic.DeepEqual(old.Status.Allocation.Devices.Results, changed.Status.Allocation.Devices.Results)
	}
	// After a relist one update can stand for an allocation and its release. It looks like this: the
	// version is another, and nothing else is.
	return changed != nil && changed.Status.Allocation == nil && old.ResourceVersion != changed.ResourceVersion && sameButVersion(old, changed)
}

// mayHelpPodsOf reports whether a change of a claim may help pods that name it and wait.
//
// With 900 pods of one claim, each change of its consumers woke all that wait: the scheduler takes pods in the order of
// their age, so new pods of others waited until all of these had been turned away again. One more consumer helps nobody
// but the pods of its own group. One less helps pods that wait for a place, whom the sidecar names (freesPlace), and,
// where the last one is left, a pod that then may have the claim released.
func mayHelpPodsOf(old, changed *resourceapi.ResourceClaim) bool {
	if !onlyConsumersDiffer(old, changed) {
		return true
	}
	before := map[types.UID]bool{}
	for _, consumer := range old.Status.ReservedFor {
		before[consumer.UID] = true
	}
	for _, consumer := range changed.Status.ReservedFor {
		if consumer.Resource != "pods" && !before[consumer.UID] {
			return true
		}
	}
	return len(changed.Status.ReservedFor) <= 1
}

// freesPlace reports whether an allocated claim has fewer consumers. Whether pods wait for a place the sidecar knows:
// those that it has promised one to are in no claim yet.
func freesPlace(old, changed *resourceapi.ResourceClaim) bool {
	return onlyConsumersDiffer(old, changed) && len(changed.Status.ReservedFor) < len(old.Status.ReservedFor)
}

// onlyConsumersDiffer reports whether two states of an allocated claim differ in its consumers, and not in its devices.
func onlyConsumersDiffer(old, changed *resourceapi.ResourceClaim) bool {
	return old != nil && changed != nil && old.UID == changed.UID &&
		old.Status.Allocation != nil && changed.Status.Allocation != nil &&
		(old.DeletionTimestamp == nil) == (changed.DeletionTimestamp == nil) &&
		equality.Semantic.DeepEqual(old.Status.Allocation, changed.Status.Allocation) &&
		!equality.Semantic.DeepEqual(old.Status.ReservedFor, changed.Status.ReservedFor)
}

// sameButVersion reports whether two states of an unallocated claim differ in nothing that is seen.
func sameButVersion(old, changed *resourceapi.ResourceClaim) bool {
	before, after := old.DeepCopy(), changed.DeepCopy()
	for _, claim := range []*resourceapi.ResourceClaim{before, after} {
		claim.ResourceVersion, claim.ManagedFields = "", nil
	}
	return equality.Semantic.DeepEqual(before, after)
}

// afterForgottenPod asks when the scheduler gives up a placement before it was bound. A pod that is
// deleted frees its devices later, and its claims' events say so.
func (pl *Drawbridge) afterForgottenPod(_ klog.Logger, before, _ any) (fwk.PreQueueingHintResult, error) {
	gone, ok := before.(*v1.Pod)
	if !ok || (len(gone.Spec.ResourceClaims) > 0 && gone.DeletionTimestamp == nil) {
		pl.waker.soon()
	}
	return fwk.PreQueueingHintResult{}, nil
}
