package sidecar

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// maxSizes bounds the sizes of pods whose costs are remembered. Most pods of a cluster have few sizes.
const maxSizes = 32

// UsualPods is how the usual pods' devices on the nodes changed; sidecar/model/protocol.py has the formula.
type UsualPods struct {
	Number int64 `json:"number"`
	// Since is the number that the changes add to; 0 makes them replace all there were.
	Since int64 `json:"since"`
	// Kinds has the CPU in thousandths of a core and the memory in bytes of one pod; only with Since 0.
	Kinds [][2]int64 `json:"kinds"`
	// Classes has for each kind with devices its position, the number of pods and the value of one.
	Classes [][][3]int64     `json:"classes"`
	Nodes   map[string]int64 `json:"nodes"`
	Removed []string         `json:"removed"`
	// More is set while further nodes changed, so that what is known is out of date.
	More bool `json:"more"`
}

// slots are pods of one kind for which a node has devices.
type slots struct {
	cpuMilli, memory int64
	count, value     int64
}

// nodeClass is what all nodes have that the usual pods value alike. Its address is its identity.
type nodeClass struct{ slots []slots }

// knownCost is what a pod of a size costs a node in one state.
type knownCost struct {
	generation int64
	class      *nodeClass
	cost       int64
}

// usualPods is what the sidecar said about the usual pods.
type usualPods struct {
	mutex    sync.Mutex
	instance string // Of the sidecar that said it.
	number   int64
	isWhole  bool
	kinds    [][2]int64
	classes  map[string]*nodeClass
	costs    map[PodRequests]map[string]knownCost
}

// known returns the number of what an instance said last, 0 for another one.
func (u *usualPods) known(instance string) *int64 {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	number := u.number
	if instance != u.instance {
		number = 0
	}
	return &number
}

// take adds what an instance said; old news, and what adds to something unknown, change nothing.
func (u *usualPods) take(instance string, said *UsualPods) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	switch {
	case said == nil:
		return
	case said.Since == 0 && (instance != u.instance || said.Number > u.number):
		u.instance, u.kinds = instance, said.Kinds
		u.classes = make(map[string]*nodeClass, len(said.Nodes))
		u.costs = map[PodRequests]map[string]knownCost{}
	case instance != u.instance || said.Since == 0 || said.Since > u.number || said.Number < u.number:
		return
	}
	classes := make([]*nodeClass, 0, len(said.Classes))
	for _, told := range said.Classes {
		class := &nodeClass{slots: make([]slots, 0, len(told))}
		for _, row := range told {
			if kind := row[0]; kind >= 0 && kind < int64(len(u.kinds)) {
				class.slots = append(class.slots, slots{u.kinds[kind][0], u.kinds[kind][1], row[1], row[2]})
			}
		}
		classes = append(classes, class)
	}
	for name, position := range said.Nodes {
		if position >= 0 && position < int64(len(classes)) {
			u.classes[name] = classes[position]
		}
	}
	for _, name := range said.Removed {
		delete(u.classes, name)
		for _, known := range u.costs {
			delete(known, name)
		}
	}
	u.number, u.isWhole = said.Number, !said.More
}

// costsOf returns what a pod costs each of the nodes; nil if that is not known, or out of date.
func (u *usualPods) costsOf(instance string, nodes []fwk.NodeInfo, pod PodRequests) []int64 {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if instance != u.instance || !u.isWhole || len(u.classes) == 0 {
		return nil
	}
	known, ok := u.costs[pod]
	if !ok {
		if len(u.costs) >= maxSizes {
			clear(u.costs)
		}
		known = make(map[string]knownCost, len(nodes))
		u.costs[pod] = known
	}
	costs := make([]int64, len(nodes))
	for position, info := range nodes {
		name := info.Node().Name
		class, hasDevices := u.classes[name]
		if !hasDevices {
			continue // Nothing is lost there.
		}
		entry, generation := known[name], info.GetGeneration()
		if entry.class != class || entry.generation != generation {
			left := leftOf(info)
			entry = knownCost{generation, class, class.cost(left.CPUMilli, left.Memory, pod)}
			known[name] = entry
		}
		costs[position] = entry.cost
	}
	return costs
}

// cost is what the usual pods lose on a node that has so much left.
func (c *nodeClass) cost(cpuMilli, memory int64, pod PodRequests) int64 {
	lost := int64(0)
	for _, row := range c.slots {
		before := row.fit(cpuMilli, memory)
		lost += row.value * (before - row.fit(max(0, cpuMilli-pod.CPUMilli), max(0, memory-pod.Memory)))
	}
	return lost
}

// fit is how many of the pods there are CPU, memory and devices for.
func (s slots) fit(cpuMilli, memory int64) int64 {
	count := s.count
	if s.cpuMilli > 0 {
		count = min(count, cpuMilli/s.cpuMilli)
	}
	if s.memory > 0 {
		count = min(count, memory/s.memory)
	}
	return count
}
