package plugin

import (
	"context"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.internal/bridge/sidecartest"
)

// claim is allocated where a device is given.
func claim(name, version string, devices ...string) *resourceapi.ResourceClaim {
	made := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version,
	}}
	for _, device := range devices {
		if made.Status.Allocation == nil {
			made.Status.Allocation = &resourceapi.AllocationResult{}
		}
		results := &made.Status.Allocation.Devices.Results
		*results = append(*results, resourceapi.DeviceRequestAllocationResult{Device: device})
	}
	return made
}

func changed(base *resourceapi.ResourceClaim, change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	change(base)
	return base
}

// consumed is a claim with a device and so many pods, and further consumers.
func consumed(name, version string, pods int, further ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	made := claim(name, version, "gpu-0")
	for number := range pods {
		made.Status.ReservedFor = append(made.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", UID: types.UID(strconv.Itoa(number)),
		})
	}
	made.Status.ReservedFor = append(made.Status.ReservedFor, further...)
	return made
}

func TestWhichClaimEventsWakeAPod(t *testing.T) {
	own, other := "p-gpu", "other"
	cases := map[string]struct {
		before, after any
		want          fwk.QueueingHint
		asks          bool // Whether the sidecar is asked which pods it helps.
	}{
		"its claim was made":                 {nil, claim(own, "1"), fwk.Queue, false},
		"its claim was allocated":            {claim(own, "1"), claim(own, "2", "gpu-0"), fwk.Queue, false},
		"another claim was made":             {nil, claim(other, "1"), fwk.QueueSkip, false},
		"another claim was allocated":        {claim(other, "1"), claim(other, "2", "gpu-0"), fwk.QueueSkip, false},
		"another claim was released":         {claim(other, "1", "gpu-0"), claim(other, "2"), fwk.QueueSkip, true},
		"an allocated claim was deleted":     {claim(other, "1", "gpu-0"), nil, fwk.QueueSkip, true},
		"a claim without devices is deleted": {claim(other, "1"), nil, fwk.QueueSkip, false},
		"a deletion was missed":              {cache.DeletedFinalStateUnknown{}, nil, fwk.QueueSkip, true},
		"released and allocated again": {
			claim(other, "1", "gpu-0"), claim(other, "2", "gpu-1"), fwk.QueueSkip, true,
		},
		// One update after a relist.
		"allocated and released unseen": {claim(other, "1"), claim(other, "3"), fwk.QueueSkip, true},
		"nothing changed":               {claim(other, "1"), claim(other, "1"), fwk.QueueSkip, false},
		"the finalizer of a binding": {
			claim(own, "1"),
			changed(claim(own, "2"), func(c *resourceapi.ResourceClaim) { c.Finalizers = []string{"f"} }),
			fwk.QueueSkip, false,
		},
		"its claim was released": {claim(own, "1", "gpu-0"), claim(own, "2"), fwk.Queue, true},
		"its claim is being deleted": {
			claim(own, "1"),
			changed(claim(own, "2"), func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{} }),
			fwk.Queue, false,
		},
		"its claim has one more pod": {consumed(own, "1", 7), consumed(own, "2", 8), fwk.QueueSkip, false},
		"its claim is full now":      {consumed(own, "1", 255), consumed(own, "2", 256), fwk.QueueSkip, false},
		"its claim is not full now":  {consumed(own, "1", 256), consumed(own, "2", 255), fwk.QueueSkip, true},
		"its claim has one pod less": {consumed(own, "1", 8), consumed(own, "2", 7), fwk.QueueSkip, true},
		"its claim has one pod left": {consumed(own, "1", 2), consumed(own, "2", 1), fwk.Queue, true},
		"its claim has no pod left":  {consumed(own, "1", 1), consumed(own, "2", 0), fwk.Queue, true},
		"the finalizer of a full claim": {
			consumed(own, "1", 256),
			changed(consumed(own, "2", 256), func(c *resourceapi.ResourceClaim) { c.Finalizers = []string{"f"} }),
			fwk.QueueSkip, false,
		},
		"its claim has a PodGroup": {
			consumed(own, "1", 3),
			consumed(own, "2", 3, resourceapi.ResourceClaimConsumerReference{Resource: "podgroups", UID: "g"}),
			fwk.Queue, false,
		},
		"other devices and more pods": {
			claim(own, "1", "gpu-1"), consumed(own, "2", 2), fwk.Queue, true,
		},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if err := s.plugin.claims.pods.Add(devicePod("p")); err != nil {
				t.Fatal(err)
			}
			narrowed, err := s.plugin.podsOfClaim(klog.Background(), row.before, row.after)
			if err != nil || narrowed.AllPods || s.asks() != row.asks {
				t.Errorf("all pods: %t, %v", narrowed.AllPods, err)
			}
			if row.want == fwk.Queue && len(narrowed.Pods) != 1 {
				t.Errorf("got %v, want its pod", narrowed.Pods)
			}
			hint, err := s.plugin.afterClaim(klog.Background(), devicePod("p"), row.before, row.after)
			if err != nil || hint != row.want {
				t.Errorf("got %s, %v, want %s", hint, err, row.want)
			}
		})
	}
}

func TestAClaimEventIsNarrowedToThePodsThatNameIt(t *testing.T) {
	s := newStory(t)
	for _, pod := range []*v1.Pod{devicePod("p"), devicePod("q"), plainPod("r")} {
		if err := s.plugin.claims.pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	narrowed, err := s.plugin.podsOfClaim(klog.Background(), nil, claim("q-gpu", "1"))
	if err != nil || len(narrowed.Pods) != 1 || narrowed.Pods[0].Name != "q" {
		t.Errorf("got %v, %v", narrowed.Pods, err)
	}
}

// The scheduler's watch can be ahead of the sidecar's.
func TestARequestTellsHowFarTheSchedulerHasSeen(t *testing.T) {
	s := newStory(t)
	s.fits(true, "n")
	s.handle.claims.claims["ns/p-gpu"] = claim("p-gpu", "41")
	for _, version := range []string{"97", "105", "99", "not a number"} {
		if _, err := s.plugin.podsOfClaim(klog.Background(), nil, claim("other", version)); err != nil {
			t.Fatal(err)
		}
	}
	s.begin(devicePod("p"))

	body := s.sidecar.Requests("prefilter")[0].Body
	if got := body["claimVersions"].(map[string]any)["ns/p-gpu"]; got != "41" {
		t.Errorf("its claim: version %v", got)
	}
	if got := body["newestClaimVersion"]; got != "105" {
		t.Errorf("any claim: version %v, want the newest", got)
	}
}

// A placement that fails before it is bound frees reserved devices, and changes no claim.
func TestAForgottenPlacementHasTheSidecarAsked(t *testing.T) {
	ending := devicePod("p")
	ending.DeletionTimestamp = &metav1.Time{}
	cases := map[string]struct {
		gone any
		asks bool
	}{
		"a placement was given up":     {devicePod("p"), true},
		"one of a pod without devices": {plainPod("p"), false},
		"a pod was deleted":            {ending, false},
		"a deletion was missed":        {cache.DeletedFinalStateUnknown{}, true},
	}
	for name, row := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if narrowed, err := s.plugin.afterForgottenPod(klog.Background(), row.gone, nil); err != nil || narrowed.AllPods {
				t.Errorf("got %v, %v", narrowed, err)
			}
			if s.asks() != row.asks {
				t.Errorf("the sidecar is asked: %t", !row.asks)
			}
		})
	}
}

// asks reports whether the sidecar is to be asked soon which pods to wake.
func (s *story) asks() bool { return len(s.plugin.waker.pending) > 0 }

func TestTheSidecarSaysWhichPodsAreTriedAgain(t *testing.T) {
	s := newStory(t)
	for _, name := range []string{"p", "q", "r"} {
		if err := s.plugin.claims.pods.Add(devicePod(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.plugin.podsOfClaim(klog.Background(), claim("other", "6", "gpu-0"), claim("other", "7")); err != nil {
		t.Fatal(err)
	}
	s.sidecar.Say("wake", sidecartest.Reply{Body: map[string]any{"pods": []string{"ns/q", "ns/gone"}, "more": true}})

	if answer := s.plugin.waker.wake(t.Context()); !answer.More {
		t.Error("there are more pods, and they are not asked for")
	}
	if got := s.handle.activated; len(got) != 1 || got[0] != "q" {
		t.Errorf("activated: %v", got)
	}
	if got := s.sidecar.Requests("wake")[0].Body["newestClaimVersion"]; got != "7" {
		t.Errorf("the sidecar is to wait for version %v, want that of the release", got)
	}
}

func TestTheSidecarIsAskedAgainWhenItSays(t *testing.T) {
	s := newStory(t)
	s.sidecar.Say("wake", sidecartest.Reply{Body: map[string]any{"nextMillis": 1}}, sidecartest.Reply{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.plugin.waker.run(ctx, time.Hour)
		close(ended)
	}()

	s.plugin.waker.soon()

	for s.calls("wake") < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

func TestNoPodIsWokenWhileTheSidecarIsNotUsable(t *testing.T) {
	s := newStory(t)
	s.sidecar.Say("wake", sidecartest.Reply{Status: 503})

	if answer := s.plugin.waker.wake(t.Context()); answer.More || len(s.handle.activated) > 0 {
		t.Errorf("activated: %v", s.handle.activated)
	}
}
