// Record asks the cache of Alibaba Cloud's GPU share extender for the cards of pods, one after the other.
//
// It reads a JSON list of scenarios and writes the outcomes of their pods. record.py is the other side.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/cache"
	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/log"
	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/utils"
)

const mibPerGiB = 1024

type scenario struct {
	Nodes map[string][]card `json:"nodes"`
	Pods  []corev1.Pod      `json:"pods"`
}

type card struct {
	UUID   string `json:"uuid"`
	Memory int    `json:"memory"`
}

// outcome is a refusal, by whom, or the card that all containers of the pod share.
type outcome struct {
	Refused    string    `json:"refused,omitempty"`
	Containers [][]grant `json:"containers,omitempty"`
}

// grant is the memory in MiB of one card; the extender knows no cores, so 0, no limit.
type grant struct {
	Device string `json:"device"`
	Memory int    `json:"memory"`
	Cores  int    `json:"cores"`
}

func main() {
	log.NewLoggerWithLevel(0)
	var scenarios []scenario
	if err := json.NewDecoder(os.Stdin).Decode(&scenarios); err != nil {
		panic(err)
	}
	answers := make([][]outcome, 0, len(scenarios))
	for _, asked := range scenarios {
		answers = append(answers, outcomes(asked))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}

func outcomes(asked scenario) []outcome {
	var names []string
	nodes := map[string]*cache.NodeInfo{}
	for name, cards := range asked.Nodes {
		names = append(names, name)
		nodes[name] = cache.NewNodeInfo(node(name, cards))
	}
	sort.Strings(names)
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
		given := grant{Device: cards[name][index].UUID, Memory: memory * mibPerGiB}
		return outcome{Containers: [][]grant{{given}}}
	}
	return outcome{Refused: "predicate"}
}
