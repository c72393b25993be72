package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"drawbridge.internal/bridge/sidecartest"
)

// handle is what the plugin uses of the scheduler.
type handle struct {
	fwk.Handle
	profile   string
	informers informers.SharedInformerFactory
	claims    tracker
	activated []string
	binders   []string
	filters   []string
	extenders []fwk.Extender
	running   []*v1.Pod
	groups    fwk.SharedLister // In place of running.
}

func (h *handle) SnapshotSharedLister() fwk.SharedLister {
	if h.groups != nil {
		return h.groups
	}
	return cache.NewSnapshot(h.running, []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "full"}}})
}

func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (h *handle) SharedDRAManager() fwk.SharedDRAManager                 { return manager{tracker: h.claims} }
func (h *handle) ProfileName() string                                    { return h.profile }
func (h *handle) Extenders() []fwk.Extender                              { return h.extenders }
func (h *handle) ListPlugins() *config.Plugins {
	plugins := &config.Plugins{}
	for _, name := range h.binders {
		plugins.Bind.Enabled = append(plugins.Bind.Enabled, config.Plugin{Name: name})
	}
	for _, name := range h.filters {
		plugins.Filter.Enabled = append(plugins.Filter.Enabled, config.Plugin{Name: name})
	}
	return plugins
}
func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, pod := range pods {
		h.activated = append(h.activated, pod.Name)
	}
}

type manager struct {
	fwk.SharedDRAManager
	tracker tracker
}

func (m manager) ResourceClaims() fwk.ResourceClaimTracker { return m.tracker }

type tracker struct {
	fwk.ResourceClaimTracker
	claims map[string]*resourceapi.ResourceClaim
}

func (t tracker) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	if claim, ok := t.claims[namespace+"/"+name]; ok {
		return claim, nil
	}
	return nil, errors.New("no such claim")
}

// story is a plugin with a scheduler and a sidecar around it.
type story struct {
	*testing.T
	sidecar *sidecartest.Sidecar
	handle  *handle
	plugin  *Drawbridge
	state   fwk.CycleState
}

func newStory(t *testing.T) *story {
	t.Helper()
	server := sidecartest.Start(t)
	handle := &handle{
		profile:   "drawbridge",
		informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		claims:    tracker{claims: map[string]*resourceapi.ResourceClaim{}},
	}
	args, err := json.Marshal(map[string]any{"socket": server.Socket, "callTimeout": "30s", "heartbeat": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewFactory().New(t.Context(), &runtime.Unknown{Raw: args}, handle)
	if err != nil {
		t.Fatal(err)
	}
	plugin := made.(*Drawbridge)
	plugin.waker = newWaker(plugin.client, handle, &plugin.claims) // One that nobody runs.
	return &story{t, server, handle, plugin, framework.NewCycleState()}
}

func (s *story) fits(complete bool, nodes ...string) {
	answer := []any{}
	for number, node := range nodes {
		answer = append(answer, map[string]any{"name": node, "score": 100 - number})
	}
	s.sidecar.Say("prefilter", sidecartest.Reply{
		Body: map[string]any{"verdict": "fits", "nodes": answer, "complete": complete},
	})
}

func (s *story) verdict(point, verdict, message string) {
	s.sidecar.Say(point, sidecartest.Reply{Body: map[string]any{"verdict": verdict, "message": message}})
}

// begin runs PreFilter of a new attempt.
func (s *story) begin(pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
	s.state = framework.NewCycleState()
	return s.plugin.PreFilter(s.Context(), s.state, pod, nil)
}

func (s *story) filter(pod *v1.Pod, name string) *fwk.Status {
	return s.plugin.Filter(s.Context(), s.state, pod, node(name))
}

func (s *story) postFilter(pod *v1.Pod) *fwk.Status {
	_, status := s.plugin.PostFilter(s.Context(), s.state, pod, nil)
	return status
}

func (s *story) calls(point string) int { return len(s.sidecar.Requests(point)) }

func (s *story) wants(status *fwk.Status, code fwk.Code, message string) {
	s.Helper()
	if status.Code() != code || !strings.Contains(status.Message(), message) {
		s.Errorf("got %s %q, want %s %q", status.Code(), status.Message(), code, message)
	}
}

func node(name string) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return info
}

func plainPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
}

// devicePod has the claim `<name>-gpu`.
func devicePod(name string) *v1.Pod {
	pod, claim := plainPod(name), name+"-gpu"
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	return pod
}

func podInfo(t *testing.T, pod *v1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestAPodWithoutDevicesCostsNoCall(t *testing.T) {
	s := newStory(t)
	pod := plainPod("p")

	_, status := s.begin(pod)

	s.wants(status, fwk.Skip, "")
	s.wants(s.plugin.PreScore(s.Context(), s.state, pod, nil), fwk.Skip, "")
	s.wants(s.plugin.Reserve(s.Context(), s.state, pod, "n"), fwk.Success, "")
	_, flight := s.plugin.PreBindPreFlight(s.Context(), s.state, pod, "n")
	s.wants(flight, fwk.Skip, "")
	s.wants(s.plugin.PreBind(s.Context(), s.state, pod, "n"), fwk.Success, "")
	s.wants(s.postFilter(pod), fwk.Unschedulable, "")
	s.plugin.Unreserve(s.Context(), s.state, pod, "n")
	s.plugin.PostBind(s.Context(), s.state, pod, "n")
	for _, point := range []string{"prefilter", "prebind", "postfilter", "unreserve"} {
		if s.calls(point) > 0 {
			s.Errorf("%s was called", point)
		}
	}
}

func TestWhichPodsTheSidecarIsAskedAbout(t *testing.T) {
	group := "group"
	requesting := func(name string) *v1.Pod {
		amounts := v1.ResourceList{v1.ResourceName(name): resource.MustParse("1")}
		pod := plainPod("p")
		pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: amounts}}}
		return pod
	}
	grouped, groupedWithClaim := plainPod("p"), devicePod("p")
	for _, member := range []*v1.Pod{grouped, groupedWithClaim} {
		member.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	cases := map[string]struct {
		pod   *v1.Pod
		want  bool
		signs bool
	}{
		"none of it":                 {plainPod("p"), false, true},
		"a claim":                    {devicePod("p"), true, false},
		"a group":                    {grouped, false, false},
		"a group and a claim":        {groupedWithClaim, true, false},
		"CPU":                        {requesting("cpu"), false, true},
		"huge pages":                 {requesting("hugepages-2Mi"), false, true},
		"an extended resource":       {requesting("nvidia.com/gpu"), true, false},
		"the implicit name of class": {requesting("deviceclass.resource.kubernetes.io/gpu"), true, false},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			if got := concerns(row.pod); got != row.want {
				t.Errorf("got %t", got)
			}
			s := &Drawbridge{}
			// A batch of equal pods is placed by one answer. Devices are given once, and members are told a node each.
			if _, status := s.SignPod(t.Context(), row.pod); status.IsRejected() == row.signs {
				t.Errorf("signed: %s", status.Code())
			}
		})
	}
}

func TestTheAnswerNamesNodesAndScores(t *testing.T) {
	s := newStory(t)
	s.fits(true, "best", "next")
	pod := devicePod("p")

	result, status := s.begin(pod)

	s.wants(status, fwk.Success, "")
	if !result.NodeNames.Equal(sets.New("best", "next")) {
		s.Errorf("named %v", result.NodeNames)
	}
	s.wants(s.filter(pod, "best"), fwk.Success, "")
	s.wants(s.filter(pod, "other"), fwk.Unschedulable, misfit)
	if score, _ := s.plugin.Score(s.Context(), s.state, pod, node("next")); score != 99 {
		s.Errorf("score %d, want 99", score)
	}
	if s.calls("filter") > 0 {
		s.Error("the sidecar was asked what it had said")
	}
}

func TestScoresStayWithinTheSchedulersBounds(t *testing.T) {
	s := newStory(t)
	wild := []any{map[string]any{"name": "n", "score": 5000}, map[string]any{"name": "m", "score": -7}}
	s.sidecar.Say("prefilter", sidecartest.Reply{Body: map[string]any{"verdict": "fits", "nodes": wild}})
	pod := devicePod("p")
	s.begin(pod)
	for name, want := range map[string]int64{"n": fwk.MaxNodeScore, "m": fwk.MinNodeScore} {
		if score, _ := s.plugin.Score(s.Context(), s.state, pod, node(name)); score != want {
			s.Errorf("%s: score %d, want %d", name, score, want)
		}
	}
}

func TestVerdictsBecomeStatuses(t *testing.T) {
	cases := map[string]struct {
		verdict string
		want    fwk.Code
		message string
	}{
		"nothing to do":            {"skip", fwk.Skip, ""},
		"victims could help":       {"unschedulable", fwk.Unschedulable, "why"},
		"nothing could help":       {"unresolvable", fwk.UnschedulableAndUnresolvable, "why"},
		"to be repeated":           {"error", fwk.Error, "why"},
		"a word that nobody knows": {"maybe", fwk.Error, "maybe"},
		"nodes without names":      {"fits", fwk.Error, "named no node"},
		"no verdict at all":        {"", fwk.Error, "answered"},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.verdict("prefilter", row.verdict, "why")
			_, status := s.begin(devicePod("p"))
			s.wants(status, row.want, row.message)
		})
	}
}

func TestForAPodWithoutAnAnswerYetNobodyIsEvictedAndTheSidecarIsAskedSoon(t *testing.T) {
	s := newStory(t)
	pod := devicePod("p")
	body := map[string]any{"verdict": "unresolvable", "message": "being evaluated", "unfinished": true}
	s.sidecar.Say("prefilter", sidecartest.Reply{Body: body})

	_, status := s.begin(pod)

	s.wants(status, fwk.UnschedulableAndUnresolvable, "being evaluated")
	s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, "")
	if calls := s.calls("postfilter"); calls != 0 {
		t.Errorf("%d calls of postfilter", calls)
	}
	if !s.asks() {
		t.Error("the sidecar is not asked when the pod is to be tried again")
	}
}

// With NodeNames of PreFilter, every other node is unresolvable for the scheduler.
func TestAPodWhoseBestNodesLackCPUAsksForAllNodesAtOnce(t *testing.T) {
	s := newStory(t)
	s.verdict("postfilter", "continue", "")
	never := v1.PreemptNever
	pod := devicePod("p")
	pod.Spec.PreemptionPolicy = &never
	s.fits(false, "best")
	s.begin(pod)

	s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, widening)
	if !reflect.DeepEqual(s.handle.activated, []string{"p"}) {
		s.Errorf("activated %v", s.handle.activated)
	}

	s.fits(true, "best", "other")
	result, _ := s.begin(pod)
	if all := s.sidecar.Requests("prefilter")[1].Body["all"]; all != true {
		s.Errorf("asked with all: %v", all)
	}
	if !result.NodeNames.Has("other") {
		s.Errorf("named %v", result.NodeNames)
	}
	s.wants(s.postFilter(pod), fwk.Unschedulable, "")
	if len(s.handle.activated) > 1 {
		s.Error("a pod that was answered all nodes is activated again and again")
	}
}

// What is being released may help it or not: another node may have the CPU that it lacks.
func TestAPodWhoseBestNodesLackCPUWaitsForNoReleaseBeforeItAskedForAllNodes(t *testing.T) {
	for _, verdict := range []string{"wait", "released"} {
		s := newStory(t)
		s.verdict("postfilter", verdict, "devices are being released")
		pod := devicePod("p")
		s.fits(false, "best")
		s.begin(pod)

		s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, widening)
		if !reflect.DeepEqual(s.handle.activated, []string{"p"}) || s.calls("postfilter") > 0 {
			t.Errorf("activated %v after %d calls", s.handle.activated, s.calls("postfilter"))
		}

		s.begin(pod)
		if all := s.sidecar.Requests("prefilter")[1].Body["all"]; all != true {
			t.Errorf("asked with all: %v", all)
		}
		s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, "being released")
	}
}

// A pod that sleeps and wakes asks for all again, or its condition would change twice per attempt.
func TestAPodAsksForAllUntilItIsReserved(t *testing.T) {
	s := newStory(t)
	s.verdict("postfilter", "continue", "")
	s.fits(false, "best")
	pod := devicePod("p")
	s.begin(pod)
	s.postFilter(pod)
	s.begin(pod)
	s.begin(pod)
	s.plugin.Reserve(s.Context(), s.state, pod, "best")
	s.begin(pod)
	var all []any
	for _, request := range s.sidecar.Requests("prefilter") {
		all = append(all, request.Body["all"])
	}
	if want := []any{nil, true, true, nil}; !reflect.DeepEqual(all, want) {
		s.Errorf("asked with all: %v, want %v", all, want)
	}
}

// Preemption looks at nodes that Filter turned down, and never at those that NodeNames left out.
func TestAPodThatMayPreemptHasAllNodesFiltered(t *testing.T) {
	s := newStory(t)
	s.verdict("postfilter", "continue", "")
	s.fits(true, "best")
	pod := devicePod("p")
	s.handle.running = []*v1.Pod{ranked("less", -1)}
	s.begin(pod)
	s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, widening)

	result, status := s.begin(pod)

	s.wants(status, fwk.Success, "")
	if !result.AllNodes() {
		s.Errorf("named %v", result.NodeNames)
	}
	s.wants(s.filter(pod, "full"), fwk.Unschedulable, misfit)
	s.wants(s.postFilter(pod), fwk.Unschedulable, "")
}

// ranked is a pod that runs on the node `full`.
func ranked(name string, priority int32) *v1.Pod {
	pod := plainPod(name)
	pod.Spec.NodeName, pod.Spec.Priority = "full", &priority
	return pod
}

// A second attempt with all nodes, of which those that are left out lack CPU or devices, would end as this one.
func TestAPodThatOutranksNobodyIsNotTriedAgain(t *testing.T) {
	group := ranked("in-a-group", 0)
	group.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	for name, row := range map[string]struct {
		running []*v1.Pod
		again   bool
	}{
		"nobody runs":                {nil, false},
		"equals and better ones run": {[]*v1.Pod{ranked("equal", 0), ranked("more", 7)}, false},
		"one is less important":      {[]*v1.Pod{ranked("equal", 0), ranked("less", -1)}, true},
		"a group may be":             {[]*v1.Pod{group}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.verdict("postfilter", "continue", "")
			s.fits(true, "best")
			s.handle.running = row.running
			pod := devicePod("p")
			s.begin(pod)

			s.postFilter(pod)

			if again := len(s.handle.activated) > 0; again != row.again {
				t.Errorf("tried again: %v", again)
			}
		})
	}
}

// The scheduler filters a nominated node before it looks at NodeNames.
func TestANodeBeyondTheBestIsAskedAbout(t *testing.T) {
	s := newStory(t)
	s.fits(false, "best")
	pod := devicePod("p")
	s.begin(pod)
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": true}})
	s.wants(s.filter(pod, "nominated"), fwk.Success, "")
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": false, "message": "taken"}})
	s.wants(s.filter(pod, "nominated"), fwk.Unschedulable, "taken")
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"unresolvable": true}})
	s.wants(s.filter(pod, "nominated"), fwk.UnschedulableAndUnresolvable, "")
}

func TestADryRunDoesNotAskAboutDevicesOfDriversThatAreNotGiven(t *testing.T) {
	s := newStory(t)
	s.sidecar.Say("hello", sidecartest.Reply{Body: map[string]any{"drivers": []string{"ours"}}})
	if state := s.plugin.client.Greet(s.Context()); !state.Ready {
		t.Fatal(state.Message)
	}
	hold := func(name, driver string) *v1.Pod {
		pod := devicePod(name)
		made := claim(name+"-gpu", "1", "gpu-0")
		made.Status.Allocation.Devices.Results[0].Driver = driver
		s.handle.claims.claims[pod.Namespace+"/"+made.Name] = made
		return pod
	}
	s.verdict("prefilter", "unschedulable", "full")
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": true}})
	pod := devicePod("high")
	s.begin(pod)
	dryRun := s.state.Clone()
	remove := func(removed *v1.Pod) {
		s.plugin.RemovePod(s.Context(), dryRun, pod, podInfo(t, removed), nil)
	}

	remove(hold("foreign", "theirs"))
	s.wants(s.plugin.Filter(s.Context(), dryRun, pod, node("n")), fwk.Unschedulable, misfit)
	if s.calls("filter") != 0 {
		s.Error("asked about devices that nobody is given here")
	}

	remove(hold("own", "ours"))
	s.wants(s.plugin.Filter(s.Context(), dryRun, pod, node("n")), fwk.Success, "")
	body := s.sidecar.Requests("filter")[0].Body
	if !reflect.DeepEqual(body["removed"], []any{"own"}) {
		s.Errorf("asked with %v", body)
	}
}

// A nomination is a field of the status, so somebody may have forged it.
func TestNominatedPodsThatTheSchedulerNeverTriesTakeNothing(t *testing.T) {
	s := newStory(t)
	s.fits(true, "n")
	pod := devicePod("p")
	s.begin(pod)
	gated, deleted := devicePod("gated"), devicePod("deleted")
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/never"}}
	deleted.DeletionTimestamp = &metav1.Time{}
	for _, nominated := range []*v1.Pod{gated, deleted} {
		s.plugin.AddPod(s.Context(), s.state, pod, podInfo(t, nominated), nil)
	}
	s.wants(s.filter(pod, "n"), fwk.Success, "")
	if asked := s.sidecar.Requests("filter"); len(asked) > 0 {
		t.Errorf("asked with %v", asked[0].Body)
	}

	deleted.Spec.NodeName = "n" // It has devices until it is gone.
	s.plugin.AddPod(s.Context(), s.state, pod, podInfo(t, deleted), nil)
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": true}})
	s.wants(s.filter(pod, "n"), fwk.Success, "")
	if body := s.sidecar.Requests("filter")[0].Body; !reflect.DeepEqual(body["added"], []any{"deleted"}) {
		t.Errorf("asked with %v", body)
	}
}

func TestADryRunOfPreemptionAsksWithThePodsThatCameAndWent(t *testing.T) {
	s := newStory(t)
	s.verdict("prefilter", "unschedulable", "full")
	s.sidecar.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": true}})
	pod := devicePod("high")
	s.begin(pod)
	dryRun := s.state.Clone()
	remove := func(name string, made func(string) *v1.Pod) {
		s.plugin.RemovePod(s.Context(), dryRun, pod, podInfo(t, made(name)), nil)
	}
	add := func(name string) {
		s.plugin.AddPod(s.Context(), dryRun, pod, podInfo(t, devicePod(name)), nil)
	}
	remove("low-1", devicePod)
	remove("low-2", devicePod)
	remove("plain", plainPod) // It holds nothing that could matter.
	add("low-1")              // Reprieved.
	add("nominated")
	s.wants(s.plugin.Filter(s.Context(), dryRun, pod, node("n")), fwk.Success, "")

	body := s.sidecar.Requests("filter")[0].Body
	if !reflect.DeepEqual(body["removed"], []any{"low-2"}) || !reflect.DeepEqual(body["added"], []any{"nominated"}) {
		s.Errorf("asked with %v", body)
	}
	s.wants(s.filter(pod, "n"), fwk.Unschedulable, misfit) // The attempt itself is untouched.

	add("low-2")
	s.plugin.RemovePod(s.Context(), dryRun, pod, podInfo(t, devicePod("nominated")), nil)
	s.wants(s.plugin.Filter(s.Context(), dryRun, pod, node("n")), fwk.Unschedulable, misfit)
	if s.calls("filter") != 1 {
		s.Error("asked what PreFilter had answered")
	}
}

func TestPostFilterEndsTheAttemptWhileDevicesAreReleased(t *testing.T) {
	for _, verdict := range []string{"wait", "released"} {
		s := newStory(t)
		s.verdict("prefilter", "unschedulable", "full")
		s.verdict("postfilter", verdict, "devices are being released")
		pod := devicePod("p")
		s.begin(pod)
		// The scheduler runs no further PostFilter plugin, and a result of nil keeps the nomination.
		result, status := s.plugin.PostFilter(s.Context(), s.state, pod, nil)
		s.wants(status, fwk.UnschedulableAndUnresolvable, "devices are being released")
		if result != nil {
			s.Error("the nomination changes")
		}
	}
}

func TestPostFilterAsksNothingWhereNothingHelps(t *testing.T) {
	s := newStory(t)
	s.verdict("prefilter", "unresolvable", "no such class")
	s.verdict("postfilter", "released", "given back")
	pod := devicePod("p")
	s.begin(pod)
	s.wants(s.postFilter(pod), fwk.Unschedulable, "")

	s.handle.claims.claims["ns/p-gpu"] = claim("p-gpu", "1", "gpu-0")
	s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, "given back")
	if s.calls("postfilter") != 1 {
		s.Errorf("%d calls", s.calls("postfilter"))
	}
}

func TestAPodWaitsForALostSidecarAndIsWokenWhenItIsBack(t *testing.T) {
	s := newStory(t)
	pod := devicePod("p")
	s.sidecar.Say("prefilter", sidecartest.Reply{Status: http.StatusServiceUnavailable})

	_, status := s.begin(pod)

	// Preemption would evict pods for nothing.
	s.wants(status, fwk.UnschedulableAndUnresolvable, unavailable)
	s.wants(s.filter(pod, "nominated"), fwk.UnschedulableAndUnresolvable, unavailable)
	s.wants(s.postFilter(pod), fwk.UnschedulableAndUnresolvable, "")
	_, plain := s.begin(plainPod("q"))
	s.wants(plain, fwk.Skip, "")
	if len(s.handle.activated) > 0 {
		s.Error("woken too early")
	}
	if err := s.plugin.client.WaitReady(s.Context()); err != nil {
		s.Fatal(err)
	}
	if !reflect.DeepEqual(s.handle.activated, []string{"p"}) {
		s.Errorf("activated %v", s.handle.activated)
	}
}

func TestPodsThatAreDeletedWhileTheSidecarIsLostAreForgotten(t *testing.T) {
	s := newStory(t)
	park := func(pod *v1.Pod) {
		t.Helper()
		if err := s.plugin.claims.pods.Add(pod); err != nil { // In the place of an earlier one of the name.
			t.Fatal(err)
		}
		s.plugin.parked.add(pod)
	}
	stays := plainPod("stays")
	park(stays)
	for number := range 5 * minParked {
		pod := plainPod("created again")
		pod.UID = types.UID(strconv.Itoa(number))
		park(pod)
		deleted := plainPod("deleted-" + strconv.Itoa(number))
		park(deleted)
		if err := s.plugin.claims.pods.Delete(deleted); err != nil {
			t.Fatal(err)
		}
		if count := len(s.plugin.parked.pods); count > minParked {
			t.Fatalf("%d pods are parked, of which 2 exist", count)
		}
	}

	s.plugin.parked.release()

	if !slices.Contains(s.handle.activated, "stays") || !slices.Contains(s.handle.activated, "created again") {
		t.Errorf("activated %v", s.handle.activated)
	}
}

func TestAllPodsThatExistAreParked(t *testing.T) {
	s := newStory(t)
	for number := range 3 * minParked {
		pod := plainPod(strconv.Itoa(number))
		if err := s.plugin.claims.pods.Add(pod); err != nil {
			t.Fatal(err)
		}
		s.plugin.parked.add(pod)
	}

	s.plugin.parked.release()

	if count := len(s.handle.activated); count != 3*minParked {
		t.Errorf("%d pods are activated", count)
	}
}

func TestReserveCostsNoCallAndTravelsWithPreBind(t *testing.T) {
	s := newStory(t)
	s.fits(true, "n")
	s.verdict("prebind", "ok", "")
	pod := devicePod("p")
	s.begin(pod)
	s.wants(s.plugin.Reserve(s.Context(), s.state, pod, "n"), fwk.Success, "")
	if _, flight := s.plugin.PreBindPreFlight(s.Context(), s.state, pod, "n"); !flight.IsSuccess() {
		s.Errorf("PreBind is skipped: %s", flight.Code())
	}
	s.wants(s.plugin.PreBind(s.Context(), s.state, pod, "n"), fwk.Success, "")

	want := map[string]any{"number": 1.0, "podUID": "p", "podNamespace": "ns", "podName": "p", "node": "n"}
	body := s.sidecar.Requests("prebind")[0].Body
	if got := body["reservations"].([]any); !reflect.DeepEqual(got, []any{want}) {
		s.Errorf("carried %v", got)
	}
	if body["podUID"] != "p" || body["podNamespace"] != "ns" || body["podName"] != "p" || body["node"] != "n" {
		s.Errorf("asked with %v", body)
	}
	s.plugin.PostBind(s.Context(), s.state, pod, "n")
	s.sidecar.Restart("second")
	s.begin(pod)
	if got := s.sidecar.Requests("hello")[1].Body["reservations"]; got != nil {
		s.Errorf("a bound pod is still reserved: %v", got)
	}
}

func TestUnreserveIsACallOnlyAfterPreBind(t *testing.T) {
	s := newStory(t)
	s.fits(true, "n")
	s.verdict("prebind", "unschedulable", "gone")
	pod := devicePod("p")
	s.begin(pod)
	s.plugin.Reserve(s.Context(), s.state, pod, "n")
	s.plugin.Unreserve(s.Context(), s.state, pod, "n")
	if s.calls("unreserve") > 0 {
		s.Error("called although nothing was written")
	}

	s.begin(pod)
	if got := s.sidecar.Requests("prefilter")[1].Body["unreserved"]; !reflect.DeepEqual(got, []any{1.0}) {
		s.Errorf("carried %v", got)
	}
	s.plugin.Reserve(s.Context(), s.state, pod, "n")
	s.wants(s.plugin.PreBind(s.Context(), s.state, pod, "n"), fwk.Unschedulable, "gone")
	cancelled, cancel := context.WithCancel(s.Context())
	cancel()
	s.plugin.Unreserve(cancelled, s.state, pod, "n")
	if got := s.sidecar.Requests("unreserve"); len(got) != 1 || got[0].Body["number"] != 2.0 {
		s.Errorf("called with %v", got)
	}
}

func TestWrongSettingsAreAllNamed(t *testing.T) {
	raw := []byte(`{"socket": "", "callTimeout": "0s", "heartbeat": "-1s"}`)
	factory := NewFactory()

	_, err := factory.New(t.Context(), &runtime.Unknown{Raw: raw}, nil)

	settings := (*SettingsError)(nil)
	if !errors.As(err, &settings) || factory.Err() == nil {
		t.Fatalf("got %v", err)
	}
	want := "pluginConfig " + Name + ": socket is empty, give the path of the sidecar's unix socket; " +
		"callTimeout is 0s, give a duration above 0s; heartbeat is -1s, give a duration above 0s"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestProfilesNeedTheSameSettings(t *testing.T) {
	server := sidecartest.Start(t)
	factory := NewFactory()
	makeProfile := func(name string, args map[string]any) error {
		handle := &handle{
			profile:   name,
			informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
			claims:    tracker{claims: map[string]*resourceapi.ResourceClaim{}},
		}
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = factory.New(t.Context(), &runtime.Unknown{Raw: raw}, handle)
		return err
	}
	args := map[string]any{"socket": server.Socket, "callTimeout": "30s", "heartbeat": "1h"}
	for _, name := range []string{"first", "second"} {
		if err := makeProfile(name, args); err != nil {
			t.Fatal(err)
		}
	}

	err := makeProfile("third", map[string]any{"socket": "/other", "callTimeout": "20s", "heartbeat": "1h"})

	settings := (*SettingsError)(nil)
	if !errors.As(err, &settings) || factory.Err() == nil {
		t.Fatalf("got %v", err)
	}
	const end = " in one before it, give all profiles the same args"
	want := "pluginConfig " + Name + ": socket is /other in profile third and " + server.Socket + end +
		"; callTimeout is 20s in profile third and 30s" + end
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestAnUnknownSettingIsRefused(t *testing.T) {
	_, err := readSettings(&runtime.Unknown{Raw: []byte("sockets: /x\n")})
	if err == nil || !strings.Contains(err.Error(), "sockets") {
		t.Errorf("got %v", err)
	}
}

func TestTheDefaultSettingsAreValid(t *testing.T) {
	if _, err := readSettings(nil); err != nil {
		t.Error(err)
	}
}

func TestAWakeupActivatesThePodsThatWaitForDevicesOfTheProfile(t *testing.T) {
	s := newStory(t)
	waiting, bound, plain, foreign := devicePod("waiting"), devicePod("bound"), plainPod("plain"), devicePod("foreign")
	for _, each := range []*v1.Pod{waiting, bound, plain} {
		each.Spec.SchedulerName = s.handle.ProfileName()
	}
	bound.Spec.NodeName = "node"
	foreign.Spec.SchedulerName = "another"
	for _, each := range []*v1.Pod{waiting, bound, plain, foreign} {
		if err := s.plugin.claims.pods.Add(each); err != nil {
			t.Fatal(err)
		}
	}

	s.plugin.activateWaiting()

	if want := []string{"waiting"}; !reflect.DeepEqual(s.handle.activated, want) {
		t.Errorf("activated %v, want %v", s.handle.activated, want)
	}
}

func TestTheSidecarIsAskedForMoreAtOnceAndNotDuringItsRest(t *testing.T) {
	s := newStory(t)
	s.sidecar.Say("wake",
		sidecartest.Reply{Body: map[string]any{"more": true, "restMillis": 3_600_000}},
		sidecartest.Reply{Body: map[string]any{"restMillis": 3_600_000}},
	)
	go s.plugin.waker.run(t.Context(), time.Hour)

	s.plugin.waker.soon()
	for deadline := time.Now().Add(30 * time.Second); s.calls("wake") < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	s.plugin.waker.soon()
	time.Sleep(100 * time.Millisecond)

	if calls := s.calls("wake"); calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
}

// extender is an extender of the scheduler that may bind pods.
type extender struct {
	fwk.Extender
	binds bool
}

func (e extender) IsBinder() bool { return e.binds }

func TestClaimsAreWrittenOnceBeforeThePodIsBound(t *testing.T) {
	first := []string{Name, "DefaultBinder"}
	cases := map[string]struct {
		binders   []string
		extenders []fwk.Extender
		point     string // Where the claims are written.
	}{
		"first of those that bind":        {first, nil, "bind"},
		"beside an extender that filters": {first, []fwk.Extender{extender{}}, "bind"},
		"after an extender that binds":    {first, []fwk.Extender{extender{}, extender{binds: true}}, "prebind"},
		"after the default binder":        {[]string{"DefaultBinder", Name}, nil, "prebind"},
		"not among those that bind":       {[]string{"DefaultBinder"}, nil, "prebind"},
		"a profile without a binder":      {nil, nil, "prebind"},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s, pod := newStory(t), devicePod("p")
			s.handle.binders, s.handle.extenders = row.binders, row.extenders
			s.fits(true, "n")
			s.verdict("prebind", "ok", "")
			s.begin(pod)
			s.plugin.Reserve(s.Context(), s.state, pod, "n")

			_, flight := s.plugin.PreBindPreFlight(s.Context(), s.state, pod, "n")
			if skips := flight.Code() == fwk.Skip; skips != (row.point == "bind") {
				t.Errorf("PreBind is skipped: %t", skips)
			}
			s.wants(s.plugin.PreBind(s.Context(), s.state, pod, "n"), fwk.Success, "")
			before := s.calls("prebind")
			if wrote := before == 1; wrote != (row.point == "prebind") {
				t.Errorf("written in PreBind: %t", wrote)
			}
			s.wants(s.plugin.Bind(s.Context(), s.state, pod, "n"), fwk.Skip, "")
			if s.calls("prebind") != 1 {
				t.Errorf("written %d times", s.calls("prebind"))
			}
		})
	}
}

func TestAPodIsNotBoundWhoseClaimsCannotBeWritten(t *testing.T) {
	s, pod := newStory(t), devicePod("p")
	s.handle.binders = []string{Name, "DefaultBinder"}
	s.fits(true, "n")
	s.verdict("prebind", "unschedulable", "gone")
	s.begin(pod)
	s.plugin.Reserve(s.Context(), s.state, pod, "n")

	s.wants(s.plugin.Bind(s.Context(), s.state, pod, "n"), fwk.Unschedulable, "gone")
	s.plugin.Unreserve(s.Context(), s.state, pod, "n")
	if s.calls("unreserve") != 1 {
		t.Error("what may have been written is not taken back")
	}
}
