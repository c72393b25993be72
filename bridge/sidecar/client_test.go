package sidecar_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drawbridge.internal/bridge/sidecar"
	"drawbridge.internal/bridge/sidecartest"
)

// patience is beyond what any call takes here, unless the sidecar hangs on purpose.
const patience = 30 * time.Second

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
}

func newClient(server *sidecartest.Sidecar, timeout time.Duration) *sidecar.Client {
	return sidecar.NewClient(sidecar.Config{
		Socket:      server.Socket,
		CallTimeout: timeout,
		BindTimeout: patience,
		Heartbeat:   time.Millisecond,
	}, "me")
}

func greeted(t *testing.T, server *sidecartest.Sidecar) *sidecar.Client {
	t.Helper()
	client := newClient(server, patience)
	if state := client.Greet(t.Context()); !state.Ready {
		t.Fatalf("the sidecar is not ready: %s", state.Message)
	}
	return client
}

// numbers are those of the reservations that a request carried.
func numbers(request sidecartest.Request) []float64 {
	var carried []float64
	reservations, _ := request.Body["reservations"].([]any)
	for _, reservation := range reservations {
		carried = append(carried, reservation.(map[string]any)["number"].(float64))
	}
	return carried
}

func last(t *testing.T, server *sidecartest.Sidecar, point string) sidecartest.Request {
	t.Helper()
	requests := server.Requests(point)
	if len(requests) == 0 {
		t.Fatalf("no request arrived at %s", point)
	}
	return requests[len(requests)-1]
}

func ask(t *testing.T, client *sidecar.Client) error {
	t.Helper()
	_, err := client.PreFilter(t.Context(), &sidecar.PreFilterRequest{Pod: pod("asker")})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReservationIsCarriedUntilAnAnswerAcknowledgesIt(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	silent := sidecartest.Reply{Body: map[string]any{"verdict": "skip", "acknowledged": 0}}
	server.Say("prefilter", silent, sidecartest.Reply{})
	client.Reserve(pod("a"), "node-1")
	must(t, ask(t, client))
	client.Reserve(pod("b"), "node-2")

	must(t, ask(t, client))
	if got := numbers(last(t, server, "prefilter")); !reflect.DeepEqual(got, []float64{1, 2}) {
		t.Errorf("carried %v, want both", got)
	}

	must(t, ask(t, client))
	if got := numbers(last(t, server, "prefilter")); got != nil {
		t.Errorf("carried %v after both were acknowledged", got)
	}
}

func TestWhatIsGivenUpIsCarriedUntilARequestSucceeds(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	client.Reserve(pod("a"), "node-1")
	must(t, ask(t, client))
	server.Say("unreserve", sidecartest.Reply{Status: http.StatusInternalServerError})
	if err := client.Unreserve(t.Context(), &sidecar.PodRequest{PodUID: "a"}); err == nil {
		t.Error("the failure is not reported")
	}
	if got := last(t, server, "unreserve").Body["number"]; got != 1.0 {
		t.Errorf("number %v, want that of the reservation", got)
	}

	must(t, ask(t, client))
	if got := last(t, server, "prefilter").Body["unreserved"]; !reflect.DeepEqual(got, []any{1.0}) {
		t.Errorf("carried %v, want the number that is given up", got)
	}

	must(t, ask(t, client))
	if got := last(t, server, "prefilter").Body["unreserved"]; got != nil {
		t.Errorf("carried %v after an answer", got)
	}
}

func TestAReservationThatIsParkedStaysInForceUntilParkingEnds(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	job := &sidecar.GroupReference{UID: "job", MinCount: 2, Policy: sidecar.Gang}
	client.ReserveMember(pod("a"), "n", job)
	client.ReserveMember(pod("b"), "n", job)
	client.Park("a")
	client.Park("b")
	client.Park("unknown")
	client.ReserveMember(pod("a"), "n", job)

	server.Restart("second")
	client.Greet(t.Context())
	if got := numbers(last(t, server, "hello")); !reflect.DeepEqual(got, []float64{1, 2}) {
		t.Errorf("in force %v", got)
	}
	client.EndParking()
	server.Restart("third")
	client.Greet(t.Context())
	hello := last(t, server, "hello")
	if got := numbers(hello); !reflect.DeepEqual(got, []float64{1}) {
		t.Errorf("in force %v after the end of parking", got)
	}
	if given := hello.Body["unreserved"]; !reflect.DeepEqual(given, []any{2.0}) {
		t.Errorf("gave up %v", given)
	}
}

func TestAReservationIsMadeAnewForAnotherNodeOrGroup(t *testing.T) {
	job, other := &sidecar.GroupReference{UID: "job"}, &sidecar.GroupReference{UID: "other"}
	for name, again := range map[string]func(*sidecar.Client){
		"another node":  func(client *sidecar.Client) { client.ReserveMember(pod("a"), "m", job) },
		"another group": func(client *sidecar.Client) { client.ReserveMember(pod("a"), "n", other) },
		"no group":      func(client *sidecar.Client) { client.Reserve(pod("a"), "n") },
	} {
		t.Run(name, func(t *testing.T) {
			server := sidecartest.Start(t)
			client := greeted(t, server)
			client.ReserveMember(pod("a"), "n", job)
			client.Park("a")

			again(client)
			client.EndParking()

			client.Greet(t.Context())
			hello := last(t, server, "hello")
			if got := numbers(hello); !reflect.DeepEqual(got, []float64{2}) {
				t.Errorf("in force %v", got)
			}
			if given := hello.Body["unreserved"]; !reflect.DeepEqual(given, []any{1.0}) {
				t.Errorf("gave up %v", given)
			}
		})
	}
}

func TestARestartedSidecarIsToldEverythingInForceBeforeItAnswers(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	client.Reserve(pod("a"), "node-1")
	client.Reserve(pod("b"), "node-1")
	client.Reserve(pod("c"), "node-1")
	must(t, ask(t, client))
	client.Settle("a")
	client.Drop("b")
	server.Restart("second")

	must(t, ask(t, client))

	if got := numbers(last(t, server, "hello")); !reflect.DeepEqual(got, []float64{3}) {
		t.Errorf("hello carried %v, want what is in force", got)
	}
	request := last(t, server, "prefilter")
	if request.Body["instance"] != "second" {
		t.Errorf("the call was repeated to %v", request.Body["instance"])
	}
}

func TestAnAnswerOfASidecarThatIsGoneAcknowledgesNothing(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	held := make(chan struct{})
	late := sidecartest.Reply{Wait: held, Body: map[string]any{"instance": "first", "acknowledged": 1}}
	server.Say("filter", late)
	client.Reserve(pod("a"), "node-1")
	done := make(chan error)
	go func() {
		_, err := client.Filter(context.Background(), &sidecar.FilterRequest{})
		done <- err
	}()
	for len(server.Requests("filter")) == 0 {
		time.Sleep(time.Millisecond)
	}
	server.Restart("second")
	server.Say("prefilter", sidecartest.Reply{Body: map[string]any{"acknowledged": 0}})
	server.Say("hello", sidecartest.Reply{Body: map[string]any{"acknowledged": 0}})
	must(t, ask(t, client))
	close(held)
	must(t, <-done)

	must(t, ask(t, client))

	if got := numbers(last(t, server, "prefilter")); !reflect.DeepEqual(got, []float64{1}) {
		t.Errorf("carried %v, want what the new one has not acknowledged", got)
	}
}

func TestASidecarThatHangsCostsOneTimeoutUntilItAnswersAGreeting(t *testing.T) {
	server := sidecartest.Start(t)
	client := newClient(server, 2*time.Second)
	must(t, client.WaitReady(t.Context()))
	woken := 0
	client.OnRecovery(func() { woken++ })
	hang := sidecartest.Reply{Wait: make(chan struct{})}
	server.Say("prefilter", hang)
	server.Say("hello", hang)

	for range 3 {
		if err := ask(t, client); !errors.Is(err, sidecar.ErrUnavailable) {
			t.Errorf("got %v, want that the sidecar is not available", err)
		}
	}
	if got := len(server.Requests("prefilter")); got != 1 {
		t.Errorf("%d calls went to a sidecar that hangs, want 1", got)
	}
	if state := client.Greet(t.Context()); state.Ready || !state.Leads {
		t.Errorf("greeted a hanging sidecar: %+v", state)
	}

	server.Say("prefilter", sidecartest.Reply{})
	server.Say("hello", sidecartest.Reply{})
	must(t, client.WaitReady(t.Context()))
	must(t, ask(t, client))
	if woken != 1 {
		t.Errorf("woken %d times, want once", woken)
	}
}

func TestEachCallSaysHowLongItWaits(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	must(t, ask(t, client))
	// Any call may be the first to carry a reservation, whose devices are chosen within its time.
	_, err := client.PreBind(t.Context(), &sidecar.PodRequest{PodUID: "a"})
	must(t, err)

	for _, point := range []string{"hello", "prefilter", "prebind"} {
		millis, _ := last(t, server, point).Body["deadlineMillis"].(float64)
		if millis <= 0 || millis > float64(patience.Milliseconds()) {
			t.Errorf("%s waits for %v ms, want at most %d", point, millis, patience.Milliseconds())
		}
	}
}

func TestACallThatWaitsForOthersSaysNothingAboutTheSidecar(t *testing.T) {
	cases := map[string]func(*sidecar.Client) error{
		"wake": func(client *sidecar.Client) error {
			_, err := client.Wake(context.Background(), &sidecar.WakeRequest{})
			return err
		},
		"postfilter": func(client *sidecar.Client) error {
			_, err := client.PostFilter(context.Background(), &sidecar.PodRequest{PodUID: "a"})
			return err
		},
		"unreserve": func(client *sidecar.Client) error {
			return client.Unreserve(context.Background(), &sidecar.PodRequest{PodUID: "a"})
		},
	}
	for point, call := range cases {
		t.Run(point, func(t *testing.T) {
			server := sidecartest.Start(t)
			server.Say(point, sidecartest.Reply{Wait: make(chan struct{})})
			client := newClient(server, 200*time.Millisecond)
			if state := client.Greet(t.Context()); !state.Ready {
				t.Fatal(state.Message)
			}

			err := call(client)

			if err == nil || errors.Is(err, sidecar.ErrUnavailable) {
				t.Errorf("got %v, want the error of this call", err)
			}
			must(t, ask(t, client))
		})
	}
}

func TestACallThatTheSchedulerCancelsSaysNothingAboutTheSidecar(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server.Say("filter", sidecartest.Reply{Body: map[string]any{"fits": true}})

	answer, err := client.Filter(ctx, &sidecar.FilterRequest{})

	must(t, err)
	if !answer.Fits {
		t.Error("the call was not made to its end")
	}
	if _, err := client.PreBind(ctx, &sidecar.PodRequest{}); err == nil {
		t.Error("PreBind goes on although the scheduler gave up")
	}
	must(t, ask(t, client))
}

func TestTheTroubleOfOnePodLeavesOthersAlone(t *testing.T) {
	cases := map[string]sidecartest.Reply{
		"a malformed request":       {Status: http.StatusBadRequest, Body: map[string]any{"message": "no pod"}},
		"a fault in the sidecar":    {Status: http.StatusInternalServerError, Text: "500 Internal Server Error"},
		"an answer beyond bounds":   {Text: `{"message": "` + strings.Repeat("x", 9<<20) + `"}`},
		"an answer that is no JSON": {Text: "fits"},
	}
	for name, reply := range cases {
		t.Run(name, func(t *testing.T) {
			server := sidecartest.Start(t)
			client := greeted(t, server)
			server.Say("prefilter", reply, sidecartest.Reply{})

			err := ask(t, client)

			if err == nil || errors.Is(err, sidecar.ErrUnavailable) {
				t.Errorf("got %v, want an error of this call", err)
			}
			must(t, ask(t, client))
		})
	}
}

func TestASidecarThatIsNotReadyIsNotAskedUntilItIs(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	busy := map[string]any{"message": "it has not seen the cluster"}
	server.Say("prefilter", sidecartest.Reply{Status: http.StatusServiceUnavailable, Body: busy}, sidecartest.Reply{})

	err := ask(t, client)
	if !errors.Is(err, sidecar.ErrUnavailable) || !strings.Contains(err.Error(), "has not seen the cluster") {
		t.Errorf("got %v, want the sidecar's reason", err)
	}
	if err := ask(t, client); !errors.Is(err, sidecar.ErrUnavailable) {
		t.Errorf("got %v, want no call", err)
	}
	must(t, client.WaitReady(t.Context()))
	must(t, ask(t, client))
}

func TestWhileOtherCallsAreBlockedNothingIsTriedAgain(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	woken := 0
	client.OnRecovery(func() { woken++ })
	blocked := sidecartest.Reply{Body: map[string]any{"ready": true, "leads": true, "blocked": "gates differ"}}
	server.Say("hello", blocked, blocked, sidecartest.Reply{})

	for range 2 {
		if state := client.Greet(t.Context()); !state.Ready || !state.Leads {
			t.Errorf("got %+v, want a sidecar that the scheduler keeps", state)
		}
		if err := ask(t, client); !errors.Is(err, sidecar.ErrUnavailable) || !strings.Contains(err.Error(), "gates differ") {
			t.Errorf("got %v, want the reason, without a call", err)
		}
	}
	if woken != 0 || len(server.Requests("prefilter")) != 0 {
		t.Errorf("pods were tried again %d times", woken)
	}
	client.Greet(t.Context())
	must(t, ask(t, client))
	if woken != 1 {
		t.Errorf("pods were tried again %d times, want once", woken)
	}
}

func TestTheClientStopsFollowingASidecarThatDoesNotLead(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	other := map[string]any{"ready": false, "leads": false, "message": "another one leads"}
	server.Say("hello", sidecartest.Reply{}, sidecartest.Reply{Body: other})

	state := client.Follow(t.Context(), patience)

	if state.Ready || state.Leads || state.Message != "another one leads" {
		t.Errorf("stopped with %+v", state)
	}
}

func TestTheClientStopsFollowingASidecarThatIsLostForLong(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	server.Say("hello", sidecartest.Reply{Body: map[string]any{"ready": false, "leads": true}})

	if state := client.Follow(t.Context(), 20*time.Millisecond); state.Ready || !state.Leads {
		t.Errorf("stopped with %+v", state)
	}
}

func TestManyGoroutinesShareAClient(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	server.Say("prebind", sidecartest.Reply{Body: map[string]any{"verdict": "ok"}})
	errs := make(chan error)
	const pods = 200
	for number := range pods {
		go func() {
			bound := pod(strings.Repeat("p", number+1))
			client.Reserve(bound, "node-1")
			_, err := client.PreBind(context.Background(), &sidecar.PodRequest{PodUID: bound.UID})
			client.Settle(bound.UID)
			errs <- err
		}()
	}
	for range pods {
		must(t, <-errs)
	}
	must(t, ask(t, client))
	if got := numbers(last(t, server, "prefilter")); got != nil {
		t.Errorf("%d reservations are left", len(got))
	}
}

func TestPodsAreTriedAgainWhenTheSidecarSaysSoAndWhenItIsAnother(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	woken := 0
	client.OnWakeup(func() { woken++ })
	greet := func(wakeups, want int) {
		t.Helper()
		server.Say("hello", sidecartest.Reply{Body: map[string]any{"leads": true, "ready": true, "wakeups": wakeups}})
		client.Greet(t.Context())
		if woken != want {
			t.Errorf("after wakeups %d: woken %d times, want %d", wakeups, woken, want)
		}
	}

	greet(0, 0)
	greet(3, 1)
	greet(3, 1)
	server.Restart("second")
	greet(3, 2)
	greet(3, 2)
}
