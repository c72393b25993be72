// Record asks HAMi's webhook and scheduler for the devices of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/Project-HAMi/HAMi/pkg/device"
	"github.com/Project-HAMi/HAMi/pkg/device/ascend"
	"github.com/Project-HAMi/HAMi/pkg/scheduler"
	"github.com/Project-HAMi/HAMi/pkg/scheduler/config"
	"github.com/Project-HAMi/HAMi/pkg/scheduler/policy"
	"gopkg.in/yaml.v2"
)

const chart = "charts/hami"

type card struct {
	UUID   string `json:"uuid"`
	Model  string `json:"model"`
	Memory int32  `json:"memory"`
	Cores  int32  `json:"cores"`
	Shares int32  `json:"shares"`
}

func main() {
	if err := config.GlobalFlagSet().Parse([]string{"-enable-ascend", "-stderrthreshold=FATAL", "-logtostderr=false", "-alsologtostderr=false"}); err != nil {
		panic(err)
	}
	devices := chartConfig()
	if err := config.InitDevicesWithConfig(devices); err != nil {
		panic(err)
	}
	record(func(asked scenario) []outcome { return outcomes(asked, devices.VNPUs.Configs) })
}

// chartConfig returns the device configuration of HAMi's chart with the chart's own values.
func chartConfig() *config.Config {
	var values map[string]any
	read(chart+"/values.yaml", &values)
	var object struct {
		Data map[string]string `yaml:"data"`
	}
	text, err := os.ReadFile(chart + "/templates/scheduler/device-configmap.yaml")
	if err != nil {
		panic(err)
	}
	text = regexp.MustCompile(`(?m)^ *\{\{.*$`).ReplaceAll(text, nil)
	text = regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllFunc(text, func(action []byte) []byte {
		return valueOf(values, strings.Fields(string(action))[1])
	})
	if err := yaml.Unmarshal(text, &object); err != nil {
		panic(err)
	}
	var devices config.Config
	if err := yaml.Unmarshal([]byte(object.Data["device-config.yaml"]), &devices); err != nil {
		panic(err)
	}
	return &devices
}

// valueOf returns a value of the chart; nothing where it has none, which is the default of its type.
func valueOf(values any, path string) []byte {
	for _, key := range strings.Split(strings.TrimPrefix(path, ".Values."), ".") {
		switch within := values.(type) {
		case map[string]any:
			values = within[key]
		case map[any]any:
			values = within[key]
		default:
			return nil
		}
	}
	if values == nil {
		return nil
	}
	return fmt.Append(nil, values)
}

func read(path string, into any) {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		panic(err)
	}
}

func outcomes(asked scenario, chips []ascend.VNPUConfig) []outcome {
	nodes := map[string]*scheduler.NodeUsage{}
	for name, cards := range asked.Nodes {
		nodes[name] = usage(name, cards)
	}
	var all []outcome
	for index := range asked.Pods {
		all = append(all, decide(nodes, &asked.Pods[index], chips))
	}
	return all
}

func usage(name string, cards []card) *scheduler.NodeUsage {
	node := &corev1.Node{}
	node.Name = name
	// The annotation of nodes whose device plugin divides NPUs in software.
	node.Annotations = map[string]string{ascend.VNPUNodeSelectorAnnotation: "true"}
	info := &device.NodeInfo{ID: name, Node: node, Devices: map[string][]device.DeviceInfo{}}
	used := &scheduler.NodeUsage{Node: node, NodeInfo: info}
	for index, listed := range cards {
		used.Devices.DeviceLists = append(used.Devices.DeviceLists, &policy.DeviceListsScore{
			Device: &device.DeviceUsage{
				ID: listed.UUID, Index: uint(index), Count: listed.Shares, Type: listed.Model,
				Totalmem: listed.Memory, Totalcore: listed.Cores, Health: true,
			},
		})
	}
	return used
}

// decide does to a pod what HAMi's webhook and then its scheduler do. Init containers come first.
func decide(nodes map[string]*scheduler.NodeUsage, pod *corev1.Pod, chips []ascend.VNPUConfig) outcome {
	containers := make([]*corev1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for index := range pod.Spec.InitContainers {
		containers = append(containers, &pod.Spec.InitContainers[index])
	}
	for index := range pod.Spec.Containers {
		containers = append(containers, &pod.Spec.Containers[index])
	}
	for _, container := range containers {
		for _, plugin := range device.GetDevices() {
			if _, err := plugin.MutateAdmission(container, pod); err != nil {
				return outcome{Refused: "admission"}
			}
		}
	}
	node, granted, err := scheduler.Place(nodes, pod)
	if err != nil {
		panic(err)
	}
	if node == "" {
		return outcome{Refused: "scheduler"}
	}
	answer := outcome{}
	for range containers {
		answer.Containers = append(answer.Containers, []grant{})
	}
	for name, list := range granted {
		for index, devices := range list {
			for _, given := range devices {
				cores := given.Usedcores
				if plugin, ok := device.GetDevices()[name].(*ascend.Devices); ok {
					cores = npuCores(plugin, pod, given, chips)
				}
				answer.Containers[index] = append(
					answer.Containers[index], grant{Device: given.UUID, Memory: int64(given.Usedmem), Cores: int64(cores)},
				)
			}
		}
	}
	return answer
}

// npuCores returns the percentage of cores that the device plugin gives: in software as it is written,
// else that of the template that HAMi's scheduler tells it, or all of them where it tells none.
func npuCores(
	plugin *ascend.Devices, pod *corev1.Pod, given device.ContainerDevice, chips []ascend.VNPUConfig,
) int32 {
	if pod.Annotations[ascend.VNPUModeAnnotation] == ascend.VNPUModeHamiCore {
		return given.Usedcores
	}
	name := plugin.CommonWord()
	annotations := map[string]string{}
	plugin.PatchAnnotations(pod, &annotations, device.PodDevices{name: {{given}}})
	var told []ascend.RuntimeInfo
	if err := json.Unmarshal([]byte(annotations["huawei.com/"+name]), &told); err != nil || len(told) != 1 {
		panic(fmt.Sprintf("%v: %v", err, annotations))
	}
	if told[0].Temp == "" {
		return 100
	}
	for _, chip := range chips {
		for _, template := range chip.Templates {
			if chip.CommonWord == name && template.Name == told[0].Temp {
				return template.AICore * 100 / chip.AICore
			}
		}
	}
	panic("no template " + told[0].Temp)
}
