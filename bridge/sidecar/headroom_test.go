package sidecar_test

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"drawbridge.internal/bridge/sidecar"
	"drawbridge.internal/bridge/sidecartest"
)

// node has so many cores, as many GiB of memory, and room for as many pods.
func node(name string, cores int) *framework.NodeInfo {
	info := framework.NewNodeInfo()
	amount := strconv.Itoa(cores)
	info.SetNode(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse(amount),
			v1.ResourceMemory: resource.MustParse(amount + "Gi"),
			v1.ResourcePods:   resource.MustParse(amount),
		}},
	})
	return info
}

// runs puts a pod on a node that requests so many cores, and as many GiB of memory.
func runs(info *framework.NodeInfo, name string, cores int) {
	running, amount := pod(name), strconv.Itoa(cores)
	running.Spec.SchedulerName = "another"
	running.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse(amount),
		v1.ResourceMemory: resource.MustParse(amount + "Gi"),
	}}}}
	info.AddPod(running)
}

func observe(client *sidecar.Client, nodes ...*framework.NodeInfo) {
	infos := make([]fwk.NodeInfo, 0, len(nodes))
	for _, info := range nodes {
		infos = append(infos, info)
	}
	client.Observe(infos)
}

// told is what the last request said of the nodes: their cores by name, 0 for one that was removed.
func told(t *testing.T, server *sidecartest.Sidecar) (cores map[string]float64, since float64) {
	t.Helper()
	changes := last(t, server, "prefilter").Body["headroom"].(map[string]any)
	cores = map[string]float64{}
	nodes, _ := changes["nodes"].([]any)
	for _, member := range nodes {
		left := member.(map[string]any)
		cores[left["name"].(string)] = left["cpuMilli"].(float64) / 1000
		if left["memory"].(float64) != left["cpuMilli"].(float64)/1000*(1<<30) {
			t.Errorf("memory and CPU differ: %v", left)
		}
	}
	removed, _ := changes["removed"].([]any)
	for _, name := range removed {
		cores[name.(string)] = 0
	}
	return cores, changes["since"].(float64)
}

func wantsTold(t *testing.T, server *sidecartest.Sidecar, want map[string]float64, isWhole bool) {
	t.Helper()
	if cores, since := told(t, server); !reflect.DeepEqual(cores, want) || (since == 0) != isWhole {
		t.Errorf("told %v since %v, want %v, whole: %v", cores, since, want, isWhole)
	}
}

func TestOnlyNodesThatChangedAreSent(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	a, b, c := node("a", 4), node("b", 8), node("c", 16)

	observe(client, a, b, c)
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{"a": 4, "b": 8, "c": 16}, true)

	observe(client, a, b, c)
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{}, false)

	runs(b, "p", 3) // A pod of another scheduler, or one that is assumed, as NodeInfo has it.
	observe(client, a, b, c)
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{"b": 5}, false)

	c.SetNode(c.Node()) // A heartbeat: a new generation, and nothing else.
	observe(client, a, b, c)
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{}, false)

	d := node("d", 2)
	observe(client, c, d, b)
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{"a": 0, "d": 2}, false)

	observe(client, c, node("d", 3), b, a) // Both were there before; one was deleted and created anew.
	must(t, ask(t, client))
	wantsTold(t, server, map[string]float64{"a": 4, "d": 3}, false)
}

func TestANodeHasNothingLeftWhereItsPodsRequestMoreThanItHas(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	small := node("a", 1)
	runs(small, "p", 3)

	observe(client, small)
	must(t, ask(t, client))

	left := last(t, server, "prefilter").Body["headroom"].(map[string]any)["nodes"].([]any)[0]
	want := map[string]any{"name": "a", "cpuMilli": 0.0, "memory": 0.0, "pods": 0.0}
	if !reflect.DeepEqual(left, want) {
		t.Errorf("sent %v, want %v", left, want)
	}
}

func TestChangesAreSentUntilAnAnswerHasTheirNumber(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	a, b := node("a", 4), node("b", 8)
	observe(client, a, b)
	must(t, ask(t, client))
	// A request that is malformed, to the sidecar: it did nothing.
	server.Say("prefilter", sidecartest.Reply{Status: 400}, sidecartest.Reply{})
	runs(a, "p", 1)
	observe(client, a, b)
	if ask(t, client) == nil {
		t.Fatal("status 400 is no error")
	}

	runs(b, "q", 1)
	observe(client, a, b)
	must(t, ask(t, client))

	wantsTold(t, server, map[string]float64{"a": 3, "b": 7}, false)
}

func TestASidecarThatLostTheNodesGetsAllOfThem(t *testing.T) {
	for name, lose := range map[string]func(*sidecartest.Sidecar){
		"another process": func(server *sidecartest.Sidecar) { server.Restart("second") },
		"another state":   func(server *sidecartest.Sidecar) { server.Say("prefilter", lost, sidecartest.Reply{}) },
	} {
		t.Run(name, func(t *testing.T) {
			server := sidecartest.Start(t)
			client := greeted(t, server)
			a, b := node("a", 4), node("b", 8)
			observe(client, a, b)
			must(t, ask(t, client))
			lose(server)

			runs(a, "p", 1)
			for range 2 {
				observe(client, a, b)
				must(t, ask(t, client))
				if cores, since := told(t, server); since == 0 && len(cores) == 2 {
					return
				}
			}
			t.Errorf("it never got all nodes")
		})
	}
}

// lost is the answer of a sidecar that has no nodes.
var lost = sidecartest.Reply{Body: map[string]any{"verdict": "skip", "headroom": 0}}

func TestMoreNodesThanARequestHoldsComeWithLaterOnes(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	var nodes []*framework.NodeInfo
	for number := range 25_000 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", number), 4))
	}

	arrived := map[string]bool{}
	for _, want := range []int{10_000, 10_000, 5_000, 0} {
		observe(client, nodes...)
		must(t, ask(t, client))
		cores, _ := told(t, server)
		if len(cores) != want {
			t.Fatalf("%d nodes were sent, want %d", len(cores), want)
		}
		for name := range cores {
			arrived[name] = true
		}
	}
	if len(arrived) != len(nodes) {
		t.Errorf("%d nodes arrived, want %d", len(arrived), len(nodes))
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, count := range []int{1_000, 5_000} {
		for _, changes := range []int{0, 1} {
			b.Run(fmt.Sprintf("%d nodes, %d changed", count, changes), func(b *testing.B) {
				client := sidecar.NewClient(sidecar.Config{}, "me")
				nodes := make([]fwk.NodeInfo, 0, count)
				for number := range count {
					nodes = append(nodes, node(fmt.Sprintf("node-%d", number), 96))
				}
				client.Observe(nodes)
				for b.Loop() {
					for range changes {
						nodes[count/2].SetNode(nodes[count/2].Node())
					}
					client.Observe(nodes)
				}
			})
		}
	}
}
