package plugin

import (
	"maps"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// concerns reports whether the sidecar has to be asked about a pod: it may need devices, or be
// refused for asking for them in a way that is not served.
func concerns(pod *v1.Pod) bool {
	if resource.IsPodResizeDeferred(pod) {
		return false // It runs already and asks for CPU and memory only.
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			for _, amounts := range []v1.ResourceList{container.Resources.Requests, container.Resources.Limits} {
				for name := range amounts {
					if isExtended(name) {
						return true
					}
				}
			}
		}
	}
	return false
}

// isExtended reports whether a class may be mapped to the name. The implicit names of classes are
// below kubernetes.io.
func isExtended(name v1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io"
}

// mayPreempt reports whether the scheduler may evict pods for this one.
func mayPreempt(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != v1.PreemptNever
}

// outranksSome reports whether a pod is more important than one that runs, or than one of a group, whose
// priority is the group's.
//
// Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/defaultpreemption,
// isPreemptionAllowed.
func outranksSome(pod *v1.Pod, nodes []fwk.NodeInfo) bool {
	priority := corev1helpers.PodPriority(pod)
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			if isOutranked(info.GetPod(), priority) {
				return true
			}
		}
	}
	return false
}

func isOutranked(running *v1.Pod, priority int32) bool {
	return running.Spec.SchedulingGroup != nil || corev1helpers.PodPriority(running) < priority
}

// maxPods bounds a set of pods, of which some end without a word to us.
const maxPods = 10_000

// podSet is a bounded set of pods' UIDs.
type podSet struct {
	mutex sync.Mutex
	pods  map[types.UID]struct{}
}

func newPodSet() *podSet { return &podSet{pods: map[types.UID]struct{}{}} }

// add takes a pod in. A full set is emptied: it holds what saves a second attempt, not what is right.
func (s *podSet) add(pod types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.pods) >= maxPods {
		clear(s.pods)
	}
	s.pods[pod] = struct{}{}
}

func (s *podSet) remove(pod types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.pods, pod)
}

func (s *podSet) has(pod types.UID) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	_, ok := s.pods[pod]
	return ok
}

// minParked is how many pods are parked before those that are gone are looked for.
const minParked = 100

// parked are pods that were turned away while the sidecar was not usable. No event of the cluster
// says that it is back.
type parked struct {
	handle fwk.Handle
	stored cache.Store // All pods of the cluster.
	mutex  sync.Mutex
	pods   map[string]*v1.Pod
	bound  int // The number at which pods that are gone are forgotten.
}

func newParked(handle fwk.Handle, stored cache.Store) *parked {
	return &parked{handle: handle, stored: stored, pods: map[string]*v1.Pod{}, bound: minParked}
}

func (p *parked) add(pod *v1.Pod) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.pods) >= p.bound {
		maps.DeleteFunc(p.pods, func(_ string, parked *v1.Pod) bool { return p.isGone(parked) })
		p.bound = max(minParked, 2*len(p.pods))
	}
	p.pods[string(pod.UID)] = pod
}

// isGone reports whether a pod was deleted; another one may have its name.
func (p *parked) isGone(pod *v1.Pod) bool {
	object, exists, err := p.stored.Get(pod)
	if err != nil || !exists {
		return err == nil
	}
	stored, ok := object.(*v1.Pod)
	return ok && stored.UID != pod.UID
}

// release puts all of them back into the scheduling queue.
func (p *parked) release() {
	p.mutex.Lock()
	pods := p.pods
	p.pods, p.bound = map[string]*v1.Pod{}, minParked
	p.mutex.Unlock()
	if len(pods) > 0 {
		p.handle.Activate(klog.Background(), pods)
	}
}

// activateWaiting has all pods of the profile that wait and concern the sidecar tried again.
func (pl *Drawbridge) activateWaiting() {
	waiting := map[string]*v1.Pod{}
	for _, object := range pl.claims.pods.List() {
		pod, ok := object.(*v1.Pod)
		if ok && pod.Spec.NodeName == "" && pod.Spec.SchedulerName == pl.handle.ProfileName() && concerns(pod) {
			waiting[string(pod.UID)] = pod
		}
	}
	if len(waiting) > 0 {
		pl.handle.Activate(klog.Background(), waiting)
	}
}
