package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.internal/bridge/sidecar"
)

// waker has pods tried again that the sidecar could place now.
//
// An event that frees devices wakes no pod by itself: with hundreds that wait, each would cost a call
// and all but a few would be turned away again. The sidecar names those that fit, with what each of
// them takes. It is asked after such an event, once for all that came meanwhile, and on a timer: what
// the scheduler sees as no release at all, such as a relist that hides one, the sidecar sees as a change.
type waker struct {
	client  *sidecar.Client
	handle  fwk.Handle
	newest  func() string // Version of the newest claim that an event was about.
	pods    cache.Indexer
	pending chan struct{}
}

func newWaker(client *sidecar.Client, handle fwk.Handle, claims *claims) *waker {
	return &waker{
		client:  client,
		handle:  handle,
		newest:  claims.newestVersion,
		pods:    claims.pods,
		pending: make(chan struct{}, 1),
	}
}

// soon has the sidecar asked soon; it never waits.
func (w *waker) soon() {
	select {
	case w.pending <- struct{}{}:
	default: // It will be asked anyway.
	}
}

// run asks until the context ends.
func (w *waker) run(ctx context.Context, interval time.Duration) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.pending:
		case <-timer.C:
		}
		answer := w.wake(ctx)
		for answer.More {
			answer = w.wake(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(millis(answer.RestMillis)): // What happens meanwhile is planned together.
		}
		next := interval
		if answer.NextMillis > 0 {
			next = min(next, millis(answer.NextMillis))
		}
		timer.Reset(next)
	}
}

func millis(number int64) time.Duration { return time.Duration(number) * time.Millisecond }

// wake asks once, and has the pods of the answer tried again.
func (w *waker) wake(ctx context.Context) *sidecar.WakeAnswer {
	answer, err := w.client.Wake(ctx, &sidecar.WakeRequest{NewestClaimVersion: w.newest()})
	if err != nil {
		// When the sidecar is usable again, the timer asks.
		klog.FromContext(ctx).V(2).Info("No pods are woken", "err", err)
		return &sidecar.WakeAnswer{}
	}
	pods := map[string]*v1.Pod{}
	for _, name := range answer.Pods {
		if object, exists, err := w.pods.GetByKey(name); err == nil && exists {
			if pod, ok := object.(*v1.Pod); ok {
				pods[name] = pod
			}
		}
	}
	if len(pods) > 0 {
		w.handle.Activate(klog.FromContext(ctx), pods)
	}
	return answer
}
