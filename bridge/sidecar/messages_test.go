package sidecar_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drawbridge.internal/bridge/sidecar"
)

var update = flag.Bool("update", false, "write testdata/requests.json anew")

// requests have every field that the plugin can send. tests/sidecar/test_plugin_messages.py reads them as the
// sidecar does.
func requests() map[string]any {
	group := &sidecar.GroupReference{
		UID: "uid-job", Namespace: "ns", Name: "job", MinCount: 2, Policy: sidecar.Gang, Priority: 5,
		Created: "2027-01-15T08:00:00Z",
	}
	header := sidecar.Header{
		Scheduler: "me", Instance: "first", Unreserved: []int64{3}, DeadlineMillis: 3000,
		Reservations: []sidecar.Reservation{
			{Number: 4, PodUID: "uid-a", PodNamespace: "ns", PodName: "a", Node: "n", Group: group},
		},
	}
	headroom := &sidecar.Headroom{
		Number: 2, Since: 1, Removed: []string{"gone"},
		Nodes: []sidecar.NodeHeadroom{{Name: "n", CPUMilli: 1500, Memory: 1 << 30, Pods: 7}},
	}
	amounts := &sidecar.PodRequests{CPUMilli: 500, Memory: 1 << 20}
	versions := map[string]string{"ns/a-gpu": "7"}
	return map[string]any{
		"prefilter": &sidecar.PreFilterRequest{
			Header: header, Pod: pod("a"), ClaimVersions: versions, NewestClaimVersion: "9", All: true,
			Headroom: headroom, Requests: amounts,
		},
		"filter": &sidecar.FilterRequest{
			Header: header, PodUID: "uid-a", Node: "n", Removed: []types.UID{"uid-b"}, Added: []types.UID{"uid-c"},
		},
		"group": &sidecar.GroupRequest{
			Header: header, Group: group, Pods: []*v1.Pod{pod("a")},
			Placed:        []sidecar.PlacedMember{{PodUID: "uid-b", Node: "n"}},
			Requests:      map[types.UID]*sidecar.PodRequests{"a": amounts},
			ClaimVersions: versions, NewestClaimVersion: "9", Headroom: headroom,
			Excluded: map[types.UID][]string{"a": {"n"}}, Topology: "example.com/rack",
		},
		"group, in a what-if": &sidecar.GroupRequest{
			Header: header, Group: group, Pods: []*v1.Pod{pod("a")}, WhatIf: true,
			Removed: []types.UID{"uid-c"}, Pinned: map[types.UID]string{"a": "n"},
		},
		"prebind":               &sidecar.PodRequest{Header: header, PodUID: "uid-a", PodNamespace: "ns", PodName: "a", Node: "n"},
		"unreserve":             &sidecar.PodRequest{Header: header, PodUID: "uid-a", PodNamespace: "ns", PodName: "a", Node: "n", Number: 4},
		"postfilter":            &sidecar.PodRequest{Header: header, PodUID: "uid-a", PodNamespace: "ns", PodName: "a"},
		"postfilter, a group's": &sidecar.PodRequest{Header: header, PodNamespace: "ns", Group: group},
		"wake":                  &sidecar.WakeRequest{Header: header, NewestClaimVersion: "9"},
	}
}

func TestRequestsAreThoseThatTheSidecarIsTestedWith(t *testing.T) {
	const file = "testdata/requests.json"
	made, err := json.MarshalIndent(requests(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	made = append(made, '\n')
	if *update {
		if err := os.WriteFile(file, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, stored) {
		t.Errorf("%s differs; write it anew with `go test ./sidecar -update`", file)
	}
}
