// Record asks Volcano's vGPU devices of nodes for the devices of pods, one after the other.
//
// It reads a JSON list of scenarios and writes the outcomes of their pods. record.py is the other side.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"volcano.sh/volcano/pkg/scheduler/api/devices"
	"volcano.sh/volcano/pkg/scheduler/api/devices/config"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"
)

type scenario struct {
	Nodes map[string][]card `json:"nodes"`
	Pods  []corev1.Pod      `json:"pods"`
}

type card struct {
	UUID   string `json:"uuid"`
	Model  string `json:"model"`
	Memory int    `json:"memory"`
	Shares int    `json:"shares"`
}

// outcome is a refusal, by whom, or the devices of each container that has any, in the order of the pod.
type outcome struct {
	Refused    string    `json:"refused,omitempty"`
	Containers [][]grant `json:"containers,omitempty"`
}

// grant is the memory in MiB and the percentage of cores of one device; 0 cores are without a limit.
type grant struct {
	Device string `json:"device"`
	Memory uint   `json:"memory"`
	Cores  uint   `json:"cores"`
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

func outcomes(asked scenario) []outcome {
	var names []string
	nodes := map[string]*vgpu.GPUDevices{}
	for name, cards := range asked.Nodes {
		names = append(names, name)
		if nodes[name] = vgpu.NewGPUDevices(name, node(name, cards)); nodes[name] == nil {
			panic("no devices on node " + name)
		}
	}
	sort.Strings(names)
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
				grants = append(grants, grant{Device: strings.TrimSpace(one.UUID), Memory: one.Usedmem, Cores: one.Usedcores})
			}
			answer.Containers = append(answer.Containers, grants)
		}
		return answer
	}
	return outcome{Refused: "filter"}
}
