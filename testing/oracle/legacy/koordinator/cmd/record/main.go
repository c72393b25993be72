// Record asks Koordinator's webhook and its scheduler's plugin for the devices of pods, one after the other.
//
// frame.go reads the scenarios and writes the outcomes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"sort"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	apiext "github.com/koordinator-sh/koordinator/apis/extension"
	schedulingv1alpha1 "github.com/koordinator-sh/koordinator/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/scheduler/plugins/deviceshare"
	"github.com/koordinator-sh/koordinator/pkg/webhook/pod/mutating"
	"github.com/koordinator-sh/koordinator/pkg/webhook/pod/validating"
)

// card is a GPU, or a NIC. Partitions is a number of GPUs to the number of the card's partition.
type card struct {
	UUID       string            `json:"uuid"`
	Memory     int64             `json:"memory"`
	Numa       int32             `json:"numa"`
	Root       string            `json:"root"`
	NIC        bool              `json:"nic"`
	Partitions map[string]int    `json:"partitions"`
	Labels     map[string]string `json:"labels"`
}

func main() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-stderrthreshold=FATAL", "-logtostderr=false", "-alsologtostderr=false"})
	record(outcomes)
}

func outcomes(asked scenario) []outcome {
	var devices []*schedulingv1alpha1.Device
	for _, name := range asked.names() {
		devices = append(devices, published(name, asked.Nodes[name]))
	}
	cluster := deviceshare.NewCluster(devices)
	var all []outcome
	for index := range asked.Pods {
		pod := &asked.Pods[index]
		pod.UID = types.UID(fmt.Sprintf("pod-%d", index))
		all = append(all, decide(cluster, pod))
	}
	return all
}

// published is the Device of a node as koordlet reports it.
func published(name string, cards []card) *schedulingv1alpha1.Device {
	device := &schedulingv1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: name}}
	members := map[int]map[int][]int{}
	minors := map[schedulingv1alpha1.DeviceType]int32{}
	for _, listed := range cards {
		kind, resources := schedulingv1alpha1.GPU, corev1.ResourceList{
			apiext.ResourceGPUCore:        *resource.NewQuantity(100, resource.DecimalSI),
			apiext.ResourceGPUMemoryRatio: *resource.NewQuantity(100, resource.DecimalSI),
			apiext.ResourceGPUMemory:      *resource.NewQuantity(listed.Memory<<20, resource.BinarySI),
		}
		if listed.NIC {
			kind = schedulingv1alpha1.RDMA
			resources = corev1.ResourceList{apiext.ResourceRDMA: *resource.NewQuantity(100, resource.DecimalSI)}
		}
		minor := minors[kind]
		minors[kind]++
		device.Spec.Devices = append(device.Spec.Devices, schedulingv1alpha1.DeviceInfo{
			Type: kind, UUID: listed.UUID, Minor: &minor, Health: true, Labels: listed.Labels, Resources: resources,
			Topology: &schedulingv1alpha1.DeviceTopology{
				SocketID: listed.Numa, NodeID: listed.Numa, PCIEID: listed.Root, BusID: listed.UUID,
			},
		})
		for text, partition := range listed.Partitions {
			size, err := strconv.Atoi(text)
			if err != nil {
				panic(err)
			}
			if members[size] == nil {
				members[size] = map[int][]int{}
			}
			members[size][partition] = append(members[size][partition], int(minor))
		}
	}
	if len(members) > 0 {
		device.Annotations = map[string]string{apiext.AnnotationGPUPartitions: partitionTable(members)}
	}
	return device
}

// partitionTable has the partitions of each size; one that lacks GPUs is none.
func partitionTable(members map[int]map[int][]int) string {
	table := apiext.GPUPartitionTable{}
	for size, partitions := range members {
		var numbers []int
		for partition := range partitions {
			numbers = append(numbers, partition)
		}
		sort.Ints(numbers)
		for _, number := range numbers {
			if len(partitions[number]) == size {
				table[size] = append(table[size], apiext.GPUPartition{Minors: partitions[number]})
			}
		}
	}
	text, err := json.Marshal(table)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// decide does to a pod what the webhook and then the scheduler's plugin do. All containers see the pod's GPUs.
func decide(cluster *deviceshare.Cluster, pod *corev1.Pod) outcome {
	if err := mutating.SetDeviceResources(pod); err != nil || !validating.AcceptsDeviceResources(pod) {
		return outcome{Refused: "webhook"}
	}
	allocated, refused := cluster.Place(pod)
	if refused != "" {
		return outcome{Refused: refused}
	}
	answer := outcome{NICs: len(allocated[schedulingv1alpha1.RDMA])}
	grants := []grant{}
	for _, given := range allocated[schedulingv1alpha1.GPU] {
		memory, cores := given.Resources[apiext.ResourceGPUMemory], given.Resources[apiext.ResourceGPUCore]
		grants = append(grants, grant{Device: given.ID, Memory: memory.Value() >> 20, Cores: cores.Value()})
	}
	answer.Containers = append(answer.Containers, grants)
	return answer
}
