package sidecar_test

import (
	"context"
	"errors"
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
		if body["podUID"] == "waits" {
			return sidecartest.Reply{Body: map[string]any{"verdict": "wait", "retryMillis": 100}}
		}
		return sidecartest.Reply{Body: map[string]any{"verdict": "ok"}}
	})
	client := greeted(t, server)
	client.LimitBindings(2)
	ctx, cancel := context.WithCancel(t.Context())
	var members sync.WaitGroup
	for range 50 {
		members.Go(func() {
			if _, err := client.PreBindMember(ctx, &sidecar.PodRequest{PodUID: "waits"}); !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	defer members.Wait()
	defer cancel()
	for len(server.Requests("prebind")) < 50 {
		time.Sleep(time.Millisecond)
	}

	for name, bind := range map[string]func(context.Context, *sidecar.PodRequest) (*sidecar.VerdictAnswer, error){
		"a pod by itself": client.PreBind, "a member of another group": client.PreBindMember,
	} {
		answer, err := bind(t.Context(), &sidecar.PodRequest{PodUID: "other"})
		if err != nil || answer.Verdict != sidecar.OK {
			t.Errorf("%s: %v, %v", name, answer, err)
		}
	}
}

func TestAMemberAsksAgainAfterThePauseThatTheSidecarNames(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	wait := sidecartest.Reply{Body: map[string]any{"verdict": "wait", "retryMillis": 200}}
	server.Say("prebind", wait, wait, sidecartest.Reply{Body: map[string]any{"verdict": "unschedulable", "message": "gone"}})
	began := time.Now()

	answer, err := client.PreBindMember(t.Context(), &sidecar.PodRequest{PodUID: "member"})

	must(t, err)
	if answer.Verdict != sidecar.Unschedulable || answer.Message != "gone" {
		t.Errorf("answered %v", answer)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("asked three times in %s", took)
	}
}

func TestAMemberAsksNoLongerThanTheGroupMayTake(t *testing.T) {
	server := sidecartest.Start(t)
	server.Say("prebind", sidecartest.Reply{})
	client := sidecar.NewClient(sidecar.Config{
		Socket: server.Socket, CallTimeout: patience, BindTimeout: 100 * time.Millisecond, MemberWait: 200 * time.Millisecond,
		Heartbeat: patience,
	}, "me")
	client.Greet(t.Context())
	server.Say("prebind", sidecartest.Reply{Body: map[string]any{"verdict": "wait", "retryMillis": 60_000}})

	_, err := client.PreBindMember(t.Context(), &sidecar.PodRequest{PodUID: "member"})

	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	must(t, ask(t, client))
}
