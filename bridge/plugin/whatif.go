package plugin

import (
	"context"
	"hash/maphash"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.internal/bridge/sidecar"
)

const (
	// maxRemoved bounds a request; the sidecar reads 32 MiB.
	maxRemoved = 100_000
	// maxWhatIfs is how long victims are put back one after the other, of which the framework's own part takes a while
	// for hundreds of members, too: nothing else is scheduled meanwhile. Twice what 256 members and 400 victims took
	// on a busy machine.
	maxWhatIfs = 8 * time.Second
	// restAfterWhatIfs is for how many times as long nobody is evicted for groups of a namespace once that was not enough.
	restAfterWhatIfs = 20
	minRest          = 10 * time.Second

	tooManyVictims = "nobody is evicted for the group: it takes too long to find out which pods have to go"
)

var uidSeed = maphash.MakeSeed()

// preemption is what a group's PodGroupPostFilter leaves for DefaultPreemption, which runs after it. That
// takes all pods that may be victims off the snapshot's nodes and runs over the group again, without a word
// that it does.
//
// Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/preemption/podgrouppreemption.go,
// selectVictimsOnDomain.
type preemption struct {
	group types.UID
	// Pods that may be victims, by node, as they were in the last run that was no what-if.
	pods map[string][]*v1.Pod
}

// whatIf is a run over a group without its victims.
type whatIf struct {
	removed []types.UID
	// Those of removed that can make a difference for devices.
	matter  sets.Set[types.UID]
	answers map[uint64]*fwk.Status // By the hash of the pods of matter that are put back.
	request *sidecar.GroupRequest
	began   time.Time
	// ended is set once it is not found out any more which victims are needed. The framework takes a Filter that fails
	// for a victim that is needed, so this ends the preemption where the victim is taken away again.
	ended *fwk.Status
}

// beginPreemption takes note of the pods that may be victims.
func (pl *Drawbridge) beginPreemption(group *sidecar.GroupReference, member *v1.Pod) (*preemption, error) {
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, err
	}
	begun := &preemption{group: group.UID, pods: map[string][]*v1.Pod{}}
	for _, node := range nodes {
		var pods []*v1.Pod
		for _, info := range node.GetPods() {
			if pod := info.GetPod(); isOutranked(pod, corev1helpers.PodPriority(member)) {
				pods = append(pods, pod)
			}
		}
		if len(pods) > 0 {
			begun.pods[node.Node().Name] = pods
		}
	}
	return begun, nil
}

// whatIfOf returns what is different in a run over a group that preemption does; nil in any other run.
//
// In any other run the informer, which is ahead of the scheduler's cache, knows that a pod which is not on
// its node any longer has ended, or is gone.
func (pl *Drawbridge) whatIfOf(group types.UID, nodes []fwk.NodeInfo) *whatIf {
	if pl.preemption == nil || pl.preemption.group != group {
		return nil
	}
	var missing []*v1.Pod
	isWhatIf := false
	for _, node := range nodes {
		before := pl.preemption.pods[node.Node().Name]
		if len(before) == 0 {
			continue
		}
		there := sets.New[types.UID]()
		for _, info := range node.GetPods() {
			there.Insert(info.GetPod().UID)
		}
		for _, pod := range before {
			if there.Has(pod.UID) {
				continue
			}
			current := pl.claims.pod(pod)
			if current == nil || hasEnded(current) {
				continue
			}
			missing = append(missing, pod)
			// One that is not bound may have been given up.
			isWhatIf = isWhatIf || current.Spec.NodeName != ""
		}
	}
	if !isWhatIf {
		return nil
	}
	made := &whatIf{matter: sets.New[types.UID](), answers: map[uint64]*fwk.Status{}, began: time.Now()}
	var others []types.UID
	for _, pod := range missing {
		if pl.matters(pod) {
			made.matter.Insert(pod.UID)
		} else {
			others = append(others, pod.UID)
		}
	}
	made.removed = append(sets.List(made.matter), others...)
	made.removed = made.removed[:min(len(made.removed), maxRemoved)]
	return made
}

func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// putBack takes note of a victim that is taken to be there after all. Other pods are nominated ones, which
// the sidecar counts.
func (c *cycle) putBack(pod *v1.Pod) *fwk.Status {
	made := c.group.whatIf
	if made == nil {
		return nil
	}
	if made.matter.Has(pod.UID) && !c.added.Has(pod.UID) {
		c.added.Insert(pod.UID)
		c.putHash ^= hashOf(pod)
	}
	return made.ended
}

// takeAway takes note of a victim that is taken to be gone again.
func (c *cycle) takeAway(pod *v1.Pod) *fwk.Status {
	if c.added.Has(pod.UID) {
		c.added.Delete(pod.UID)
		c.putHash ^= hashOf(pod)
	}
	if made := c.group.whatIf; made != nil {
		return made.ended
	}
	return nil
}

func hashOf(pod *v1.Pod) uint64 { return maphash.String(uidSeed, string(pod.UID)) }

// filterWhatIf asks whether the members fit on the nodes that they got in the what-if, with some of the
// victims put back. The sidecar knows the members from the what-if without all victims.
func (pl *Drawbridge) filterWhatIf(ctx context.Context, cycle *cycle) *fwk.Status {
	group, made := cycle.group, cycle.group.whatIf
	if made.ended != nil {
		return made.ended
	}
	if status, isKnown := made.answers[cycle.putHash]; isKnown {
		return status
	}
	request := *made.request
	request.Header = sidecar.Header{}
	request.Pods, request.Placed, request.Requests, request.ClaimVersions = []*v1.Pod{}, nil, nil, nil
	request.Pinned = group.reserved
	request.Removed = nil
	for _, pod := range made.removed {
		if !cycle.added.Has(pod) {
			request.Removed = append(request.Removed, pod)
		}
	}
	status, isKnown := pl.pinnedStatus(ctx, &request)
	if took := time.Since(made.began); !isKnown || took > maxWhatIfs {
		status = fwk.NewStatus(fwk.Error, tooManyVictims)
		now := time.Now()
		pl.groups.rest(request.Group.Namespace, now, now.Add(max(minRest, restAfterWhatIfs*took)))
	}
	if status.Code() == fwk.Error {
		made.ended = status
	}
	made.answers[cycle.putHash] = status
	return status
}

// pinnedStatus reports whether the members fit on their nodes, or false if that is not found out in time.
func (pl *Drawbridge) pinnedStatus(ctx context.Context, request *sidecar.GroupRequest) (*fwk.Status, bool) {
	answer, err := pl.client.Group(ctx, request)
	if err != nil {
		return fwk.AsStatus(err), true
	}
	if answer.Unfinished {
		return nil, false
	}
	switch {
	case answer.Verdict == sidecar.Fits:
		for pod := range request.Pinned {
			if answer.Members[pod].Node == "" {
				return fwk.NewStatus(fwk.Unschedulable, misfit), true
			}
		}
		return nil, true
	case answer.Verdict == sidecar.Unschedulable || answer.Verdict == sidecar.Unresolvable:
		return fwk.NewStatus(fwk.Unschedulable, answer.Message), true
	default:
		return fwk.NewStatus(fwk.Error, answer.Message), true
	}
}
