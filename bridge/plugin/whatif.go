package plugin

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.internal/bridge/sidecar"
)

// maxRemoved bounds a request; the sidecar reads 32 MiB.
const maxRemoved = 100_000

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
	answers map[string]*fwk.Status // By the pods of matter that are put back.
	request *sidecar.GroupRequest
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
	made := &whatIf{matter: sets.New[types.UID](), answers: map[string]*fwk.Status{}}
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
func (c *cycle) putBack(pod *v1.Pod) {
	if c.group.whatIf != nil && c.group.whatIf.matter.Has(pod.UID) {
		c.added.Insert(pod.UID)
	}
}

// filterWhatIf asks whether the members fit on the nodes that they got in the what-if, with some of the
// victims put back.
func (pl *Drawbridge) filterWhatIf(ctx context.Context, group *groupCycle, added sets.Set[types.UID]) *fwk.Status {
	back := sets.List(added)
	var key strings.Builder
	for _, pod := range back {
		key.WriteString(string(pod) + " ")
	}
	if status, isKnown := group.whatIf.answers[key.String()]; isKnown {
		return status
	}
	request := *group.whatIf.request
	request.Header = sidecar.Header{}
	request.Pinned = group.reserved
	request.Removed = nil
	for _, pod := range group.whatIf.removed {
		if !added.Has(pod) {
			request.Removed = append(request.Removed, pod)
		}
	}
	status := pl.pinnedStatus(ctx, &request)
	group.whatIf.answers[key.String()] = status
	return status
}

func (pl *Drawbridge) pinnedStatus(ctx context.Context, request *sidecar.GroupRequest) *fwk.Status {
	answer, err := pl.client.Group(ctx, request)
	if err != nil {
		return pl.failed(request.Pods[0], err)
	}
	switch {
	case answer.Verdict == sidecar.Fits:
		for pod := range request.Pinned {
			if answer.Members[pod].Node == "" {
				return fwk.NewStatus(fwk.Unschedulable, misfit)
			}
		}
		return nil
	case answer.Verdict == sidecar.Unschedulable || answer.Verdict == sidecar.Unresolvable:
		return fwk.NewStatus(fwk.Unschedulable, answer.Message)
	default:
		return fwk.NewStatus(fwk.Error, answer.Message)
	}
}
