package sidecar

import (
	"cmp"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// maxNodesSent bounds a request; the rest of the nodes comes with later ones. The sidecar takes 8 MB.
const maxNodesSent = 10_000

// NodeHeadroom is what the pods on a node leave, those that are only assumed to be there included.
// Nothing is below 0, also where a node shrank below what its pods request.
type NodeHeadroom struct {
	Name     string `json:"name"`
	CPUMilli int64  `json:"cpuMilli"`
	// Memory is in bytes.
	Memory int64 `json:"memory"`
	// Pods is how many more pods the node may run.
	Pods int64 `json:"pods"`
}

// Headroom is how the nodes changed since an earlier request.
type Headroom struct {
	// Number grows with each request that brings changes.
	Number int64 `json:"number"`
	// Since is the number of the request that the changes add to; 0 makes them replace all there were.
	Since   int64          `json:"since"`
	Nodes   []NodeHeadroom `json:"nodes,omitempty"`
	Removed []string       `json:"removed,omitempty"`
}

// nodeRecord is a node as it was seen last.
type nodeRecord struct {
	NodeHeadroom
	generation int64
	seen       int64 // The look at all nodes that saw it last.
}

// headroom is what the nodes have left, and what the sidecar may not know of it yet.
//
// The scheduler gives each state of each node a generation that no other has. So a look at nodes that
// did not change compares a number per node, and only those that did are read.
type headroom struct {
	mutex        sync.Mutex
	instance     string // Of the sidecar that acknowledged.
	last         int64
	acknowledged int64
	looks        int64
	listed       []*nodeRecord // In the scheduler's order.
	known        map[string]*nodeRecord
	// Names with what the sidecar may not know, and the request that told it last, 0 without one. A name
	// that is not known was removed.
	changed map[string]int64
}

func newHeadroom() *headroom {
	return &headroom{known: map[string]*nodeRecord{}, changed: map[string]int64{}}
}

// observe takes note of all nodes of the scheduler's snapshot.
func (h *headroom) observe(nodes []fwk.NodeInfo) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	isSame := len(nodes) == len(h.listed)
	for position, info := range nodes {
		generation := info.GetGeneration()
		if position < len(h.listed) && h.listed[position].generation == generation {
			continue
		}
		record, isListed := h.readLocked(info, generation), position < len(h.listed)
		isSame = isSame && h.listed[position] == record
		if isListed {
			h.listed[position] = record
		} else {
			h.listed = append(h.listed, record)
		}
	}
	if isSame {
		return
	}
	clear(h.listed[len(nodes):])
	h.listed = h.listed[:len(nodes)]
	h.looks++
	for _, record := range h.listed {
		record.seen = h.looks
	}
	for name, record := range h.known {
		if record.seen != h.looks {
			delete(h.known, name)
			h.changed[name] = 0
		}
	}
}

// readLocked returns the record of a node in a new generation, which another node may have moved ahead of.
func (h *headroom) readLocked(info fwk.NodeInfo, generation int64) *nodeRecord {
	name := info.Node().Name
	record, isKnown := h.known[name]
	if isKnown && record.generation == generation {
		return record
	}
	left := leftOf(info)
	if !isKnown {
		record = &nodeRecord{}
		h.known[name] = record
	}
	// Most generations are those of a heartbeat.
	if !isKnown || left != record.NodeHeadroom {
		h.changed[name] = 0
	}
	record.NodeHeadroom, record.generation = left, generation
	return record
}

// leftOf returns what the pods on a node leave.
func leftOf(info fwk.NodeInfo) NodeHeadroom {
	allocatable, requested := info.GetAllocatable(), info.GetRequested()
	return NodeHeadroom{
		Name:     info.Node().Name,
		CPUMilli: max(0, allocatable.GetMilliCPU()-requested.GetMilliCPU()),
		Memory:   max(0, allocatable.GetMemory()-requested.GetMemory()),
		Pods:     int64(max(0, allocatable.GetAllowedPodNumber()-len(info.GetPods()))),
	}
}

// fill returns what an instance of the sidecar may not know: all nodes, if it acknowledged nothing.
func (h *headroom) fill(instance string) *Headroom {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if instance != h.instance {
		h.instance = instance
		h.forgetLocked()
	}
	filled := &Headroom{Number: h.acknowledged, Since: h.acknowledged}
	if len(h.changed) == 0 {
		return filled
	}
	h.last++
	filled.Number = h.last
	for name := range h.changed {
		if len(filled.Nodes)+len(filled.Removed) == maxNodesSent {
			break
		}
		h.changed[name] = h.last
		if record, isKnown := h.known[name]; isKnown {
			filled.Nodes = append(filled.Nodes, record.NodeHeadroom)
		} else {
			filled.Removed = append(filled.Removed, name)
		}
	}
	slices.SortFunc(filled.Nodes, func(a, b NodeHeadroom) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(filled.Removed)
	return filled
}

// answered takes note of the number that an instance has, as its answer to a request says.
func (h *headroom) answered(instance string, number, since int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if instance != h.instance {
		return
	}
	if number < since {
		h.forgetLocked() // It lost what it had, so that nothing could be added.
		return
	}
	if number <= h.acknowledged || number > h.last {
		return
	}
	h.acknowledged = number
	for name, sent := range h.changed {
		if sent == number {
			delete(h.changed, name)
		}
	}
}

// forgetLocked has all nodes sent again, in place of those that the sidecar has.
func (h *headroom) forgetLocked() {
	h.acknowledged = 0
	clear(h.changed)
	for name := range h.known {
		h.changed[name] = 0
	}
}
