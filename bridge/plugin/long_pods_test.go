package plugin

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// maxRequest is MAX_REQUEST_BYTES of sidecar/answers/server.py.
const maxRequest = 32 << 20

// A pod has 1.5 MB in etcd, and JSON may write a character as six. What is sent is written in the scheduler's serial cycle.
func TestAQuestionIsNotLongerForVariablesOfContainers(t *testing.T) {
	var members []*v1.Pod
	for number := range 60 {
		pod := devicePod(fmt.Sprintf("w%d", number))
		variables := []v1.EnvVar{{Name: "A", Value: strings.Repeat("<", 1_100_000)}}
		pod.Spec.Containers = []v1.Container{{Name: "c", Env: variables}}
		members = append(members, pod)
	}
	s := newGroupStory(t, 60, members...)
	s.says("unschedulable", "full", nil)
	s.verdict("prefilter", "unschedulable", "full")

	_, _, status := s.attempt(s.members[0])
	s.wants(status, fwk.Unschedulable, "full")
	_, status = s.story.begin(members[0])
	s.wants(status, fwk.Unschedulable, "full")

	if length := s.sidecar.Requests("group")[0].Bytes; length > 60_000 {
		t.Errorf("%d bytes about 60 pods", length)
	}
	if length := s.sidecar.Requests("prefilter")[0].Bytes; length > 1_000 {
		t.Errorf("%d bytes about a pod", length)
	}
}

// Half a million entries would be read on the sidecar's event loop.
func TestAGroupWhosePodsAreTooLongIsRejectedWithoutACall(t *testing.T) {
	s := newGroupStory(t, maxMembers-1, longPods(maxMembers-1, 1000)...)

	_, _, status := s.attempt(s.members[0])

	s.wants(status, fwk.UnschedulableAndUnresolvable, "the pods of the group are too long to be placed together")
	s.wants(s.postFilterGroup(), fwk.UnschedulableAndUnresolvable, "too long")
	if s.calls("group") > 0 {
		t.Error("the sidecar was asked")
	}
}

func TestPodsThatAreNotTooLongMakeARequestThatTheSidecarReads(t *testing.T) {
	s := newGroupStory(t, maxMembers-1, longPods(maxMembers-1, 500)...)
	s.says("unschedulable", "full", nil)

	_, _, status := s.attempt(s.members[0])

	s.wants(status, fwk.Unschedulable, "full")
	if length := s.sidecar.Requests("group")[0].Bytes; length > maxRequest {
		t.Errorf("%d bytes", length)
	}
}

func TestAGroupThatNeedsNoDevicesMayHaveLongPods(t *testing.T) {
	pods := longPods(maxMembers-1, 0)
	for _, pod := range pods {
		pod.Spec.NodeSelector = map[string]string{"example.com/long": strings.Repeat("a", 10_000)}
	}
	s := newGroupStory(t, maxMembers-1, pods...)

	_, _, status := s.attempt(s.members[0])

	s.wants(status, fwk.Skip, "")
}

func longPods(count, claims int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for number := range pods {
		pod := plainPod(fmt.Sprintf("w%d", number))
		pod.UID = types.UID(pod.Name)
		for entry := range claims {
			name := fmt.Sprintf("s%d", entry)
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		}
		pods[number] = pod
	}
	return pods
}
