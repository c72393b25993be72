package plugin

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"drawbridge.internal/bridge/sidecartest"
)

// groupStory is a story about one PodGroup, `job`.
type groupStory struct {
	*story
	group   *schedulingapi.PodGroup
	members []*v1.Pod
	others  []*v1.Pod // On nodes.
	run     *framework.CycleState
}

// newGroupStory makes a group of members, of which those of plain have no claim.
func newGroupStory(t *testing.T, minCount int32, members ...*v1.Pod) *groupStory {
	t.Helper()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	priority := int32(5)
	policy := schedulingapi.PodGroupSchedulingPolicy{Gang: &schedulingapi.GangSchedulingPolicy{MinCount: minCount}}
	s := &groupStory{
		story: newStory(t),
		group: &schedulingapi.PodGroup{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "job", UID: "job", CreationTimestamp: metav1.Unix(1_800_000_000, 0),
			},
			Spec: schedulingapi.PodGroupSpec{SchedulingPolicy: policy, Priority: &priority},
		},
		members: members,
	}
	for _, member := range members {
		name := s.group.Name
		member.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
		member.Spec.Priority = &priority
	}
	s.handle.filters = []string{"NodeResourcesFit"}
	s.begin()
	return s
}

// begin begins a run over the group, with a new snapshot.
func (s *groupStory) begin() {
	s.Helper()
	s.run = framework.NewCycleState()
	pods := append(slices.Clone(s.members), s.others...)
	nodes := []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
	s.handle.groups = snapshot{
		SharedLister: cache.NewTestSnapshotWithPodGroups(pods, nil, []*schedulingapi.PodGroup{s.group}),
		nodes:        cache.NewSnapshot(s.others, nodes),
	}
}

// snapshot has nodes apart from groups: a snapshot for tests takes pods without a node for those of a node.
type snapshot struct {
	fwk.SharedLister
	nodes fwk.SharedLister
}

func (s snapshot) NodeInfos() fwk.NodeInfoLister { return s.nodes.NodeInfos() }

// other is a pod on a node that the informer knows.
func (s *groupStory) other(name, node string, priority int32) *v1.Pod {
	s.Helper()
	pod := devicePod(name)
	pod.Spec.NodeName, pod.Spec.Priority = node, &priority
	s.others = append(s.others, pod)
	if err := s.plugin.claims.pods.Add(pod); err != nil {
		s.Fatal(err)
	}
	return pod
}

// attempt runs PreFilter of a member, and returns its state.
func (s *groupStory) attempt(pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, *fwk.Status) {
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(s.run)
	result, status := s.plugin.PreFilter(s.Context(), state, pod, nil)
	return state, result, status
}

func (s *groupStory) postFilterGroup() *fwk.Status {
	info := &framework.PodGroupInfo{PodGroup: s.group, Namespace: "ns", Name: "job", UnscheduledPods: s.members}
	_, status := s.plugin.PodGroupPostFilter(s.Context(), s.run, info, nil)
	return status
}

// says has the sidecar answer about the group.
func (s *groupStory) says(verdict, message string, nodes map[string]string) {
	members := map[string]any{}
	for pod, node := range nodes {
		members[pod] = map[string]any{"node": node}
	}
	body := map[string]any{"verdict": verdict, "message": message, "members": members}
	s.sidecar.Say("group", sidecartest.Reply{Body: body})
}

func (s *groupStory) body(point string, number int) map[string]any {
	s.Helper()
	requests := s.sidecar.Requests(point)
	if len(requests) <= number {
		s.Fatalf("%d calls of %s", len(requests), point)
	}
	return requests[number].Body
}

func TestTheFirstMemberAsksAboutAllAndTheOthersAreAnsweredFromIt(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), plainPod("launcher"), devicePod("leaving"))
	s.members[2].DeletionTimestamp = &metav1.Time{}
	running := devicePod("w0")
	running.Spec.NodeName, running.Spec.SchedulingGroup = "b", s.members[0].Spec.SchedulingGroup
	s.others = append(s.others, running)
	s.begin()
	s.handle.claims.claims["ns/w1-gpu"] = claim("w1-gpu", "7")
	s.says("fits", "", map[string]string{"w1": "a", "launcher": "b"})

	for pod, node := range map[int]string{0: "a", 1: "b"} {
		state, result, status := s.attempt(s.members[pod])
		s.wants(status, fwk.Success, "")
		if !result.NodeNames.Has(node) || result.NodeNames.Len() != 1 {
			t.Errorf("named %v", result.NodeNames)
		}
		s.wants(s.plugin.Filter(s.Context(), state, s.members[pod], s.node(node)), fwk.Success, "")
		s.wants(s.plugin.Filter(s.Context(), state, s.members[pod], s.node("elsewhere")), fwk.Unschedulable, misfit)
		if score, _ := s.plugin.Score(s.Context(), state, s.members[pod], s.node(node)); score != fwk.MaxNodeScore {
			t.Errorf("score %d", score)
		}
	}

	if s.calls("group") != 1 {
		t.Errorf("%d calls", s.calls("group"))
	}
	body := s.body("group", 0)
	for name, want := range map[string]any{
		"group": map[string]any{
			"uid": "job", "namespace": "ns", "name": "job", "minCount": 2.0, "policy": "gang", "priority": 5.0,
			"created": "2027-01-15T08:00:00Z",
		},
		"placed":        []any{map[string]any{"podUID": "w0", "node": "b"}},
		"claimVersions": map[string]any{"ns/w1-gpu": "7"},
		"requests": map[string]any{
			"w1": map[string]any{"cpuMilli": 0.0, "memory": 0.0}, "launcher": map[string]any{"cpuMilli": 0.0, "memory": 0.0},
		},
	} {
		if !reflect.DeepEqual(body[name], want) {
			t.Errorf("asked with %s %v, want %v", name, body[name], want)
		}
	}
	var names []string
	for _, pod := range body["pods"].([]any) {
		names = append(names, pod.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	if !reflect.DeepEqual(names, []string{"launcher", "w1"}) {
		t.Errorf("asked about %v", names)
	}
	if nodes := body["headroom"].(map[string]any)["nodes"].([]any); len(nodes) != 2 {
		t.Errorf("sent %v", nodes)
	}
}

// node returns a node, ready to be filtered.
func (s *groupStory) node(name string) fwk.NodeInfo { return node(name) }

func TestAGroupWithoutDevicesCostsNoCall(t *testing.T) {
	s := newGroupStory(t, 2, plainPod("p"), plainPod("q"))

	_, _, status := s.attempt(s.members[0])

	s.wants(status, fwk.Skip, "")
	s.wants(s.postFilterGroup(), fwk.Unschedulable, "")
	if s.calls("group")+s.calls("postfilter") > 0 {
		t.Error("the sidecar was asked")
	}
}

func TestVerdictsOnGroupsBecomeStatusesOfAllMembers(t *testing.T) {
	cases := map[string]struct {
		verdict string
		want    fwk.Code
		message string
		end     fwk.Code // Of PodGroupPostFilter.
	}{
		"no devices of ours":  {"skip", fwk.Skip, "", fwk.Unschedulable},
		"victims could help":  {"unschedulable", fwk.Unschedulable, "why", fwk.Unschedulable},
		"nothing could help":  {"unresolvable", fwk.UnschedulableAndUnresolvable, "why", fwk.UnschedulableAndUnresolvable},
		"to be repeated":      {"error", fwk.Error, "why", fwk.Error},
		"a word of nobody":    {"maybe", fwk.Error, "maybe", fwk.Error},
		"it fits without any": {"fits", fwk.Unschedulable, "not there yet", fwk.Unschedulable},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
			s.other("low", "a", 0)
			s.begin()
			s.says(row.verdict, "why", nil)
			s.verdict("postfilter", "continue", "")
			for _, member := range s.members {
				_, _, status := s.attempt(member)
				s.wants(status, row.want, row.message)
			}
			s.wants(s.postFilterGroup(), row.end, "")
			if s.calls("group") != 1 {
				t.Errorf("%d calls", s.calls("group"))
			}
		})
	}
}

func TestAMemberBeyondTheMinimumSaysWhyItHasNoNode(t *testing.T) {
	s := newGroupStory(t, 1, devicePod("w1"), devicePod("w2"))
	members := map[string]any{"w1": map[string]any{"node": "a"}, "w2": map[string]any{"message": "no device is free"}}
	s.sidecar.Say("group", sidecartest.Reply{Body: map[string]any{"verdict": "fits", "members": members}})

	_, _, first := s.attempt(s.members[0])
	_, _, second := s.attempt(s.members[1])

	s.wants(first, fwk.Success, "")
	s.wants(second, fwk.Unschedulable, "no device is free")
}

func TestAReservationIsParkedUntilTheRunsOutcome(t *testing.T) {
	cases := map[string]struct {
		then  func(s *groupStory, state *framework.CycleState)
		gives []any // What the next request gives up.
	}{
		"reserved again in the commit": {func(s *groupStory, state *framework.CycleState) {
			state.SetPodGroupSchedulingCycle(nil)
			s.plugin.Reserve(s.Context(), state, s.members[0], "a")
		}, nil},
		"reserved again and given up in the commit": {func(s *groupStory, state *framework.CycleState) {
			state.SetPodGroupSchedulingCycle(nil)
			s.plugin.Reserve(s.Context(), state, s.members[0], "a")
			s.plugin.Unreserve(s.Context(), state, s.members[0], "a")
		}, []any{1.0}},
		"given up in the commit before it was reserved": {func(s *groupStory, state *framework.CycleState) {
			state.SetPodGroupSchedulingCycle(nil)
			s.plugin.Unreserve(s.Context(), state, s.members[0], "a")
		}, []any{1.0}},
		"reserved on another node": {func(s *groupStory, state *framework.CycleState) {
			s.plugin.Reserve(s.Context(), state, s.members[0], "b")
		}, []any{1.0}},
		"the group does not get what it needs": {func(s *groupStory, _ *framework.CycleState) {
			s.verdict("postfilter", "continue", "")
			s.postFilterGroup()
		}, []any{1.0}},
		"another run of the group": {func(s *groupStory, _ *framework.CycleState) {
			s.run = framework.NewCycleState()
			s.attempt(s.members[0])
		}, []any{1.0}},
		"a pod that has nothing to do with devices": {func(s *groupStory, _ *framework.CycleState) {
			s.plugin.PreFilter(s.Context(), framework.NewCycleState(), plainPod("p"), nil)
		}, []any{1.0}},
		"another member": {func(s *groupStory, _ *framework.CycleState) { s.attempt(s.members[1]) }, nil},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
			s.says("fits", "", map[string]string{"w1": "a", "w2": "a"})
			state, _, _ := s.attempt(s.members[0])
			s.plugin.Reserve(s.Context(), state, s.members[0], "a")
			s.plugin.Unreserve(s.Context(), state, s.members[0], "a")

			row.then(s, state.(*framework.CycleState))

			s.plugin.client.Greet(s.Context())
			requests := s.sidecar.Requests("hello")
			given, _ := requests[len(requests)-1].Body["unreserved"].([]any)
			for _, point := range []string{"group", "postfilter"} {
				for _, request := range s.sidecar.Requests(point) {
					more, _ := request.Body["unreserved"].([]any)
					given = append(given, more...)
				}
			}
			if !reflect.DeepEqual(given, row.gives) {
				t.Errorf("gave up %v, want %v", given, row.gives)
			}
			if s.calls("unreserve") > 0 {
				t.Error("called although nothing was written")
			}
		})
	}
}

func TestAMemberWithoutClaimsPassesTheBarrierAndIsUnreservedByACall(t *testing.T) {
	s := newGroupStory(t, 2, plainPod("launcher"), devicePod("w1"))
	s.handle.binders = []string{Name, "DefaultBinder"}
	s.says("fits", "", map[string]string{"launcher": "b", "w1": "a"})
	s.verdict("prebind", "unschedulable", "a member is missing")
	launcher := s.members[0]
	state, _, _ := s.attempt(launcher)
	s.plugin.Reserve(s.Context(), state, launcher, "b")
	s.plugin.Unreserve(s.Context(), state, launcher, "b")
	state.(*framework.CycleState).SetPodGroupSchedulingCycle(nil)
	s.plugin.Reserve(s.Context(), state, launcher, "b")

	s.wants(s.plugin.Bind(s.Context(), state, launcher, "b"), fwk.Unschedulable, "a member is missing")
	s.plugin.Unreserve(s.Context(), state, launcher, "b")

	reservation := s.body("prebind", 0)["reservations"].([]any)[0].(map[string]any)
	if reservation["number"] != 1.0 || reservation["group"].(map[string]any)["uid"] != "job" {
		t.Errorf("carried %v", reservation)
	}
	// The sidecar waits for others, which wait for their volumes, and after that for drivers.
	single, volumes := 10*60*1000.0+30*1000, 10*60*1000.0+30*1000
	if waits := s.body("prebind", 0)["deadlineMillis"].(float64); waits <= single+volumes || waits > single+volumes+10*1000 {
		t.Errorf("waits %g ms", waits)
	}
	if number := s.body("unreserve", 0)["number"]; number != 1.0 {
		t.Errorf("gave up %v", number)
	}
}

func TestAfterATurnedDownPlacementAnotherOneIsAskedForEightTimesInARow(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	s.verdict("postfilter", "continue", "")
	s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})
	turnDown := func() *fwk.Status {
		s.begin()
		state, _, _ := s.attempt(s.members[0])
		s.plugin.Reserve(s.Context(), state, s.members[0], "a")
		s.attempt(s.members[1]) // Other filters turn node b down.
		return s.postFilterGroup()
	}
	for range maxPlacements {
		s.wants(turnDown(), fwk.UnschedulableAndUnresolvable, anotherPlacement)
	}
	if excluded := s.body("group", 1)["excluded"]; !reflect.DeepEqual(excluded, map[string]any{"w2": []any{"b"}}) {
		t.Errorf("excluded %v", excluded)
	}
	if s.calls("postfilter") > 0 {
		t.Error("victims were looked for")
	}
	s.plugin.waker.wake(s.Context())
	slices.Sort(s.handle.activated)
	if !reflect.DeepEqual(s.handle.activated, []string{"w1", "w2"}) {
		t.Errorf("activated %v", s.handle.activated)
	}

	turnDown()
	if s.calls("postfilter") != 1 {
		t.Error("never ends")
	}
	turnDown()
	if excluded := s.body("group", maxPlacements+1)["excluded"]; excluded != nil {
		t.Errorf("still excluded: %v", excluded)
	}
}

func TestAfterEnoughTurnedDownPlacementsVictimsAreLookedFor(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	s.other("low", "b", 0)
	s.verdict("postfilter", "retry", "others are tried") // As always when there are devices for the group.
	s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})
	turnDown := func() *fwk.Status {
		s.begin()
		state, _, _ := s.attempt(s.members[0])
		s.plugin.Reserve(s.Context(), state, s.members[0], "a")
		s.attempt(s.members[1]) // Other filters turn node b down, such as for a port of the other pod.
		return s.postFilterGroup()
	}
	for range maxPlacements {
		s.wants(turnDown(), fwk.UnschedulableAndUnresolvable, anotherPlacement)
	}

	s.wants(turnDown(), fwk.Unschedulable, "")
}

func TestANodeThatIsTurnedDownIsSoForMembersOfTheSameOwnerThatWereNotTried(t *testing.T) {
	controller := true
	owned := func(name, owner string) *v1.Pod {
		pod := devicePod(name)
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: &controller}}
		return pod
	}
	s := newGroupStory(t, 4, owned("w1", "workers"), owned("w2", "workers"), owned("w3", "workers"), owned("l", "launcher"))
	s.says("fits", "", map[string]string{"w1": "a", "w2": "b", "w3": "a", "l": "a"})
	s.attempt(s.members[0])
	s.postFilterGroup()
	s.begin()

	s.attempt(s.members[0])

	want := map[string]any{"w1": []any{"a"}, "w3": []any{"a"}}
	if excluded := s.body("group", 1)["excluded"]; !reflect.DeepEqual(excluded, want) {
		t.Errorf("excluded %v, want %v", excluded, want)
	}
}

func TestPodGroupPostFilterSaysWhatTheSidecarSays(t *testing.T) {
	cases := map[string]struct {
		verdict string
		victims bool
		want    fwk.Code
		message string
	}{
		"devices are being released": {"wait", true, fwk.UnschedulableAndUnresolvable, "said"},
		"a claim was released":       {"released", true, fwk.UnschedulableAndUnresolvable, "said"},
		"another placement":          {"retry", true, fwk.UnschedulableAndUnresolvable, anotherPlacement},
		"victims may help":           {"continue", true, fwk.Unschedulable, "3 of 4 pods fit"},
		// DefaultPreemption would end the same way, and the group's condition would not have the sentence.
		"there are no victims": {"continue", false, fwk.UnschedulableAndUnresolvable, "3 of 4 pods fit"},
		"a word of nobody":     {"perhaps", true, fwk.Error, "perhaps"},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
			if row.victims {
				s.other("low", "a", 0)
			}
			s.other("high", "a", 9)
			s.begin()
			s.says("unschedulable", "3 of 4 pods fit", nil)
			s.verdict("postfilter", row.verdict, "said")
			s.attempt(s.members[0])

			s.wants(s.postFilterGroup(), row.want, row.message)

			body := s.body("postfilter", 0)
			if group, ok := body["group"].(map[string]any); !ok || group["uid"] != "job" || body["podUID"] != "" {
				t.Errorf("asked with %v", body)
			}
		})
	}
}

func TestForAGroupThatNothingHelpsNobodyIsAskedUnlessItHoldsDevices(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	s.other("low", "a", 0)
	s.begin()
	s.says("unresolvable", "no such class", nil)
	s.verdict("postfilter", "released", "given back")
	s.attempt(s.members[0])
	s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, "no such class")

	s.handle.claims.claims["ns/w1-gpu"] = claim("w1-gpu", "1", "gpu-0")
	s.begin()
	s.attempt(s.members[0])
	s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, "given back")
}

func TestAGroupWaitsForALostSidecarAndEvictsNobody(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), plainPod("launcher"))
	s.sidecar.Say("group", sidecartest.Reply{Status: http.StatusServiceUnavailable})

	state, _, status := s.attempt(s.members[0])
	s.wants(status, fwk.UnschedulableAndUnresolvable, unavailable)
	s.wants(s.plugin.Filter(s.Context(), state, s.members[0], s.node("a")), fwk.UnschedulableAndUnresolvable, unavailable)
	_, _, status = s.attempt(s.members[1])
	s.wants(status, fwk.UnschedulableAndUnresolvable, unavailable)
	s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, unavailable)
	if calls := s.calls("group"); calls != 1 {
		t.Errorf("%d calls", calls)
	}

	if err := s.plugin.client.WaitReady(s.Context()); err != nil {
		s.Fatal(err)
	}
	slices.Sort(s.handle.activated)
	if !reflect.DeepEqual(s.handle.activated, []string{"launcher", "w1"}) {
		t.Errorf("activated %v", s.handle.activated)
	}
}

func TestForAGroupWithoutAnAnswerYetNobodyIsEvictedAndTheSidecarIsAskedSoon(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	s.other("low", "a", 0)
	s.begin()
	body := map[string]any{"verdict": "unresolvable", "message": "being searched", "unfinished": true}
	s.sidecar.Say("group", sidecartest.Reply{Body: body})

	_, _, status := s.attempt(s.members[0])

	s.wants(status, fwk.UnschedulableAndUnresolvable, "being searched")
	s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, "being searched")
	if s.calls("postfilter") > 0 || !s.asks() {
		t.Error("victims were looked for, or the sidecar is not asked when to try again")
	}
}

// What DefaultPreemption does after PodGroupPostFilter: it runs over the group without a word that it does.
func TestARunWithoutVictimsIsToldApartAndPromisesNothing(t *testing.T) {
	leave := func(s *groupStory, name string) {
		s.others = slices.DeleteFunc(s.others, func(pod *v1.Pod) bool { return pod.Name == name })
	}
	cases := map[string]struct {
		change  func(s *groupStory)
		removed []any
	}{
		"a pod is missing that runs": {func(s *groupStory) { leave(s, "low") }, []any{"low"}},
		"two are":                    {func(s *groupStory) { leave(s, "low"); leave(s, "lower") }, []any{"low", "lower"}},
		"nobody is missing":          {func(*groupStory) {}, nil},
		"a pod is missing that is gone": {func(s *groupStory) {
			_ = s.plugin.claims.pods.Delete(s.others[0])
			leave(s, "low")
		}, nil},
		"a pod is missing that has ended": {func(s *groupStory) {
			ended := s.others[0].DeepCopy()
			ended.Status.Phase = v1.PodFailed
			_ = s.plugin.claims.pods.Update(ended)
			leave(s, "low")
		}, nil},
		"a pod is missing that was given up before it was bound": {func(s *groupStory) {
			given := s.others[0].DeepCopy()
			given.Spec.NodeName = ""
			_ = s.plugin.claims.pods.Update(given)
			leave(s, "low")
		}, nil},
		"a pod of the same name replaced it": {func(s *groupStory) {
			another := s.others[0].DeepCopy()
			another.UID = "another"
			_ = s.plugin.claims.pods.Update(another)
			leave(s, "low")
		}, nil},
		"a pod is missing that is no victim": {func(s *groupStory) { leave(s, "high") }, nil},
		"another pod came in between": {func(s *groupStory) {
			s.plugin.PreFilter(s.Context(), framework.NewCycleState(), plainPod("p"), nil)
			leave(s, "low")
		}, nil},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
			s.other("low", "a", 0)
			s.other("lower", "b", 0)
			s.other("high", "a", 9)
			s.begin()
			s.says("unschedulable", "1 of 2 pods fit", nil)
			s.verdict("postfilter", "continue", "")
			s.attempt(s.members[0])
			s.wants(s.postFilterGroup(), fwk.Unschedulable, "1 of 2 pods fit")
			row.change(s)
			s.begin()
			s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})

			state, _, _ := s.attempt(s.members[0])
			s.plugin.Reserve(s.Context(), state, s.members[0], "a")

			body := s.body("group", 1)
			if removed, _ := body["removed"].([]any); !reflect.DeepEqual(removed, row.removed) {
				t.Errorf("removed %v, want %v", removed, row.removed)
			}
			isWhatIf := row.removed != nil
			if (body["whatIf"] == true) != isWhatIf || (body["headroom"] == nil) != isWhatIf {
				t.Errorf("whatIf %v with headroom %v", body["whatIf"], body["headroom"])
			}
			s.plugin.client.Greet(s.Context())
			hellos := s.sidecar.Requests("hello")
			if reserved := hellos[len(hellos)-1].Body["reservations"] != nil; reserved == isWhatIf {
				t.Errorf("reserved: %t", reserved)
			}
		})
	}
}

// withoutVictims begins a what-if in which w1 and w2 fit on a and b, since the pods there are gone.
func (s *groupStory) withoutVictims() (low, lower *v1.Pod) {
	low, lower = s.other("low", "a", 0), s.other("lower", "b", 0)
	s.begin()
	s.says("unschedulable", "none fits", nil)
	s.verdict("postfilter", "continue", "")
	s.attempt(s.members[0])
	s.postFilterGroup()
	s.others = nil
	s.begin()
	s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})
	return low, lower
}

func TestVictimsArePutBackWithOneCallForAllMembers(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	low, lower := s.withoutVictims()
	states := make([]fwk.CycleState, len(s.members))
	for i, member := range s.members {
		states[i], _, _ = s.attempt(member)
		s.plugin.Reserve(s.Context(), states[i], member, []string{"a", "b"}[i])
	}
	try := func(victim *v1.Pod, want fwk.Code, message string) {
		t.Helper()
		for i, member := range s.members {
			s.plugin.AddPod(s.Context(), states[i], member, podInfo(t, victim), nil)
		}
		for i, member := range s.members {
			s.wants(s.plugin.Filter(s.Context(), states[i], member, s.node([]string{"a", "b"}[i])), want, message)
		}
	}
	s.says("unschedulable", "w1 lacks a device", nil)
	try(low, fwk.Unschedulable, "w1 lacks a device")
	for i, member := range s.members {
		s.plugin.RemovePod(s.Context(), states[i], member, podInfo(t, low), nil)
	}
	s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})
	try(lower, fwk.Success, "")
	// Pods that are nominated come and go as well.
	try(devicePod("nominated"), fwk.Success, "")

	if calls := s.calls("group"); calls != 4 {
		t.Fatalf("%d calls", calls)
	}
	for number, removed := range map[int]string{2: "lower", 3: "low"} {
		body := s.body("group", number)
		if !reflect.DeepEqual(body["removed"], []any{removed}) || body["whatIf"] != true {
			t.Errorf("asked with %v removed", body["removed"])
		}
		if want := map[string]any{"w1": "a", "w2": "b"}; !reflect.DeepEqual(body["pinned"], want) {
			t.Errorf("pinned %v", body["pinned"])
		}
		if pods, _ := body["pods"].([]any); len(pods) > 0 || body["claimVersions"] != nil {
			t.Errorf("the members are sent again: %v", pods)
		}
	}
}

// The framework evicts a victim with which a Filter fails, so the preemption has to end.
func TestNobodyIsEvictedWhereItIsNotKnownWhoHasToGo(t *testing.T) {
	for name, reply := range map[string]sidecartest.Reply{
		"not found out in time": {Body: map[string]any{"verdict": "unresolvable", "message": "it takes too long", "unfinished": true}},
		"an error":              {Body: map[string]any{"verdict": "error", "message": "no"}},
		"no answer":             {Status: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
			low := s.other("low", "a", 0)
			s.begin()
			s.says("unschedulable", "none fits", nil)
			s.verdict("postfilter", "continue", "")
			s.attempt(s.members[0])
			s.wants(s.postFilterGroup(), fwk.Unschedulable, "none fits")
			s.others = nil
			s.begin()
			s.says("fits", "", map[string]string{"w1": "a", "w2": "b"})
			state, _, _ := s.attempt(s.members[0])
			s.plugin.Reserve(s.Context(), state, s.members[0], "a")
			s.sidecar.Say("group", reply)

			s.plugin.AddPod(s.Context(), state, s.members[0], podInfo(t, low), nil)
			status := s.plugin.Filter(s.Context(), state, s.members[0], s.node("a"))
			s.wants(status, fwk.Error, "")
			s.wants(s.plugin.RemovePod(s.Context(), state, s.members[0], podInfo(t, low), nil), fwk.Error, "")

			if reply.Body["unfinished"] == nil {
				return
			}
			// The next attempts rest, so that others are scheduled meanwhile. So does the next group of the namespace.
			s.group.UID = "next"
			s.other("low", "a", 0)
			s.begin()
			s.says("unschedulable", "none fits", nil)
			s.attempt(s.members[0])
			s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, tooManyVictims)
		})
	}
}

func TestMembersOfACompositeGroupAreRejected(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true, features.TopologyAwareWorkloadScheduling: true, features.CompositePodGroup: true,
	})
	s := newGroupStory(t, 2, devicePod("w1"), plainPod("launcher"))
	parent := "parent"
	s.group.Spec.ParentCompositePodGroupName = &parent
	s.begin()

	_, _, status := s.attempt(s.members[0])
	s.wants(status, fwk.UnschedulableAndUnresolvable, composite)
	_, _, status = s.attempt(s.members[1])
	s.wants(status, fwk.Skip, "")
	if s.calls("group") > 0 {
		t.Error("the sidecar was asked")
	}
}

func TestALargeGroupIsCutOffBeyondWhatTheSidecarPlaces(t *testing.T) {
	members := make([]*v1.Pod, 600)
	for i := range members {
		members[i] = devicePod(fmt.Sprintf("w%d", i))
	}
	s := newGroupStory(t, 600, members...)
	s.says("unresolvable", "too many", nil)

	s.attempt(members[0])

	if pods := s.body("group", 0)["pods"].([]any); len(pods) != 513 {
		t.Errorf("%d pods", len(pods))
	}
}

// The framework's own part counts, too: it puts back each victim for each member.
func TestVictimsArePutBackForSecondsAtMost(t *testing.T) {
	s := newGroupStory(t, 2, devicePod("w1"), devicePod("w2"))
	low, lower := s.withoutVictims()
	state, _, _ := s.attempt(s.members[0])
	s.plugin.Reserve(s.Context(), state, s.members[0], "a")
	s.says("fits", "", map[string]string{"w1": "a"})
	s.plugin.AddPod(s.Context(), state, s.members[0], podInfo(t, low), nil)
	s.wants(s.plugin.Filter(s.Context(), state, s.members[0], s.node("a")), fwk.Success, "")

	cycleOf(state).group.whatIf.began = time.Now().Add(-maxWhatIfs)
	s.plugin.AddPod(s.Context(), state, s.members[0], podInfo(t, lower), nil)

	s.wants(s.plugin.Filter(s.Context(), state, s.members[0], s.node("a")), fwk.Error, tooManyVictims)
	s.wants(s.plugin.RemovePod(s.Context(), state, s.members[0], podInfo(t, lower), nil), fwk.Error, tooManyVictims)
}

func TestGroupsOfOtherNamespacesDoNotRest(t *testing.T) {
	memories, now := newGroupMemories(), time.Unix(1_800_000_000, 0)
	memories.rest("over", now.Add(-time.Hour), now)
	memories.rest("ns", now, now.Add(time.Minute))

	for namespace, want := range map[string]bool{"ns": true, "other": false, "over": false} {
		if is := memories.isResting(namespace, now); is != want {
			t.Errorf("%s rests: %t", namespace, is)
		}
	}
	if memories.isResting("ns", now.Add(time.Minute)) {
		t.Error("it rests for ever")
	}
	if len(memories.rests) != 1 {
		t.Errorf("remembers %v", memories.rests)
	}
}
