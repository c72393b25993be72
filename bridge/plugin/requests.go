package plugin

import (
	"math"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	pluginnames "k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"drawbridge.internal/bridge/sidecar"
)

// requests returns what NodeResourcesFit is going to compare with the nodes; nil where what they have
// left says nothing about the pod.
//
// Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources/fit.go,
// computePodResourceRequest.
func (pl *Drawbridge) requests(pod *v1.Pod) *sidecar.PodRequests {
	if !pl.comparesResources() {
		return nil
	}
	// Claims may then stand for part of what the pod requests.
	if utilfeature.DefaultFeatureGate.Enabled(features.DRANodeAllocatableResources) {
		return nil
	}
	amounts := resource.PodRequests(pod, resource.PodResourcesOptions{
		SkipPodLevelResources: !utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResources),
	})
	return &sidecar.PodRequests{CPUMilli: scaled(amounts.Cpu(), quantity.Milli), Memory: scaled(amounts.Memory(), 0)}
}

// scaled returns an amount as a number at a scale, at most the largest one.
//
// Unlike Quantity.ScaledValue, which is 0 beyond 64 bits: no node has room for so much.
func scaled(amount *quantity.Quantity, scale quantity.Scale) int64 {
	if amount.Cmp(*quantity.NewScaledQuantity(math.MaxInt64, scale)) > 0 {
		return math.MaxInt64
	}
	return amount.ScaledValue(scale)
}

// filtersByResources reports whether the profile has NodeResourcesFit turn nodes down.
func filtersByResources(handle fwk.Handle) bool {
	lister, ok := handle.(interface{ ListPlugins() *config.Plugins })
	if !ok {
		return false
	}
	for _, plugin := range lister.ListPlugins().Filter.Enabled {
		if plugin.Name == pluginnames.NodeResourcesFit {
			return true
		}
	}
	return false
}
