// Record asks KAI's webhook and its scheduler's nodes for the GPUs of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/NVIDIA/KAI-scheduler/pkg/admission/webhook/v1alpha2/gpusharing"
	"github.com/NVIDIA/KAI-scheduler/pkg/binder/common"
	"github.com/NVIDIA/KAI-scheduler/pkg/binder/common/gpusharingconfigmap"
	"github.com/NVIDIA/KAI-scheduler/pkg/common/constants"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/node_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/pod_affinity"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/pod_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/pod_status"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/api/resource_info"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/framework"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/gpu_sharing"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/plugins/gpupack"
)

const allCores = 100

type card struct {
	UUID   string `json:"uuid"`
	Memory int    `json:"memory"`
}

func main() {
	record(outcomes)
}

func outcomes(asked scenario) []outcome {
	var nodes []*cards
	for _, name := range asked.names() {
		nodes = append(nodes, newCards(name, asked.Nodes[name]))
	}
	session := &framework.Session{}
	gpupack.New(nil).OnSessionOpen(session)
	webhook := gpusharing.New(nil, true)
	var all []outcome
	for index := range asked.Pods {
		pod := &asked.Pods[index]
		pod.UID = types.UID(fmt.Sprintf("pod-%d", index))
		pod.Status.Phase = corev1.PodPending
		setDefaults(pod)
		if err := webhook.Mutate(pod); err != nil {
			all = append(all, outcome{Refused: "webhook"})
		} else if err := webhook.Validate(pod); err != nil {
			all = append(all, outcome{Refused: "webhook"})
		} else {
			all = append(all, decide(session, nodes, pod))
		}
	}
	return all
}

// setDefaults has requests where there are limits alone, as the API server writes them.
func setDefaults(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for index := range containers {
			resources := &containers[index].Resources
			for key, amount := range resources.Limits {
				if _, found := resources.Requests[key]; found {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[key] = amount
			}
		}
	}
}

// decide allocates on the first node that fits, as the allocate action does for one task.
func decide(session *framework.Session, nodes []*cards, pod *corev1.Pod) outcome {
	for _, node := range nodes {
		task := pod_info.NewTaskInfo(pod, nil, node.info.VectorMap)
		if node.info.PredicateByNodeResourcesType(task) != nil || !node.info.IsTaskAllocatable(task) {
			continue
		}
		if task.IsFractionCandidate() {
			fitting := session.FittingGPUs(node.info, task)
			chosen := gpu_sharing.GetNodePreferableGpuForSharing(fitting, node.info, task, false)
			if chosen == nil || chosen.IsReleasing {
				continue
			}
			task.GPUGroups = chosen.Groups
		}
		task.Status = pod_status.Allocated
		task.NodeName = node.info.Name
		if err := node.info.AddTask(task); err != nil {
			panic(err)
		}
		if task.IsFractionCandidate() {
			return outcome{Containers: node.shares(pod, task)}
		}
		return outcome{Containers: node.whole(pod)}
	}
	return outcome{Refused: "scheduler"}
}

// cards are the GPUs of a node, with numbers for those that are in use.
type cards struct {
	info    *node_info.NodeInfo
	memory  int
	numbers map[string]int
}

// newCards is a node as the device plugin and GPU feature discovery label it: all cards have one size.
func newCards(name string, listed []card) *cards {
	node := &corev1.Node{}
	node.Name = name
	for _, one := range listed {
		if one.Memory != listed[0].Memory {
			panic("KAI knows one size of GPUs on a node, and " + name + " has two")
		}
	}
	node.Labels = map[string]string{
		node_info.GpuMemoryLabel: strconv.Itoa(listed[0].Memory),
		node_info.GpuCountLabel:  strconv.Itoa(len(listed)),
	}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:          resource.MustParse("64"),
		corev1.ResourceMemory:       resource.MustParse("512Gi"),
		corev1.ResourcePods:         resource.MustParse("110"),
		constants.NvidiaGpuResource: *resource.NewQuantity(int64(len(listed)), resource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable
	vectors := resource_info.NewResourceVectorMap()
	for key := range node.Status.Allocatable {
		vectors.AddResource(string(key))
	}
	return &cards{
		info:    node_info.NewNodeInfo(node, noAffinity{}, vectors),
		memory:  listed[0].Memory,
		numbers: map[string]int{},
	}
}

// shares returns the memory that the node counts for each group, at the container of the fraction.
// A device is a number in the node's order of first use: KAI's reservation pods choose the card itself.
func (c *cards) shares(pod *corev1.Pod, task *pod_info.PodInfo) [][]grant {
	reference, err := common.GetFractionContainerRef(pod)
	if err != nil {
		panic(err)
	}
	index := reference.Index
	if reference.Type == gpusharingconfigmap.RegularContainer {
		index += len(pod.Spec.InitContainers)
	}
	containers := make([][]grant, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for _, group := range task.GPUGroups {
		containers[index] = append(containers[index], grant{
			Device: c.number(group),
			Memory: int64(c.info.GetResourceGpuMemory(task.ResReq)),
		})
	}
	return withoutNull(containers)
}

func (c *cards) number(group string) string {
	if _, found := c.numbers[group]; !found {
		c.numbers[group] = len(c.numbers)
	}
	return fmt.Sprintf("%s-%d", c.info.Name, c.numbers[group])
}

// whole returns the cards that the device plugin gives each container.
func (c *cards) whole(pod *corev1.Pod) [][]grant {
	var containers [][]grant
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		grants := []grant{}
		amount := container.Resources.Limits[constants.NvidiaGpuResource]
		for range amount.Value() {
			grants = append(grants, grant{Device: "whole", Memory: int64(c.memory), Cores: allCores})
		}
		containers = append(containers, grants)
	}
	return containers
}

func withoutNull(containers [][]grant) [][]grant {
	for index := range containers {
		if containers[index] == nil {
			containers[index] = []grant{}
		}
	}
	return containers
}

// noAffinity is a node without pods that have affinities.
type noAffinity struct{}

var _ pod_affinity.NodePodAffinityInfo = noAffinity{}

func (noAffinity) AddPod(*corev1.Pod)               {}
func (noAffinity) RemovePod(*corev1.Pod) error      { return nil }
func (noAffinity) HasPodsWithPodAffinity() bool     { return false }
func (noAffinity) HasPodsWithPodAntiAffinity() bool { return false }
func (noAffinity) Name() string                     { return "" }
