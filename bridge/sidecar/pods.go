package sidecar

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxPodsBytes bounds the pods of a question about a group, as PodsBytes counts them: 8 KiB for each of 512 pods. As JSON
// they are a few times as long, which is below what the sidecar reads.
const MaxPodsBytes = 4 << 20

// annotations are those that the sidecar reads, REQUEST_ANNOTATION and STRATEGY_ANNOTATION of kube/names.py.
var annotations = []string{"drawbridge.internal/request", "drawbridge.internal/strategy"}

// PodsBytes returns the length of pods in a question, as protobuf writes them: a sum that is made without writing.
func PodsBytes(pods []*v1.Pod) int {
	sum := 0
	for _, pod := range pods {
		sum += project(pod).Size()
	}
	return sum
}

func projectAll(pods []*v1.Pod) []*v1.Pod {
	projected := make([]*v1.Pod, len(pods))
	for index, pod := range pods {
		projected[index] = project(pod)
	}
	return projected
}

// project returns a pod with the fields that the sidecar reads to place it; sidecar/state/projections.py keeps the same
// of pods that it watches. Whoever writes a pod chooses how long the others are: a variable of a container alone has a
// megabyte, and they would be written in the scheduler's serial cycle.
func project(pod *v1.Pod) *v1.Pod {
	if pod == nil {
		return nil
	}
	spec, status := &pod.Spec, &pod.Status
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:                       pod.Name,
			Namespace:                  pod.Namespace,
			UID:                        pod.UID,
			CreationTimestamp:          pod.CreationTimestamp,
			DeletionTimestamp:          pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
			Annotations:                projectAnnotations(pod.Annotations),
			OwnerReferences:            controllerOf(pod),
		},
		Spec: v1.PodSpec{
			InitContainers:    projectContainers(spec.InitContainers),
			Containers:        projectContainers(spec.Containers),
			Resources:         spec.Resources,
			Overhead:          spec.Overhead,
			ResourceClaims:    spec.ResourceClaims,
			NodeName:          spec.NodeName,
			NodeSelector:      spec.NodeSelector,
			Affinity:          projectAffinity(spec.Affinity),
			Tolerations:       spec.Tolerations,
			SchedulerName:     spec.SchedulerName,
			SchedulingGates:   spec.SchedulingGates,
			SchedulingGroup:   spec.SchedulingGroup,
			PriorityClassName: spec.PriorityClassName,
			Priority:          spec.Priority,
			PreemptionPolicy:  spec.PreemptionPolicy,
		},
		Status: v1.PodStatus{
			Phase:                       status.Phase,
			NominatedNodeName:           status.NominatedNodeName,
			ResourceClaimStatuses:       status.ResourceClaimStatuses,
			ExtendedResourceClaimStatus: status.ExtendedResourceClaimStatus,
		},
	}
}

func projectAnnotations(all map[string]string) map[string]string {
	var read map[string]string
	for _, name := range annotations {
		if value, ok := all[name]; ok {
			if read == nil {
				read = map[string]string{}
			}
			read[name] = value
		}
	}
	return read
}

func controllerOf(pod *v1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// projectContainers keeps what containers request.
func projectContainers(containers []v1.Container) []v1.Container {
	projected := make([]v1.Container, len(containers))
	for index := range containers {
		container := &containers[index]
		projected[index] = v1.Container{Name: container.Name, Resources: container.Resources, RestartPolicy: container.RestartPolicy}
	}
	return projected
}

// projectAffinity keeps the conditions on nodes; those on other pods are left to the scheduler.
func projectAffinity(affinity *v1.Affinity) *v1.Affinity {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return &v1.Affinity{NodeAffinity: affinity.NodeAffinity}
}
