package plugin

import (
	v1 "k8s.io/api/core/v1"
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
	return &sidecar.PodRequests{CPUMilli: amounts.Cpu().MilliValue(), Memory: amounts.Memory().Value()}
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
