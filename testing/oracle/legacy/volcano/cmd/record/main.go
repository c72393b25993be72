// Record asks Volcano's vGPU devices of nodes for the devices of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"flag"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"volcano.sh/volcano/pkg/scheduler/api/devices"
	"volcano.sh/volcano/pkg/scheduler/api/devices/config"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"
)

type card struct {
	UUID   string `json:"uuid"`
	Model  string `json:"model"`
	Memory int    `json:"memory"`
	Shares int    `json:"shares"`
}

func main() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-stderrthreshold=FATAL", "-logtostderr=false", "-alsologtostderr=false"})
	vgpu.VGPUEnable = true
	// The device plugin's ConfigMap has what Volcano's own defaults have, and the percentage's name.
	present := config.GetDefaultDevicesConfig()
	present.NvidiaConfig.ResourceMemoryPercentageName = config.VolcanoVGPUMemoryPercentage
	config.Use(present)
	record(outcomes)
}

func outcomes(asked scenario) []outcome {
	names, nodes := asked.names(), map[string]*vgpu.GPUDevices{}
	for _, name := range names {
		if nodes[name] = vgpu.NewGPUDevices(name, node(name, asked.Nodes[name])); nodes[name] == nil {
			panic("no devices on node " + name)
		}
	}
	var all []outcome
	for index := range asked.Pods {
		pod := &asked.Pods[index]
		pod.UID = types.UID(fmt.Sprintf("pod-%d", index))
		all = append(all, decide(names, nodes, pod))
	}
	return all
}

// node is a node as the device plugin registers it.
func node(name string, cards []card) *corev1.Node {
	registered := &corev1.Node{}
	registered.Name = name
	text := ""
	for _, listed := range cards {
		text += fmt.Sprintf("%s,%d,%d,NVIDIA-%s,true,hami-core:", listed.UUID, listed.Shares, listed.Memory, listed.Model)
	}
	registered.Annotations = map[string]string{config.VolcanoVGPURegister: text}
	registered.Status.Allocatable = corev1.ResourceList{}
	for _, key := range []string{config.VolcanoVGPUNumber, config.VolcanoVGPUCores, config.VolcanoVGPUMemory} {
		registered.Status.Allocatable[corev1.ResourceName(key)] = *resource.NewQuantity(1<<30, resource.DecimalSI)
	}
	return registered
}

// decide filters the nodes, and allocates on the first that passes, as the deviceshare plugin does.
// The outcome has each container with devices, in the order of the pod.
func decide(names []string, nodes map[string]*vgpu.GPUDevices, pod *corev1.Pod) outcome {
	for _, name := range names {
		if code, _, err := nodes[name].FilterNode(pod, ""); err != nil || code != devices.Success {
			continue
		}
		reservation, err := nodes[name].Allocate(nil, pod)
		if err != nil || reservation == nil {
			return outcome{Refused: "allocation"}
		}
		answer := outcome{}
		for _, given := range vgpu.DecodePodDevices(reservation.Annotations[vgpu.AssignedIDsAnnotations]) {
			grants := []grant{}
			for _, one := range given {
				grants = append(grants, grant{
					Device: strings.TrimSpace(one.UUID), Memory: int64(one.Usedmem), Cores: int64(one.Usedcores),
				})
			}
			answer.Containers = append(answer.Containers, grants)
		}
		return answer
	}
	return outcome{Refused: "filter"}
}
