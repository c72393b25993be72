package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	maxAnswer = 8 << 20
	maxWords  = 256
	// Below the 75 s after which the sidecar closes an idle connection: a request that meets the
	// closing of its connection fails.
	idleTimeout = 30 * time.Second
	// Bursts of bindings open many connections at once; what the listener's backlog does not hold is
	// refused with "resource temporarily unavailable".
	maxConnections     = 1024
	maxIdleConnections = 64
	// A member of a group that waits for the others has a connection for two seconds at a time, and those of one
	// namespace have 512 at a time (sidecar/writes/group_waits.py). As many as the listener's backlog holds.
	maxWaitingConnections = 4096
	// Between two greetings while the process waits for its sidecar to lead, which is part of a failover.
	greetingPause = 250 * time.Millisecond

	preBind = "prebind"
)

// ErrUnavailable is what calls fail with at once while the sidecar is not usable.
var ErrUnavailable = errors.New("the allocator is not available")

// Config says how a sidecar is reached. Durations are above 0.
type Config struct {
	Socket string
	// CallTimeout is what a call of the scheduler's serial cycle may take.
	CallTimeout time.Duration
	// BindTimeout is what PreBind may take; it waits for binding conditions of devices.
	BindTimeout time.Duration
	// MemberWait is how much longer PreBind of a group's member may take; it waits for the other members.
	MemberWait time.Duration
	// Heartbeat is the time between two greetings.
	Heartbeat time.Duration
}

// Client speaks to one sidecar. It is safe for use by many goroutines.
type Client struct {
	config       Config
	scheduler    string
	http         *http.Client
	binding      *http.Client // For PreBind, which may wait minutes: it holds up no other call.
	waiting      *http.Client // For PreBind of groups' members, likewise: it holds up no other pod.
	reservations *reservations
	headroom     *headroom
	usualPods    usualPods
	greeting     sync.Mutex // Held while a hello is under way.

	mutex    sync.Mutex
	instance string
	reason   string              // Why the sidecar is not usable; empty when it is.
	times    int                 // How often it became usable.
	wakeups  int64               // Of its last answer to hello.
	drivers  map[string]struct{} // Likewise.
	wake     []func()
	retry    []func()
}

// NewClient returns a client that regards the sidecar as unusable until Greet finds it ready.
//
// scheduler is text that no other scheduler process has.
func NewClient(config Config, scheduler string) *Client {
	return &Client{
		config:       config,
		scheduler:    scheduler,
		http:         &http.Client{Transport: newTransport(config.Socket, maxConnections)},
		binding:      &http.Client{Transport: newTransport(config.Socket, maxConnections)},
		waiting:      &http.Client{Transport: newTransport(config.Socket, maxWaitingConnections)},
		reservations: newReservations(),
		headroom:     newHeadroom(),
		reason:       "not greeted yet",
	}
}

func newTransport(socket string, connections int) *http.Transport {
	dialer := net.Dialer{}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: maxIdleConnections,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
}

// OnRecovery has a function called each time that the sidecar becomes usable.
func (c *Client) OnRecovery(call func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.wake = append(c.wake, call)
}

// OnWakeup has a function called when pods that were turned away should be tried again although no
// event of the cluster says so: devices that were held back are free, or other drivers are served.
func (c *Client) OnWakeup(call func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.retry = append(c.retry, call)
}

// Reserve takes note of a reservation; no call.
func (c *Client) Reserve(pod *v1.Pod, node string) { c.reservations.add(pod, node, nil) }

// Settle forgets the reservation of a pod that is bound; no call.
func (c *Client) Settle(pod types.UID) { c.reservations.settle(pod) }

// Drop gives up a reservation of which nothing was written; no call.
func (c *Client) Drop(pod types.UID) { c.reservations.drop(pod) }

// Observe takes note of what the nodes of the scheduler's snapshot have left; no call.
func (c *Client) Observe(nodes []fwk.NodeInfo) { c.headroom.observe(nodes) }

// Costs returns what a pod without devices costs each of the nodes, as the usual pods value them; no call.
//
// It returns nil where that is not known, or out of date: the sidecar is not usable, is another one, or has more to say.
func (c *Client) Costs(nodes []fwk.NodeInfo, pod PodRequests) []int64 {
	c.mutex.Lock()
	instance, isUsable := c.instance, c.reason == ""
	c.mutex.Unlock()
	if !isUsable {
		return nil
	}
	return c.usualPods.costsOf(instance, nodes, pod)
}

// PreFilter asks where a pod fits, and says what changed on the nodes.
func (c *Client) PreFilter(ctx context.Context, request *PreFilterRequest) (*PreFilterAnswer, error) {
	sent, answer := *request, &PreFilterAnswer{}
	sent.Pod = project(request.Pod)
	return answer, c.callInCycle(ctx, "prefilter", &sent, answer)
}

// Filter asks whether a pod fits on one node.
func (c *Client) Filter(ctx context.Context, request *FilterRequest) (*FilterAnswer, error) {
	answer := &FilterAnswer{}
	return answer, c.callInCycle(ctx, "filter", request, answer)
}

// PostFilter asks what can be done for a pod that fits nowhere.
func (c *Client) PostFilter(ctx context.Context, request *PodRequest) (*VerdictAnswer, error) {
	answer := &VerdictAnswer{}
	return answer, c.callInCycle(ctx, "postfilter", request, answer)
}

// wakeTimeout is what Wake may take, in times of CallTimeout: no pod waits for it, and an answer that
// nobody hears leaves its pods asleep.
const wakeTimeout = 10

// Wake asks which pods could be placed now.
func (c *Client) Wake(ctx context.Context, request *WakeRequest) (*WakeAnswer, error) {
	answer := &WakeAnswer{}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout*c.config.CallTimeout)
	defer cancel()
	return answer, c.call(ctx, "wake", request, answer)
}

// PreBind has the allocations of a reserved pod written.
func (c *Client) PreBind(ctx context.Context, request *PodRequest) (*VerdictAnswer, error) {
	answer := &VerdictAnswer{}
	ctx, cancel := context.WithTimeout(ctx, c.config.BindTimeout)
	defer cancel()
	return answer, c.call(ctx, preBind, request, answer)
}

// Unreserve gives up a reservation and takes back what PreBind wrote for it. When the call fails,
// later requests carry the number of the reservation.
func (c *Client) Unreserve(ctx context.Context, request *PodRequest) error {
	request.Number = c.reservations.drop(request.PodUID)
	return c.callInCycle(ctx, "unreserve", request, &VerdictAnswer{})
}

// waitsForOthers are the calls whose timeout says nothing about the sidecar: it waits in them for drivers,
// for the API server, or with a plan for its turn. When unreserve or postfilter are not waited for any
// longer, the sidecar releases the claims nevertheless.
var waitsForOthers = map[string]bool{preBind: true, "unreserve": true, "postfilter": true, "wake": true}

// callInCycle makes a call that the scheduler's serial cycle waits for.
//
// The call outlives its context: the scheduler cancels Filter once it has enough nodes, and a
// cancelled request would cost its connection and look like a sidecar that does not answer.
func (c *Client) callInCycle(ctx context.Context, point string, request request, answer answer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.CallTimeout)
	defer cancel()
	return c.call(ctx, point, request, answer)
}

// call makes a call, after a greeting where the sidecar does not know us.
func (c *Client) call(ctx context.Context, point string, request request, answer answer) error {
	header := request.header()
	times, err := c.address(request)
	if err != nil {
		return err
	}
	status, err := c.post(ctx, point, request, answer)
	if err == nil && status == http.StatusConflict {
		// Another process than the one that we greeted: it may miss reservations, so it did nothing.
		if err := c.greetAgain(ctx, header.Instance); err != nil {
			return err
		}
		if times, err = c.address(request); err != nil {
			return err
		}
		status, err = c.post(ctx, point, request, answer)
	}
	switch {
	case err != nil && ctx.Err() != nil && waitsForOthers[point]:
		return fmt.Errorf("%s: %w", point, err)
	case err != nil:
		c.lose(times, fmt.Sprintf("it does not answer: %v", err))
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, point, err)
	case status == http.StatusServiceUnavailable:
		c.lose(times, answer.base().Message)
		return fmt.Errorf("%w: %s", ErrUnavailable, answer.base().Message)
	case status != http.StatusOK:
		// One pod's trouble, such as a request that is malformed: others go on.
		return fmt.Errorf("%s: the allocator answered %d: %s", point, status, answer.base().Message)
	}
	c.reservations.answered(answer.base().Instance, answer.base().Acknowledged, header.Unreserved)
	switch asked := request.(type) {
	case *PreFilterRequest:
		told := answer.(*PreFilterAnswer)
		c.headroom.answered(told.Instance, told.Headroom, asked.Headroom.Since)
		c.usualPods.take(told.Instance, told.UsualPods)
	case *GroupRequest:
		if told := answer.(*GroupAnswer); !asked.WhatIf {
			c.headroom.answered(told.Instance, told.Headroom, asked.Headroom.Since)
		}
	}
	return nil
}

// address fills in what depends on the sidecar that is called, or returns why it is not usable.
func (c *Client) address(request request) (times int, err error) {
	header := request.header()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.reason != "" {
		return 0, fmt.Errorf("%w: %s", ErrUnavailable, c.reason)
	}
	header.Scheduler, header.Instance = c.scheduler, c.instance
	c.reservations.fill(header, false)
	switch asking := request.(type) {
	case *PreFilterRequest:
		asking.Headroom = c.headroom.fill(c.instance)
		asking.UsualPods = c.usualPods.known(c.instance)
	case *GroupRequest:
		if !asking.WhatIf {
			asking.Headroom = c.headroom.fill(c.instance)
		}
	}
	return c.times, nil
}

// post makes one request and returns the status of its answer.
func (c *Client) post(ctx context.Context, point string, request request, answer answer) (int, error) {
	if deadline, ok := ctx.Deadline(); ok {
		request.header().DeadlineMillis = max(1, time.Until(deadline).Milliseconds())
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // It would write some characters as six.
	if err := encoder.Encode(request); err != nil {
		return 0, err
	}
	posted, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sidecar/v1/"+point, bytes.NewReader(body.Bytes()))
	if err != nil {
		return 0, err
	}
	posted.Header.Set("Content-Type", "application/json")
	// Every call may arrive twice, so net/http may repeat one whose connection was closed while idle.
	// Present without values, the header is not sent.
	posted.Header["Idempotency-Key"] = nil
	response, err := c.clientFor(point, request).Do(posted)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, err
	}
	*answer.base() = Answer{} // This may be a second answer.
	if len(text) > maxAnswer {
		answer.base().Message = fmt.Sprintf("more than %d bytes", maxAnswer)
		return http.StatusInternalServerError, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		// An error of the HTTP server itself is text for people.
		answer.base().Message = strings.ToValidUTF8(string(text[:min(len(text), maxWords)]), "")
		return max(response.StatusCode, http.StatusInternalServerError), nil
	}
	return response.StatusCode, nil
}

// clientFor returns the connections for a call.
func (c *Client) clientFor(point string, request request) *http.Client {
	if point != preBind {
		return c.http
	}
	if bound, ok := request.(*PodRequest); ok && bound.isMember {
		return c.waiting
	}
	return c.binding
}

// State is what a greeting found.
type State struct {
	Ready bool
	// Leads is false only where the sidecar said so itself.
	Leads   bool
	Message string
}

// Greet says hello with all that is in force, and decides by the answer whether the sidecar is usable.
func (c *Client) Greet(ctx context.Context) State {
	c.greeting.Lock()
	defer c.greeting.Unlock()
	return c.greet(ctx)
}

// greetAgain greets a sidecar that did not know us, once for all calls that met it.
func (c *Client) greetAgain(ctx context.Context, known string) error {
	c.greeting.Lock()
	defer c.greeting.Unlock()
	c.mutex.Lock()
	done := c.instance != known && c.reason == ""
	c.mutex.Unlock()
	if done {
		return nil
	}
	if state := c.greet(ctx); !state.Ready {
		return fmt.Errorf("%w: %s", ErrUnavailable, state.Message)
	}
	return nil
}

func (c *Client) greet(ctx context.Context) State {
	ctx, cancel := context.WithTimeout(ctx, c.config.CallTimeout)
	defer cancel()
	hello := &helloRequest{}
	c.mutex.Lock()
	hello.Scheduler, hello.Instance = c.scheduler, c.instance
	hello.UsualPods = c.usualPods.known(c.instance)
	times := c.times
	c.mutex.Unlock()
	c.reservations.fill(&hello.Header, true)
	answer := &helloAnswer{}
	status, err := c.post(ctx, "hello", hello, answer)
	switch {
	case err != nil:
		return c.lose(times, fmt.Sprintf("it does not answer: %v", err))
	case status == http.StatusOK && answer.Ready:
		c.reservations.greeted(answer.Instance)
		c.reservations.answered(answer.Instance, answer.Acknowledged, hello.Unreserved)
		c.usualPods.take(answer.Instance, answer.UsualPods)
		if answer.Blocked != "" {
			c.lose(times, answer.Blocked)
		} else {
			c.recover(answer)
		}
		return State{Ready: true, Leads: true}
	case status == http.StatusOK:
		state := c.lose(times, answer.Message)
		state.Leads = answer.Leads
		return state
	default:
		return c.lose(times, fmt.Sprintf("it answered %d: %s", status, answer.Message))
	}
}

// lose takes the sidecar for unusable: calls fail at once until a greeting succeeds. The failure of
// a call that began before the last recovery says nothing about now.
func (c *Client) lose(times int, reason string) State {
	if reason == "" {
		reason = "it is not ready"
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if times == c.times {
		if c.reason == "" {
			klog.Background().Info("The sidecar is not usable", "reason", reason)
		}
		c.reason = reason
	}
	return State{Leads: true, Message: reason}
}

// recover takes the sidecar for usable.
func (c *Client) recover(answer *helloAnswer) {
	instance, wakeups := answer.Instance, answer.Wakeups
	drivers := make(map[string]struct{}, len(answer.Drivers))
	for _, driver := range answer.Drivers {
		drivers[driver] = struct{}{}
	}
	c.mutex.Lock()
	c.drivers = drivers
	var wake []func()
	if wakeups != c.wakeups || (c.instance != "" && instance != c.instance) {
		wake = append(wake, c.retry...)
	}
	c.instance, c.wakeups = instance, wakeups
	recovered := c.reason != ""
	if recovered {
		c.reason = ""
		c.times++
		wake = append(wake, c.wake...)
	}
	c.mutex.Unlock()
	if recovered {
		klog.Background().Info("The sidecar is usable", "instance", instance)
	}
	for _, call := range wake {
		call()
	}
}

// Gives reports whether the sidecar gives devices of a driver, as it said last.
func (c *Client) Gives(driver string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, given := c.drivers[driver]
	return given
}

// Follow greets until the context ends, and returns when the sidecar said that another one leads, or
// was not usable for as long as given.
func (c *Client) Follow(ctx context.Context, patience time.Duration) State {
	ticker := time.NewTicker(c.config.Heartbeat)
	defer ticker.Stop()
	usable := time.Now()
	for {
		select {
		case <-ctx.Done():
			return State{Ready: true, Leads: true}
		case <-ticker.C:
		}
		state := c.Greet(ctx)
		if state.Ready {
			usable = time.Now()
		} else if !state.Leads || time.Since(usable) >= patience {
			return state
		}
	}
}

// WaitReady greets until the sidecar is usable.
func (c *Client) WaitReady(ctx context.Context) error {
	said := ""
	for {
		state := c.Greet(ctx)
		if state.Ready {
			return nil
		}
		if state.Message != said {
			klog.FromContext(ctx).Info("Waiting for the sidecar", "reason", state.Message)
			said = state.Message
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(c.config.Heartbeat, greetingPause)):
		}
	}
}
