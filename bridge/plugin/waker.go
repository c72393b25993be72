package plugin

import (
	"context"
	"sync"
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

	mutex sync.Mutex
	tried map[string]*v1.Pod // Pods to try again, whatever the sidecar says.
}

func newWaker(client *sidecar.Client, handle fwk.Handle, claims *claims) *waker {
	return &waker{
		client:  client,
		handle:  handle,
		newest:  claims.newestVersion,
		pods:    claims.pods,
		pending: make(chan struct{}, 1),
		tried:   map[string]*v1.Pod{},
	}
}

// again has pods tried again with the next look. Those of a group cannot be activated while it is tried: the
// scheduler forgets that, and lets a group wait for its backoff.
//
// Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/backend/queue/scheduling_queue.go,
// AddAttemptedPodGroupIfNeeded.
func (w *waker) again(pods []*v1.Pod) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, pod := range pods {
		w.tried[pod.Namespace+"/"+pod.Name] = pod
	}
}

// takeTried returns the pods of again, once.
func (w *waker) takeTried() map[string]*v1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	pods := w.tried
	w.tried = map[string]*v1.Pod{}
	return pods
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
	pods := w.takeTried()
	defer func() {
		if len(pods) > 0 {
			w.handle.Activate(klog.FromContext(ctx), pods)
		}
	}()
	answer, err := w.client.Wake(ctx, &sidecar.WakeRequest{NewestClaimVersion: w.newest()})
	if err != nil {
		// When the sidecar is usable again, the timer asks.
		klog.FromContext(ctx).V(2).Info("No pods are woken", "err", err)
		return &sidecar.WakeAnswer{}
	}
	for _, name := range answer.Pods {
		if object, exists, err := w.pods.GetByKey(name); err == nil && exists {
			if pod, ok := object.(*v1.Pod); ok {
				pods[name] = pod
			}
		}
	}
	return answer
}
