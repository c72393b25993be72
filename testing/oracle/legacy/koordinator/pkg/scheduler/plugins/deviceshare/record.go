package deviceshare

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiext "github.com/koordinator-sh/koordinator/apis/extension"
	schedulingv1alpha1 "github.com/koordinator-sh/koordinator/apis/scheduling/v1alpha1"
)

// Cluster has the devices of nodes, and what pods use of them.
type Cluster struct {
	cache *nodeDeviceCache
	nodes []string
}

// NewCluster has the devices of nodes, in the order in which they are tried.
func NewCluster(devices []*schedulingv1alpha1.Device) *Cluster {
	cluster := &Cluster{cache: newNodeDeviceCache()}
	for _, device := range devices {
		cluster.cache.updateNodeDevice(device.Name, device)
		cluster.nodes = append(cluster.nodes, device.Name)
	}
	return cluster
}

// Place does to a pod what PreFilter, Filter and Reserve do: it allocates on the first node that fits. It
// returns the step that refuses the pod; and nothing at all where the pod requests no device.
func (c *Cluster) Place(pod *corev1.Pod) (apiext.DeviceAllocations, string) {
	state, status := preparePod(pod, nil, nil)
	if !status.IsSuccess() {
		return nil, "prefilter"
	}
	// As PreFilter does without a scheduling hint.
	state.designatedAllocation, state.designatedVF = nil, nil
	if state.skip {
		return nil, ""
	}
	for _, name := range c.nodes {
		devices := c.cache.getNodeDevice(name, false)
		allocator := &AutopilotAllocator{
			state:      state,
			nodeDevice: devices,
			node:       &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			pod:        pod,
		}
		allocated, status := allocator.Allocate(nil, nil, nil, nil)
		if !status.IsSuccess() {
			continue
		}
		if err := fillGPUTotalMem(allocated, devices); err != nil {
			panic(err)
		}
		devices.updateCacheUsed(allocated, pod, true)
		return allocated, ""
	}
	return nil, "filter"
}
