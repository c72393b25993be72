// Package sidecar is the scheduler's side of the protocol in docs/bridge.md: calls over a unix
// socket, reservations that are sent until they are acknowledged, and a circuit breaker.
package sidecar

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Verdict says what the plugin does with a pod.
type Verdict string

// The verdicts; sidecar/model/protocol.py says what each means.
const (
	Skip          Verdict = "skip"
	Fits          Verdict = "fits"
	Unschedulable Verdict = "unschedulable"
	Unresolvable  Verdict = "unresolvable"
	Error         Verdict = "error"
	OK            Verdict = "ok"
	Continue      Verdict = "continue"
	Wait          Verdict = "wait"
	Released      Verdict = "released"
	Retry         Verdict = "retry"
)

// Reservation is a node that the scheduler reserved for a pod.
type Reservation struct {
	Number       int64     `json:"number"`
	PodUID       types.UID `json:"podUID"`
	PodNamespace string    `json:"podNamespace"`
	PodName      string    `json:"podName"`
	Node         string    `json:"node"`
	// Group is the PodGroup in whose cycle the pod was reserved; nil for a pod by itself.
	Group *GroupReference `json:"group,omitempty"`
}

// Header is what every request carries; Client fills it in.
type Header struct {
	Scheduler    string        `json:"scheduler"`
	Instance     string        `json:"instance"`
	Reservations []Reservation `json:"reservations,omitempty"`
	Unreserved   []int64       `json:"unreserved,omitempty"`
	// DeadlineMillis is how long the call waits for its answer: a decision ends with it.
	DeadlineMillis int64 `json:"deadlineMillis,omitempty"`
}

// Answer is what every answer carries, also those with status 409 and 503.
type Answer struct {
	Instance     string `json:"instance"`
	Acknowledged int64  `json:"acknowledged"`
	Message      string `json:"message"`
}

type request interface{ header() *Header }

type answer interface{ base() *Answer }

func (h *Header) header() *Header { return h }

func (a *Answer) base() *Answer { return a }

type helloRequest struct {
	Header
	// UsualPods is as in PreFilterRequest.
	UsualPods *int64 `json:"usualPods,omitempty"`
}

type helloAnswer struct {
	Answer
	// Leads is whether the sidecar holds the Lease.
	Leads bool `json:"leads"`
	// Ready is whether it leads and has seen the cluster.
	Ready bool `json:"ready"`
	// Wakeups grows when other drivers are served, or devices in use were counted anew.
	Wakeups int64 `json:"wakeups"`
	// Drivers are those whose devices are given. Devices of others neither help a pod nor hinder it.
	Drivers []string `json:"drivers"`
	// UsualPods is how they changed on the nodes; nil where pods without claims are not scored.
	UsualPods *UsualPods `json:"usualPods"`
	// Blocked is why every other call would get status 503 although the sidecar is ready; empty if none would.
	Blocked string `json:"blocked"`
}

// PreFilterRequest asks where a pod fits.
type PreFilterRequest struct {
	Header
	// Pod is sent as far as the sidecar reads it.
	Pod *v1.Pod `json:"pod"`
	// ClaimVersions has the resourceVersion of each of the pod's claims in the scheduler's cache.
	ClaimVersions map[string]string `json:"claimVersions,omitempty"`
	// NewestClaimVersion is the newest of all claims' events that could have woken the pod.
	NewestClaimVersion string `json:"newestClaimVersion,omitempty"`
	// All is set when none of the best nodes passed the other filters.
	All bool `json:"all,omitempty"`
	// Headroom is how the nodes changed; Client fills it in.
	Headroom *Headroom `json:"headroom,omitempty"`
	// Requests is what NodeResourcesFit will compare with the nodes; nil where it is not known, or no
	// such comparison is made. Then what the nodes have left does not count for the pod.
	Requests *PodRequests `json:"requests,omitempty"`
	// UsualPods is the number of the last UsualPods that arrived, 0 without any; Client fills it in.
	UsualPods *int64 `json:"usualPods,omitempty"`
}

// PodRequests is what a pod requests of its node.
type PodRequests struct {
	CPUMilli int64 `json:"cpuMilli"`
	// Memory is in bytes.
	Memory int64 `json:"memory"`
}

// ScoredNode is a node that fits, with its score from 0 to 100.
type ScoredNode struct {
	Name  string `json:"name"`
	Score int64  `json:"score"`
}

// PreFilterAnswer says where a pod fits.
type PreFilterAnswer struct {
	Answer
	Verdict  Verdict      `json:"verdict"`
	Code     string       `json:"code"`
	Nodes    []ScoredNode `json:"nodes"`
	Complete *bool        `json:"complete"`
	// Unfinished is set when there is no answer yet: wake names the pod when it is to be tried again.
	Unfinished bool `json:"unfinished"`
	// Headroom is the number of the last Headroom that the sidecar has.
	Headroom int64 `json:"headroom"`
	// UsualPods is as in the answer to hello.
	UsualPods *UsualPods `json:"usualPods"`
}

// IsComplete reports whether no further node fits; an answer that does not say has all.
func (a *PreFilterAnswer) IsComplete() bool { return a.Complete == nil || *a.Complete }

// FilterRequest asks whether a pod fits on one node with other pods than there are.
type FilterRequest struct {
	Header
	PodUID  types.UID   `json:"podUID"`
	Node    string      `json:"node"`
	Removed []types.UID `json:"removed,omitempty"`
	Added   []types.UID `json:"added,omitempty"`
}

// FilterAnswer says whether it does.
type FilterAnswer struct {
	Answer
	Fits bool `json:"fits"`
	// Unresolvable is set when no victim on the node could help.
	Unresolvable bool   `json:"unresolvable"`
	Code         string `json:"code"`
}

// PodRequest names a pod, and for PreBind and Unreserve its node. For PostFilter it may name a group instead.
type PodRequest struct {
	Header
	PodUID       types.UID `json:"podUID"`
	PodNamespace string    `json:"podNamespace"`
	PodName      string    `json:"podName"`
	Node         string    `json:"node,omitempty"`
	// Group is for PostFilter only.
	Group *GroupReference `json:"group,omitempty"`
	// Number is that of the reservation that Unreserve gives up.
	Number int64 `json:"number,omitempty"`
	// isMember is set where PreBind waits for the other pods of a group.
	isMember bool
}

// VerdictAnswer is the answer to PreBind and PostFilter.
type VerdictAnswer struct {
	Answer
	Verdict Verdict `json:"verdict"`
	Code    string  `json:"code"`
	// RetryMillis is the time after which to ask again, with Wait in PreBind.
	RetryMillis int64 `json:"retryMillis"`
}

// WakeRequest asks which pods that were turned away could be placed now.
type WakeRequest struct {
	Header
	// NewestClaimVersion is as in PreFilterRequest.
	NewestClaimVersion string `json:"newestClaimVersion,omitempty"`
}

// WakeAnswer names pods to try again, as `namespace/name`.
type WakeAnswer struct {
	Answer
	Pods []string `json:"pods"`
	// More is set when there are more, for which to ask again at once.
	More bool `json:"more"`
	// RestMillis is otherwise the time after which to ask again at the earliest, whatever happens.
	RestMillis int64 `json:"restMillis"`
	// NextMillis is otherwise the time after which to ask again at the latest; 0 if it does not matter.
	NextMillis int64 `json:"nextMillis"`
}
