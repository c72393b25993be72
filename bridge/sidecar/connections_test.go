package sidecar_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"drawbridge.internal/bridge/sidecar"
	"drawbridge.internal/bridge/sidecartest"
)

// A connection is for PreBind alone. Of any answer: a body that is not read to its end would cost the connection.
func TestCallsOneAfterTheOtherShareAConnection(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	server.Say("prefilter",
		sidecartest.Reply{},
		sidecartest.Reply{Status: http.StatusBadRequest, Body: map[string]any{"message": "no pod"}},
		sidecartest.Reply{Status: http.StatusInternalServerError, Text: "500 Internal Server Error"},
		sidecartest.Reply{Text: "fits"},
		sidecartest.Reply{})

	for range 100 {
		_ = ask(t, client)
		client.Greet(t.Context())
		if _, err := client.PreBind(t.Context(), &sidecar.PodRequest{}); err != nil {
			t.Fatal(err)
		}
	}

	if got := server.Connections(); got != 2 {
		t.Errorf("%d connections for 301 calls, want 2", got)
	}
}

// Drivers that make their devices ready late would end the scheduler.
func TestBindingsThatWaitHoldUpNoOtherCall(t *testing.T) {
	server := sidecartest.Start(t)
	server.Say("prebind", sidecartest.Reply{Wait: make(chan struct{})})
	client := greeted(t, server)
	client.LimitBindings(2)
	ctx, cancel := context.WithCancel(t.Context())
	var bindings sync.WaitGroup
	for range 3 {
		bindings.Go(func() { _, _ = client.PreBind(ctx, &sidecar.PodRequest{}) })
	}
	defer bindings.Wait()
	defer cancel()
	for len(server.Requests("prebind")) < 2 {
		time.Sleep(time.Millisecond)
	}

	must(t, ask(t, client))
	if state := client.Greet(t.Context()); !state.Ready {
		t.Errorf("the sidecar does not answer a greeting: %s", state.Message)
	}
}

// A group waits for minutes for a member whose volumes are not bound yet.
func TestMembersThatWaitForTheirGroupHoldUpNoOtherPod(t *testing.T) {
	server := sidecartest.Start(t)
	server.Decide("prebind", func(body map[string]any) sidecartest.Reply {
		if body["podUID"] == "single" {
			return sidecartest.Reply{}
		}
		return sidecartest.Reply{Wait: make(chan struct{})}
	})
	client := greeted(t, server)
	client.LimitBindings(2)
	ctx, cancel := context.WithCancel(t.Context())
	var members sync.WaitGroup
	for range 3 {
		members.Go(func() { _, _ = client.PreBindMember(ctx, &sidecar.PodRequest{PodUID: "member"}) })
	}
	defer members.Wait()
	defer cancel()
	for len(server.Requests("prebind")) < 2 {
		time.Sleep(time.Millisecond)
	}

	_, err := client.PreBind(t.Context(), &sidecar.PodRequest{PodUID: "single"})

	must(t, err)
}
