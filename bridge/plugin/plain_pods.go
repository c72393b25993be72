package plugin

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const ranksKey fwk.StateKey = Name + "/ranks"

// ranks are the scores of nodes for a pod that the sidecar has nothing to do with.
type ranks map[string]int64

// Clone returns the same: nothing changes them.
func (r ranks) Clone() fwk.StateData { return r }

// rankPlain ranks nodes by what a pod without devices costs the pods that usually come there for them, as the
// sidecar's latest answers say. No call is made. It returns Skip where they say nothing, or are out of date.
//
// In the cycle of a pod group the nodes' resources are a what-if.
func (pl *Drawbridge) rankPlain(state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() || len(nodes) < 2 {
		return fwk.NewStatus(fwk.Skip)
	}
	requests := pl.requests(pod)
	if requests == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	costs := pl.client.Costs(nodes, *requests)
	if costs == nil || slices.Min(costs) == slices.Max(costs) {
		return fwk.NewStatus(fwk.Skip) // Others decide.
	}
	ranked := make(ranks, len(nodes))
	for position, rank := range ranksOf(costs) {
		if rank > 0 {
			ranked[nodes[position].Node().Name] = rank
		}
	}
	state.Write(ranksKey, ranked)
	return nil
}

// ranksOf returns 100 for the least cost, 99 for the next and so on; equal costs have equal ranks, and those beyond
// the lowest rank have 0.
func ranksOf(costs []int64) []int64 {
	distinct := slices.Clone(costs)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	ranks := make([]int64, len(costs))
	for position, cost := range costs {
		place, _ := slices.BinarySearch(distinct, cost)
		ranks[position] = max(fwk.MinNodeScore, fwk.MaxNodeScore-int64(place))
	}
	return ranks
}

// rankOf returns the rank of a node for a pod that the sidecar has nothing to do with.
func rankOf(state fwk.CycleState, node string) int64 {
	data, err := state.Read(ranksKey)
	if err != nil {
		return 0
	}
	return data.(ranks)[node]
}
