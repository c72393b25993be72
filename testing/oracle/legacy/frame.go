// The frame of every recorder: a JSON list of scenarios in, the outcomes of their pods out.
//
// record.py is the other side, and lays this file beside the recorder of a system.
package main

import (
	"encoding/json"
	"os"
	"sort"

	corev1 "k8s.io/api/core/v1"
)

// scenario is the cards of nodes, as the system counts them, and pods that come one after the other.
type scenario struct {
	Nodes map[string][]card `json:"nodes"`
	Pods  []corev1.Pod      `json:"pods"`
}

// names are the nodes in the order in which they are tried.
func (s scenario) names() []string {
	var names []string
	for name := range s.Nodes {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// outcome is a refusal, by whom, or the devices of containers, and the number of NICs of the pod.
type outcome struct {
	Refused    string    `json:"refused,omitempty"`
	Containers [][]grant `json:"containers,omitempty"`
	NICs       int       `json:"nics,omitempty"`
}

// grant is the memory in MiB and the percentage of cores of one device; 0 cores are without a limit.
type grant struct {
	Device string `json:"device"`
	Memory int64  `json:"memory"`
	Cores  int64  `json:"cores"`
}

// record answers the scenarios on standard input.
func record(outcomes func(scenario) []outcome) {
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
