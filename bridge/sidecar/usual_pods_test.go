package sidecar

import (
	"math"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func sizedNode(name, cores string) *framework.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cores), v1.ResourceMemory: resource.MustParse("1Ti"),
		}},
	})
	return info
}

func TestAPodCostsThePodsThatFitNoMore(t *testing.T) {
	class := &nodeClass{slots: []slots{{cpuMilli: 4000, memory: 1 << 30, count: 3, value: 10}, {memory: 2 << 30, count: 9, value: 1}}}
	for name, c := range map[string]struct {
		cpuMilli, memory int64
		pod              PodRequests
		want             int64
	}{
		"devices are what is short":        {64_000, 64 << 30, PodRequests{CPUMilli: 50_000, Memory: 1 << 30}, 0},
		"CPU is":                           {12_000, 64 << 30, PodRequests{CPUMilli: 1}, 10},
		"memory is":                        {64_000, 6 << 30, PodRequests{Memory: 4 << 30}, 10 + 2},
		"there is nothing left afterwards": {12_000, 18 << 30, PodRequests{CPUMilli: math.MaxInt64, Memory: math.MaxInt64}, 39},
	} {
		if got := class.cost(c.cpuMilli, c.memory, c.pod); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var usual usualPods
	usual.take("first", &UsualPods{
		Number: 1, Kinds: [][2]int64{{4000, 0}}, Classes: [][][3]int64{{{0, 1, 10}, {7, 1, 10}}},
		Nodes: map[string]int64{"n": 0, "no class": 5},
	})
	nodes := []fwk.NodeInfo{sizedNode("n", "4"), sizedNode("no class", "4")}
	for size := range int64(10 * maxSizes) {
		costs := usual.costsOf("first", nodes, PodRequests{CPUMilli: size + 1})
		if len(usual.costs) > maxSizes || costs[0] != 10 || costs[1] != 0 {
			t.Fatalf("%d sizes, costs %v", len(usual.costs), costs)
		}
	}
}

func TestANodeThatIsGoneIsForgotten(t *testing.T) {
	var usual usualPods
	usual.take("first", &UsualPods{
		Number: 1, Kinds: [][2]int64{{4000, 0}}, Classes: [][][3]int64{{{0, 1, 10}}}, Nodes: map[string]int64{"stays": 0},
	})
	for round := range int64(3) {
		name := strconv.FormatInt(round, 10)
		usual.take("first", &UsualPods{
			Number: 2*round + 2, Since: 2*round + 1, Classes: [][][3]int64{{{0, 1, 10}}}, Nodes: map[string]int64{name: 0},
		})
		for size := range int64(2) {
			usual.costsOf("first", []fwk.NodeInfo{sizedNode("stays", "4"), sizedNode(name, "4")}, PodRequests{CPUMilli: size + 1})
		}
		usual.take("first", &UsualPods{Number: 2*round + 3, Since: 2*round + 2, Removed: []string{name}})
	}
	for pod, known := range usual.costs {
		if _, remembered := known["stays"]; len(known) != 1 || !remembered {
			t.Errorf("for %v the costs at %d nodes are remembered, want 1", pod, len(known))
		}
	}
	if len(usual.costs) != 2 {
		t.Errorf("%d sizes, want 2", len(usual.costs))
	}
}

// BenchmarkCosts measures what a pod without devices costs at 1,000 nodes, of which kube-scheduler looks at 420, with
// 32 kinds of pods.
func BenchmarkCosts(b *testing.B) {
	const count, kinds = 420, 32
	said := &UsualPods{Number: 1, Nodes: map[string]int64{}}
	row := [][3]int64{}
	for number := range int64(kinds) {
		said.Kinds = append(said.Kinds, [2]int64{1000 * (number + 1), 1 << 30})
		row = append(row, [3]int64{number, 8, 1000})
	}
	infos, nodes := make([]*framework.NodeInfo, count), make([]fwk.NodeInfo, count)
	for number := range count {
		name := strconv.Itoa(number)
		said.Classes, said.Nodes[name] = append(said.Classes, row), int64(number)
		infos[number] = sizedNode(name, "96")
		nodes[number] = infos[number]
	}
	var usual usualPods
	usual.take("first", said)
	for name, cores := range map[string]func(int64) int64{
		"one node changed since a pod of this size": func(int64) int64 { return 4000 },
		"the first pod of a size":                   func(round int64) int64 { return round },
	} {
		b.Run(name, func(b *testing.B) {
			round := int64(0)
			for b.Loop() {
				round++
				info := infos[round%count]
				info.SetNode(info.Node()) // A new generation.
				usual.costsOf("first", nodes, PodRequests{CPUMilli: cores(round)})
			}
		})
	}
}
