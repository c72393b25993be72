package scheduler

import (
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/Project-HAMi/HAMi/pkg/device"
)

// Place scores the nodes as Filter does, and returns the node that it binds to with its devices; the
// node's usage is then that with the pod. It returns "" where no node fits.
func Place(nodes map[string]*NodeUsage, pod *corev1.Pod) (string, device.PodDevices, error) {
	requests := device.Resourcereqs(pod)
	copies := make(map[string]*NodeUsage, len(nodes))
	for name, node := range nodes {
		copies[name] = node.DeepCopy()
	}
	scores, err := (&Scheduler{}).calcScoreWithOptions(&copies, requests, pod, map[string]string{}, false, false)
	if err != nil || len(scores.NodeList) == 0 {
		return "", nil, err
	}
	// Goroutines score the nodes, so equal scores are in no order without this.
	sort.Slice(scores.NodeList, func(i, j int) bool {
		return scores.NodeList[i].NodeID > scores.NodeList[j].NodeID
	})
	sort.Stable(scores)
	chosen := scores.NodeList[len(scores.NodeList)-1]
	nodes[chosen.NodeID] = copies[chosen.NodeID]
	return chosen.NodeID, chosen.Devices, nil
}
