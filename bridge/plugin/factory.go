package plugin

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"drawbridge.internal/bridge/sidecar"
)

// Factory makes the plugin of each profile. They share a client, since reservations are numbered per
// process, and so they need the same settings.
type Factory struct {
	mutex    sync.Mutex
	err      error
	settings *Settings
	client   *sidecar.Client
	waker    *waker
}

// NewFactory returns a factory without a client.
func NewFactory() *Factory {
	return &Factory{}
}

// Err returns the last error of New.
func (f *Factory) Err() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.err
}

// New returns the plugin of a profile once the sidecar is ready: the scheduler starts when its sidecar
// leads.
func (f *Factory) New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	plugin, err := f.plugin(ctx, args, handle)
	f.err = err
	if err != nil {
		return nil, err
	}
	return plugin, nil
}

func (f *Factory) plugin(ctx context.Context, args runtime.Object, handle fwk.Handle) (*Drawbridge, error) {
	settings, err := readSettings(args)
	if err != nil {
		return nil, err
	}
	if f.client == nil {
		client := sidecar.NewClient(settings.client(), rand.Text())
		if err := client.WaitReady(ctx); err != nil {
			return nil, fmt.Errorf("waiting for the sidecar: %w", err)
		}
		f.client, f.settings = client, settings
		go end(ctx, client, settings.ExitAfter.Duration)
	}
	if err := settings.requireEqual(f.settings, handle.ProfileName()); err != nil {
		return nil, err
	}
	plugin, err := newDrawbridge(f.client, handle)
	if err != nil {
		return nil, err
	}
	// One for all profiles: they share a queue, too.
	if f.waker == nil {
		f.waker = newWaker(f.client, handle, &plugin.claims)
		go f.waker.run(ctx, settings.Heartbeat.Duration)
	}
	plugin.waker = f.waker
	return plugin, nil
}

// end ends the process when the sidecar does not lead any more, as a kube-scheduler does that lost
// its Lease: another replica's scheduler has started, or will.
func end(ctx context.Context, client *sidecar.Client, patience time.Duration) {
	if state := client.Follow(ctx, patience); !state.Ready {
		klog.FromContext(ctx).Error(nil, "The sidecar is lost; the scheduler ends", "reason", state.Message)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func newDrawbridge(client *sidecar.Client, handle fwk.Handle) (*Drawbridge, error) {
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	index := "drawbridgePodsByClaim-" + handle.ProfileName()
	if err := pods.AddIndexers(cache.Indexers{index: claimKeys}); err != nil {
		return nil, fmt.Errorf("indexing pods by claim: %w", err)
	}
	plugin := &Drawbridge{
		client:              client,
		handle:              handle,
		claims:              claims{tracker: handle.SharedDRAManager().ResourceClaims(), pods: pods.GetIndexer(), index: index},
		parked:              newParked(handle, pods.GetStore()),
		wide:                newPodSet(),
		groups:              newGroupMemories(),
		writesInBind:        sync.OnceValue(func() bool { return bindsFirst(handle) }),
		reportGroupSettings: sync.OnceFunc(func() { reportMissingGroupSettings(handle) }),
		comparesResources:   sync.OnceValue(func() bool { return filtersByResources(handle) }),
	}
	client.OnRecovery(plugin.parked.release)
	client.OnWakeup(plugin.activateWaiting)
	return plugin, nil
}
