package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"sigs.k8s.io/yaml"

	"drawbridge.internal/bridge/sidecartest"
)

// cluster is kube-scheduler with the profile of manifests/bridge, an API server of memory, and a sidecar
// that knows one GPU per place: the pods of a group get the nodes that are free, or none does.
type cluster struct {
	*testing.T
	sidecar *sidecartest.Sidecar
	client  *fake.Clientset

	mutex sync.Mutex
	bound map[string]string // Pods to nodes.
	free  map[string]int    // Devices of nodes.
	owner map[string]string // UIDs of pods that have a device to their nodes.
	pods  []any             // Of the last question about a group.
}

// newCluster starts them with nodes that have as many devices each.
func newCluster(t *testing.T, devices map[string]int, objects ...runtime.Object) *cluster {
	t.Helper()
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload:          true,
		features.SchedulerPopFromBackoffQ: false,
	})
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		objects = append(objects, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("8"), v1.ResourcePods: resource.MustParse("20"),
			}},
		})
	}
	c := &cluster{
		T: t, sidecar: sidecartest.Start(t), client: fake.NewClientset(objects...),
		bound: map[string]string{}, free: maps.Clone(devices), owner: map[string]string{},
	}
	c.client.PrependReactor("create", "pods", c.bind)
	c.sidecar.Decide("group", c.decide)
	c.sidecar.Say("prebind", sidecartest.Reply{Body: map[string]any{"verdict": "ok"}})
	c.sidecar.Say("postfilter", sidecartest.Reply{Body: map[string]any{"verdict": "continue"}})
	return c
}

// start runs the scheduler until the test ends.
func (c *cluster) start(plugins ...frameworkruntime.Registry) {
	c.Helper()
	registry := frameworkruntime.Registry{Name: NewFactory().New}
	made := readProfile(c, c.sidecar.Socket)
	for _, more := range plugins {
		for name, factory := range more {
			registry[name] = factory
			made.Plugins.MultiPoint.Enabled = append(made.Plugins.MultiPoint.Enabled, config.Plugin{Name: name})
		}
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	ctx := c.Context()
	built, err := scheduler.New(ctx, c.client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(made),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(1),
		scheduler.WithPodMaxBackoffSeconds(1),
	)
	if err != nil {
		c.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := built.WaitForHandlersSync(ctx); err != nil {
		c.Fatal(err)
	}
	go built.Run(ctx)
}

// readProfile returns the profile of manifests/bridge with the plugin's socket replaced.
func readProfile(t testing.TB, socket string) config.KubeSchedulerProfile {
	t.Helper()
	text, err := os.ReadFile("../../manifests/bridge/configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := v1.ConfigMap{}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(manifest.Data["scheduler.yaml"]), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	made := object.(*config.KubeSchedulerConfiguration).Profiles[0]
	args, err := json.Marshal(map[string]any{"socket": socket, "callTimeout": "30s", "heartbeat": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range made.PluginConfig {
		if made.PluginConfig[i].Name == Name {
			made.PluginConfig[i].Args = &runtime.Unknown{Raw: args}
		}
	}
	return made
}

// bind is the API server's part of a Binding.
func (c *cluster) bind(action core.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := action.(core.CreateAction).GetObject().(*v1.Binding)
	kind := v1.SchemeGroupVersion.WithResource("pods")
	object, err := c.client.Tracker().Get(kind, action.GetNamespace(), binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	c.mutex.Lock()
	c.bound[binding.Name] = binding.Target.Name
	c.mutex.Unlock()
	return true, binding, c.client.Tracker().Update(kind, pod, action.GetNamespace())
}

// decide answers as the sidecar does, of a cluster with devices that nobody else takes.
func (c *cluster) decide(body map[string]any) sidecartest.Reply {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	free := maps.Clone(c.free)
	for pod, node := range c.owner {
		if removed, _ := body["removed"].([]any); slices.Contains(removed, any(pod)) {
			free[node]++
		}
	}
	excluded, _ := body["excluded"].(map[string]any)
	pinned, _ := body["pinned"].(map[string]any)
	members, placed := map[string]any{}, 0
	// In a what-if about pods on their nodes they are those of the question before.
	if pods := body["pods"].([]any); len(pods) > 0 {
		c.pods = pods
	}
	for _, object := range c.pods {
		pod := object.(map[string]any)
		uid := pod["metadata"].(map[string]any)["uid"].(string)
		claims := pod["spec"].(map[string]any)["resourceClaims"]
		member := map[string]any{"code": "allocated", "message": "no device is free"}
		for _, node := range slices.Sorted(maps.Keys(free)) {
			nodes, _ := excluded[uid].([]any)
			if pin, ok := pinned[uid]; (ok && pin != node) || slices.Contains(nodes, any(node)) || (claims != nil && free[node] == 0) {
				continue
			}
			if claims != nil {
				free[node]--
			}
			member = map[string]any{"node": node}
			placed++
			break
		}
		members[uid] = member
	}
	there, _ := body["placed"].([]any)
	if needed := int(body["group"].(map[string]any)["minCount"].(float64)); placed+len(there) < needed {
		message := fmt.Sprintf("%d of %d pods fit", placed, needed)
		return sidecartest.Reply{Body: map[string]any{"verdict": "unschedulable", "message": message}}
	}
	return sidecartest.Reply{Body: map[string]any{"verdict": "fits", "members": members}}
}

// create makes a PodGroup of pods, of which those named otherwise than launcher have a claim each.
func (c *cluster) create(group string, minCount int32, priority int32, pods ...string) {
	c.Helper()
	policy := schedulingapi.PodGroupSchedulingPolicy{Gang: &schedulingapi.GangSchedulingPolicy{MinCount: minCount}}
	_, err := c.client.SchedulingV1beta1().PodGroups("ns").Create(c.Context(), &schedulingapi.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: group, UID: types.UID("uid-" + group)},
		Spec:       schedulingapi.PodGroupSpec{SchedulingPolicy: policy, Priority: &priority},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, name := range pods {
		pod := devicePod(name)
		if strings.HasPrefix(name, "launcher") {
			pod = plainPod(name)
		}
		pod.Spec.SchedulerName = "drawbridge-scheduler"
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		pod.Spec.Priority = &priority
		c.createPod(pod)
	}
}

// createPod makes a pod, and before it the claim that it names.
func (c *cluster) createPod(pod *v1.Pod) {
	c.Helper()
	for _, name := range claimNames(pod) {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
		if _, err := c.client.ResourceV1().ResourceClaims("ns").Create(c.Context(), claim, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
	if _, err := c.client.CoreV1().Pods("ns").Create(c.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// nodes returns where pods are bound.
func (c *cluster) nodes() map[string]string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return maps.Clone(c.bound)
}

// eventually waits until something is so.
func (c *cluster) eventually(what string, holds func() bool) {
	c.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	c.Fatalf("never so: %s; bound are %v", what, c.nodes())
}

func (c *cluster) condition(pod string) string {
	object, err := c.client.CoreV1().Pods("ns").Get(c.Context(), pod, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}

func TestAGroupIsDecidedOnceAndItsPodsAreReservedOnce(t *testing.T) {
	c := newCluster(t, map[string]int{"a": 1, "b": 2})
	c.start()

	c.create("job", 4, 0, "launcher", "w1", "w2", "w3")

	c.eventually("all are bound", func() bool { return len(c.nodes()) == 4 })
	nodes := c.nodes()
	delete(nodes, "launcher")
	if counts := counts(nodes); counts["a"] != 1 || counts["b"] != 2 {
		t.Errorf("bound to %v", nodes)
	}
	for point, want := range map[string]int{"group": 1, "prefilter": 0, "filter": 0, "prebind": 4, "unreserve": 0} {
		if calls := len(c.sidecar.Requests(point)); calls != want {
			t.Errorf("%d calls of %s, want %d", calls, point, want)
		}
	}
	// The scheduler reserves each of them twice; under a second number a first one would be given up.
	for _, request := range c.sidecar.Requests("prebind") {
		if given := request.Body["unreserved"]; given != nil {
			t.Errorf("gave up %v", given)
		}
		reservations, _ := request.Body["reservations"].([]any)
		for _, reservation := range reservations {
			if number := reservation.(map[string]any)["number"].(float64); number > 4 {
				t.Errorf("a reservation has the number %g", number)
			}
			if group := reservation.(map[string]any)["group"].(map[string]any); group["uid"] != "uid-job" {
				t.Errorf("a reservation is of group %v", group)
			}
		}
	}
}

func counts(nodes map[string]string) map[string]int {
	counted := map[string]int{}
	for _, node := range nodes {
		counted[node]++
	}
	return counted
}

func TestAGroupWaitsWholeAndSaysHowManyFit(t *testing.T) {
	c := newCluster(t, map[string]int{"a": 1, "b": 2})
	c.start()

	c.create("job", 4, 0, "w1", "w2", "w3", "w4")

	c.eventually("the first pod says why", func() bool {
		return slices.ContainsFunc([]string{"w1", "w2", "w3", "w4"}, func(pod string) bool {
			return strings.Contains(c.condition(pod), "3 of 4 pods fit")
		})
	})
	if nodes := c.nodes(); len(nodes) > 0 {
		t.Errorf("bound %v", nodes)
	}
	c.eventually("the group says why", func() bool {
		group, err := c.client.SchedulingV1beta1().PodGroups("ns").Get(t.Context(), "job", metav1.GetOptions{})
		return err == nil && len(group.Status.Conditions) == 1 && strings.Contains(group.Status.Conditions[0].Message, "3 of 4 pods fit")
	})

	c.mutex.Lock()
	c.free["a"] = 2
	c.mutex.Unlock()
	c.eventually("all are bound", func() bool { return len(c.nodes()) == 4 })
}

// picky turns down a node.
type picky struct{ node string }

func (p *picky) Name() string { return "picky" }
func (p *picky) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if node.Node().Name == p.node {
		return fwk.NewStatus(fwk.Unschedulable, "picky")
	}
	return nil
}

func TestAGroupGetsAnotherPlacementWhenOtherFiltersTurnANodeDown(t *testing.T) {
	c := newCluster(t, map[string]int{"a": 2, "b": 2})
	c.start(frameworkruntime.Registry{"picky": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &picky{node: "a"}, nil
	}})

	c.create("job", 2, 0, "w1", "w2")

	c.eventually("all are bound", func() bool { return len(c.nodes()) == 2 })
	if counts := counts(c.nodes()); counts["b"] != 2 {
		t.Errorf("bound to %v", c.nodes())
	}
	if groups, postfilters := len(c.sidecar.Requests("group")), len(c.sidecar.Requests("postfilter")); groups != 2 || postfilters > 0 {
		t.Errorf("%d calls of group, %d of postfilter", groups, postfilters)
	}
}

// victim runs on a node and has a device of it.
func (c *cluster) victim(name, node string, priority int32) {
	c.Helper()
	pod := devicePod(name)
	pod.Spec.SchedulerName, pod.Spec.NodeName, pod.Spec.Priority = "drawbridge-scheduler", node, &priority
	c.createPod(pod)
	c.owner[name] = node
}

func TestAGroupEvictsThePodsThatItNeedsAndNoOther(t *testing.T) {
	c := newCluster(t, map[string]int{"a": 1, "b": 0, "c": 0})
	for _, node := range []string{"b", "c"} {
		c.victim("low-"+node, node, 1)
		c.victim("lower-"+node, node, 0)
		c.victim("high-"+node, node, 9)
	}
	c.start()

	c.create("job", 3, 5, "w1", "w2", "w3")

	evicted := func() []string {
		pods, err := c.client.CoreV1().Pods("ns").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gone := map[string]bool{"low-b": true, "low-c": true, "lower-b": true, "lower-c": true, "high-b": true, "high-c": true}
		for _, pod := range pods.Items {
			delete(gone, pod.Name)
		}
		return slices.Sorted(maps.Keys(gone))
	}
	// On b, the first node by name, where the what-if places two members.
	want := []string{"low-b", "lower-b"}
	c.eventually("two are evicted", func() bool { return slices.Equal(evicted(), want) })
	whatIfs := map[bool]int{}
	for _, request := range c.sidecar.Requests("group") {
		body := request.Body
		if body["whatIf"] != true {
			continue
		}
		whatIfs[body["pinned"] != nil]++
		if body["headroom"] != nil || body["reservations"] != nil {
			t.Errorf("a what-if carries %v and %v", body["headroom"], body["reservations"])
		}
	}
	// Victims are put back one after the other; those of the same set cost one call for all members.
	if whatIfs[false] != 1 || whatIfs[true] != 4 {
		t.Errorf("%d what-ifs and %d of them pinned", whatIfs[false], whatIfs[true])
	}
	if nodes := c.nodes(); len(nodes) > 0 {
		t.Errorf("bound %v", nodes)
	}
}
