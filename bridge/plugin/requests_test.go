package plugin

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// cpuPod is a pod with devices whose containers request CPU and memory: a sidecar, an init container, one
// that runs, and overhead.
func cpuPod() *v1.Pod {
	pod, always := devicePod("p"), v1.ContainerRestartPolicyAlways
	requesting := func(cpu, memory string) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}}}
	}
	mesh := requesting("500m", "1Gi")
	mesh.RestartPolicy = &always
	pod.Spec.InitContainers = []v1.Container{mesh, requesting("6", "1Gi")}
	pod.Spec.Containers = []v1.Container{requesting("2", "4Gi")}
	pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	return pod
}

func TestWhatAPodRequestsIsSentWithWhatNodesHaveLeft(t *testing.T) {
	s := newStory(t)
	s.handle.filters = []string{"NodeResourcesFit"}
	s.fits(true, "n")

	s.state = framework.NewCycleState()
	s.plugin.PreFilter(s.Context(), s.state, cpuPod(), []fwk.NodeInfo{node("n")})

	body := s.sidecar.Requests("prefilter")[0].Body
	want := map[string]any{"cpuMilli": 6750.0, "memory": float64(5 << 30)}
	if !reflect.DeepEqual(body["requests"], want) {
		t.Errorf("requests %v, want %v", body["requests"], want)
	}
	nodes := body["headroom"].(map[string]any)["nodes"].([]any)
	if len(nodes) != 1 || nodes[0].(map[string]any)["name"] != "n" {
		t.Errorf("nodes %v", nodes)
	}
}

func TestNothingIsSentInAProfileWithoutNodeResourcesFit(t *testing.T) {
	s := newStory(t)
	s.fits(true, "n")

	s.plugin.PreFilter(s.Context(), framework.NewCycleState(), cpuPod(), []fwk.NodeInfo{node("n")})

	body := s.sidecar.Requests("prefilter")[0].Body
	if nodes := body["headroom"].(map[string]any)["nodes"]; nodes != nil || body["requests"] != nil {
		t.Errorf("sent %v and %v", nodes, body["requests"])
	}
}
