// Record asks the cache of Alibaba Cloud's GPU share extender for the cards of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/cache"
	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/log"
	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/utils"
)

const mibPerGiB = 1024

type card struct {
	UUID   string `json:"uuid"`
	Memory int    `json:"memory"`
}

func main() {
	log.NewLoggerWithLevel(0)
	record(outcomes)
}

func outcomes(asked scenario) []outcome {
	names, nodes := asked.names(), map[string]*cache.NodeInfo{}
	for _, name := range names {
		nodes[name] = cache.NewNodeInfo(node(name, asked.Nodes[name]))
	}
	var all []outcome
	for index := range asked.Pods {
		pod := &asked.Pods[index]
		pod.UID = types.UID(fmt.Sprintf("pod-%d", index))
		all = append(all, decide(names, nodes, asked.Nodes, pod))
	}
	return all
}

// node is a node as the device plugin, with GiB as its unit, makes it: the sum of all cards.
func node(name string, cards []card) *corev1.Node {
	total := 0
	for _, listed := range cards {
		total += listed.Memory / mibPerGiB
	}
	made := &corev1.Node{}
	made.Name = name
	made.Status.Capacity = corev1.ResourceList{
		utils.ResourceName: *resource.NewQuantity(int64(total), resource.DecimalSI),
		utils.CountName:    *resource.NewQuantity(int64(len(cards)), resource.DecimalSI),
	}
	return made
}

// decide asks the nodes as the extender's predicate does, and allocates on the first that passes.
// All containers share the card; the extender knows no cores.
func decide(names []string, nodes map[string]*cache.NodeInfo, cards map[string][]card, pod *corev1.Pod) outcome {
	if !utils.IsGPUsharingPod(pod) {
		return outcome{Containers: [][]grant{{}}}
	}
	for _, name := range names {
		if !nodes[name].Assume(pod) {
			continue
		}
		index, memory, found := nodes[name].Place(pod)
		if !found {
			return outcome{Refused: "allocation"}
		}
		given := grant{Device: cards[name][index].UUID, Memory: int64(memory) * mibPerGiB}
		return outcome{Containers: [][]grant{{given}}}
	}
	return outcome{Refused: "predicate"}
}
