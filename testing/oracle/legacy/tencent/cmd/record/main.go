// Record asks the allocator of Tencent's gpu-admission for the cards of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tkestack.io/gpu-admission/pkg/algorithm"
	"tkestack.io/gpu-admission/pkg/device"
	"tkestack.io/gpu-admission/pkg/util"
)

const mibPerBlock = 256

type card struct {
	UUID   string `json:"uuid"`
	Memory int    `json:"memory"`
}

func main() {
	record(outcomes)
}

func outcomes(asked scenario) []outcome {
	names := asked.names()
	placed := map[string][]*corev1.Pod{}
	var all []outcome
	for index := range asked.Pods {
		all = append(all, decide(names, asked.Nodes, placed, &asked.Pods[index]))
	}
	return all
}

// decide allocates on the first node that passes, as the device filter does, from the annotations of the
// pods that are placed.
func decide(
	names []string, cards map[string][]card, placed map[string][]*corev1.Pod, pod *corev1.Pod,
) outcome {
	if !util.IsGPURequiredPod(pod) {
		return outcome{Containers: none(pod)}
	}
	for _, name := range names {
		made := node(name, cards[name])
		annotated, err := algorithm.NewAllocator(device.NewNodeInfo(made, placed[name])).Allocate(pod)
		if err != nil {
			continue
		}
		placed[name] = append(placed[name], annotated)
		return outcome{Containers: grants(annotated, cards[name])}
	}
	return outcome{Refused: "filter"}
}

func none(pod *corev1.Pod) [][]grant {
	containers := [][]grant{}
	for range pod.Spec.Containers {
		containers = append(containers, []grant{})
	}
	return containers
}

// grants returns what the pod's annotations and limits say, as NewNodeInfo counts them.
func grants(pod *corev1.Pod, cards []card) [][]grant {
	containers := none(pod)
	for index := range pod.Spec.Containers {
		indexes, err := util.GetPredicateIdxOfContainer(pod, index)
		if err != nil {
			continue
		}
		cores := int64(util.GetGPUResourceOfContainer(&pod.Spec.Containers[index], util.VCoreAnnotation))
		blocks := int64(util.GetGPUResourceOfContainer(&pod.Spec.Containers[index], util.VMemoryAnnotation))
		for _, chosen := range indexes {
			given := grant{Device: cards[chosen].UUID, Memory: blocks * mibPerBlock, Cores: cores}
			if cores >= util.HundredCore {
				given.Memory, given.Cores = int64(cards[chosen].Memory), util.HundredCore
			}
			containers[index] = append(containers[index], given)
		}
	}
	return containers
}

// node is a node as GPU manager makes it: the sums of all cards.
func node(name string, cards []card) *corev1.Node {
	blocks := 0
	for _, listed := range cards {
		blocks += listed.Memory / mibPerBlock
	}
	made := &corev1.Node{}
	made.Name = name
	made.Status.Capacity = corev1.ResourceList{
		util.VCoreAnnotation:   resource.MustParse(strconv.Itoa(len(cards) * util.HundredCore)),
		util.VMemoryAnnotation: resource.MustParse(strconv.Itoa(blocks)),
	}
	return made
}
