package plugin

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"drawbridge.internal/bridge/sidecartest"
)

// sized has so many cores, and much memory.
func sized(name, cores string) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cores), v1.ResourceMemory: resource.MustParse("1Ti"),
		}},
	})
	return info
}

// sizedPod is a pod without devices that requests so many cores.
func sizedPod(cores string) *v1.Pod {
	pod := plainPod("plain")
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cores),
	}}}}
	return pod
}

// usual says that pods of 4 cores usually come: one device's worth on "one", two on "two" and "tight".
func usual(number, since int, more bool) map[string]any {
	return map[string]any{
		"number": number, "since": since, "more": more,
		"kinds":   []any{[]int{4000, 0}},
		"classes": []any{[]any{[]int{0, 1, 10}}, []any{[]int{0, 2, 10}}},
		"nodes":   map[string]int{"one": 0, "two": 1, "tight": 1},
	}
}

// tells has a pod with devices asked about, and the answer tell about the usual pods.
func (s *story) tells(said map[string]any) {
	s.Helper()
	s.sidecar.Say("prefilter", sidecartest.Reply{Body: map[string]any{
		"verdict": "fits", "nodes": []any{map[string]any{"name": "one"}}, "usualPods": said,
	}})
	_, status := s.begin(devicePod("p"))
	s.wants(status, fwk.Success, "")
}

// ranked returns the scores of all nodes for a pod without devices.
func (s *story) ranked(pod *v1.Pod) []int64 {
	s.Helper()
	nodes := []fwk.NodeInfo{sized("none", "8"), sized("one", "8"), sized("two", "8"), sized("tight", "6")}
	s.state = framework.NewCycleState()
	if _, status := s.plugin.PreFilter(s.Context(), s.state, pod, nodes); !status.IsSkip() {
		s.Fatalf("PreFilter: %v", status)
	}
	if s.plugin.PreScore(s.Context(), s.state, pod, nodes).IsSkip() {
		return nil
	}
	scores := []int64{}
	for _, node := range nodes {
		score, _ := s.plugin.Score(s.Context(), s.state, pod, node)
		scores = append(scores, score)
	}
	return scores
}

func TestAPodWithoutDevicesGoesWhereItCostsTheUsualPodsLeast(t *testing.T) {
	s := newStory(t)
	s.handle.filters = []string{"NodeResourcesFit"}
	s.tells(usual(1, 0, false))
	calls := len(s.sidecar.Requests("prefilter"))

	// 4 of 8 cores keep room for one pod; of 6 cores 4 leave none.
	if got, want := s.ranked(sizedPod("4")), []int64{100, 100, 99, 99}; !reflect.DeepEqual(got, want) {
		t.Errorf("a pod of 4 cores: %v, want %v", got, want)
	}
	if got, want := s.ranked(sizedPod("5")), []int64{100, 99, 98, 99}; !reflect.DeepEqual(got, want) {
		t.Errorf("a pod of 5 cores: %v, want %v", got, want)
	}
	if got := s.ranked(plainPod("small")); got != nil {
		t.Errorf("a pod that requests nothing: %v, want no ranks", got)
	}
	if made := len(s.sidecar.Requests("prefilter")) - calls; made != 0 {
		t.Errorf("%d calls for pods without devices", made)
	}
}

func TestCostsFollowWhatTheSidecarSays(t *testing.T) {
	s := newStory(t)
	s.handle.filters = []string{"NodeResourcesFit"}
	s.tells(usual(1, 0, false))
	s.ranked(sizedPod("4"))

	s.tells(map[string]any{"number": 2, "since": 1, "removed": []any{"two", "tight"}, "nodes": map[string]int{"none": 0},
		"classes": []any{[]any{[]int{0, 2, 10}}}})

	if got := s.sidecar.Requests("prefilter")[1].Body["usualPods"]; got != 1.0 {
		t.Errorf("the request says that %v is known, want 1", got)
	}
	if got, want := s.ranked(sizedPod("4")), []int64{99, 100, 100, 100}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWhatIsOutOfDateDecidesNothing(t *testing.T) {
	for name, outdate := range map[string]func(*story){
		"nothing was said":      func(*story) {},
		"further nodes changed": func(s *story) { s.tells(usual(1, 0, true)) },
		"it adds to an unknown": func(s *story) { s.tells(usual(3, 2, false)) },
		"no resources are compared": func(s *story) {
			s.tells(usual(1, 0, false))
			s.handle.filters = nil
			s.plugin.comparesResources = func() bool { return false }
		},
		"another sidecar answers": func(s *story) {
			s.tells(usual(1, 0, false))
			s.sidecar.Restart("second")
			s.tells(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.handle.filters = []string{"NodeResourcesFit"}
			outdate(s)
			if got := s.ranked(sizedPod("4")); got != nil {
				t.Errorf("%v, want no ranks", got)
			}
		})
	}
}

func TestTheHundredBestRanksDiffer(t *testing.T) {
	costs := make([]int64, 150)
	for position := range costs {
		costs[position] = int64(position)
	}
	ranks := ranksOf(costs)
	if ranks[0] != 100 || ranks[99] != 1 || ranks[100] != 0 || ranks[149] != 0 {
		t.Errorf("ranks %v", ranks)
	}
}

func BenchmarkRanks(b *testing.B) {
	costs := make([]int64, 420)
	for position := range costs {
		costs[position] = int64(position * 7919 % 101)
	}
	for b.Loop() {
		ranksOf(costs)
	}
}
