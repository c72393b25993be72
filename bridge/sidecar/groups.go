package sidecar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GroupPolicy is the schedulingPolicy of a PodGroup.
type GroupPolicy string

// The policies.
const (
	Gang  GroupPolicy = "gang"
	Basic GroupPolicy = "basic"
)

// GroupReference is a PodGroup.
type GroupReference struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// MinCount is how many pods it needs, those that have a node among them; 1 with Basic.
	MinCount int32       `json:"minCount"`
	Policy   GroupPolicy `json:"policy"`
	Priority int32       `json:"priority"`
	// Created is the PodGroup's creationTimestamp, as RFC 3339 has it.
	Created string `json:"created,omitempty"`
}

// PlacedMember is a pod of a group that is bound, or assumed to be, on a node.
type PlacedMember struct {
	PodUID types.UID `json:"podUID"`
	Node   string    `json:"node"`
}

// GroupRequest asks where the pods of a group fit together.
type GroupRequest struct {
	Header
	Group *GroupReference `json:"group"`
	// Pods are all without a node; they are sent as far as the sidecar reads them.
	Pods []*v1.Pod `json:"pods"`
	// Placed are the others.
	Placed []PlacedMember `json:"placed,omitempty"`
	// Requests, ClaimVersions and NewestClaimVersion are as in PreFilterRequest, for all pods.
	Requests           map[types.UID]*PodRequests `json:"requests,omitempty"`
	ClaimVersions      map[string]string          `json:"claimVersions,omitempty"`
	NewestClaimVersion string                     `json:"newestClaimVersion,omitempty"`
	// Headroom is how the nodes changed; Client fills it in, but not in a what-if.
	Headroom *Headroom `json:"headroom,omitempty"`
	// WhatIf is set where preemption asks what would be without the pods that are Removed.
	WhatIf  bool        `json:"whatIf,omitempty"`
	Removed []types.UID `json:"removed,omitempty"`
	// Pinned has the only nodes that members may get; only in a what-if.
	Pinned map[types.UID]string `json:"pinned,omitempty"`
	// Excluded has the nodes that other filters turned down for a member.
	Excluded map[types.UID][]string `json:"excluded,omitempty"`
	// Topology is a label of nodes of which all pods need one value; empty for none.
	Topology string `json:"topology,omitempty"`
}

// Member is the place of one pod of a group: a node, or the reason why it has none.
type Member struct {
	Node    string `json:"node"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// GroupAnswer says where the pods of a group fit.
type GroupAnswer struct {
	Answer
	Verdict Verdict              `json:"verdict"`
	Code    string               `json:"code"`
	Members map[types.UID]Member `json:"members"`
	// Unfinished and Headroom are as in PreFilterAnswer.
	Unfinished bool  `json:"unfinished"`
	Headroom   int64 `json:"headroom"`
}

// Group asks where the pods of a group fit together, and says what changed on the nodes.
func (c *Client) Group(ctx context.Context, request *GroupRequest) (*GroupAnswer, error) {
	sent, answer := *request, &GroupAnswer{}
	sent.Pods = projectAll(request.Pods)
	return answer, c.callInCycle(ctx, "group", &sent, answer)
}

// PreBindMember is PreBind for a member of a group, which waits for the other members, for minutes where one of them
// waits for its volumes. It asks again and again, so that it has a connection for a part of that time only.
func (c *Client) PreBindMember(ctx context.Context, request *PodRequest) (*VerdictAnswer, error) {
	request.isMember = true
	ctx, cancel := context.WithTimeout(ctx, c.config.BindTimeout+c.config.MemberWait)
	defer cancel()
	for {
		answer := &VerdictAnswer{}
		if err := c.call(ctx, preBind, request, answer); err != nil || answer.Verdict != Wait {
			return answer, err
		}
		pause := time.Duration(max(0, answer.RetryMillis)) * time.Millisecond
		select {
		case <-ctx.Done():
			return answer, fmt.Errorf("%s: %w", preBind, ctx.Err())
		case <-time.After(pause/2 + rand.N(pause/2+1)): // Members that came together ask one after the other.
		}
	}
}

// ReserveMember takes note of a reservation for a member of a group; no call. A reservation of the same
// node that is parked goes on under its number.
func (c *Client) ReserveMember(pod *v1.Pod, node string, group *GroupReference) {
	c.reservations.addMember(pod, node, group)
}

// Park keeps a member's reservation in force after the scheduler gave it up: at the end of a group's cycle
// it reverts all reservations, and makes them a second time if the group fits.
func (c *Client) Park(pod types.UID) { c.reservations.park(pod) }

// EndParking gives up what is parked; no call.
func (c *Client) EndParking() { c.reservations.endParking() }
