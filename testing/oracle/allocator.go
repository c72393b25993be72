// What the structured allocator makes of a scenario: the question "allocate".

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// scenario is a cluster and the claims to place in it, all of them together on one node.
//
// Objects are taken as the API server would have stored them: nothing is defaulted.
type scenario struct {
	// Features are gates by upstream's names; what is absent has its default of 1.37.
	Features map[string]bool `json:"features,omitempty"`
	// Implementation is stable, incubating or experimental; empty is upstream's own choice.
	Implementation string                         `json:"implementation,omitempty"`
	Slices         []*resourceapi.ResourceSlice   `json:"slices"`
	TaintRules     []*resourceapi.DeviceTaintRule `json:"taintRules,omitempty"`
	Classes        classes                        `json:"classes"`
	// Allocated are claims with status.allocation.
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Nodes     []*v1.Node                   `json:"nodes"`
	// Node is the only node to try; without it every node is tried, each for itself.
	Node *string `json:"node,omitempty"`
	// MaxSteps ends the search on a node; 0 is no limit.
	MaxSteps int64 `json:"maxSteps,omitempty"`
	// TimeoutSeconds ends the search on a node; 0 is 20 seconds.
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
}

// allocation is the answer to a scenario; Error tells why there is no allocator at all.
type allocation struct {
	Error string                 `json:"error,omitempty"`
	Nodes map[string]nodeVerdict `json:"nodes,omitempty"`
}

// nodeVerdict is what Allocate returned for one node. Results is null where the claims do not fit.
type nodeVerdict struct {
	Results []resourceapi.AllocationResult `json:"results"`
	// Error is null, "node" (other nodes may fit), "fatal", "steps", "timeout" or "panic".
	Error   *string `json:"error"`
	Message string  `json:"message,omitempty"`
	// Steps counts the calls of upstream's recursive function.
	Steps int64 `json:"steps"`
}

// defaultGates are the gates that the allocator knows, with the defaults of 1.37.
var defaultGates = map[string]bool{
	"DRAAdminAccess":               true,
	"DRAConsumableCapacity":        true,
	"DRADerivedAttributes":         false,
	"DRADeviceBindingConditions":   true,
	"DRADeviceCompatibilityGroups": false,
	"DRADeviceTaintRules":          true,
	"DRADeviceTaints":              true,
	"DRAFractionalCapacityRange":   false,
	"DRAListTypeAttributes":        false,
	"DRAOptionalNodeOperations":    false,
	"DRAPartitionableDevices":      true,
	"DRAPrioritizedList":           true,
	"DRAResourceClaimDeviceStatus": true,
}

const defaultTimeout = 20 * time.Second

var errTooManySteps = errors.New("more steps than the question allows")

// classes is a DeviceClassLister.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass.resource.k8s.io %q not found", name)
}

func allocated(asked scenario) allocation {
	allocator, err := newAllocator(asked, cacheFor)
	if err != nil {
		return allocation{Error: err.Error()}
	}
	answer := allocation{Nodes: map[string]nodeVerdict{}}
	for _, node := range asked.Nodes {
		if asked.Node != nil && *asked.Node != node.Name {
			continue
		}
		answer.Nodes[node.Name] = verdictOn(node, allocator, asked)
	}
	if asked.Node != nil && len(answer.Nodes) == 0 {
		return allocation{Error: fmt.Sprintf("there is no node %q", *asked.Node)}
	}
	return answer
}

// newAllocator does what the DynamicResources plugin does in PreFilter.
func newAllocator(asked scenario, cache func(dracel.Features) *dracel.Cache) (structured.Allocator, error) {
	gates, err := gatesOf(asked.Features)
	if err != nil {
		return nil, err
	}
	if asked.Implementation == "" {
		structured.EnableAllocators()
	} else {
		structured.EnableAllocators(asked.Implementation)
	}
	cached := cache(dracel.Features{
		EnableConsumableCapacity: gates["DRAConsumableCapacity"],
		EnableListTypeAttributes: gates["DRAListTypeAttributes"],
	})
	published := asked.Slices
	if gates["DRADeviceTaints"] && gates["DRADeviceTaintRules"] {
		published = withTaintRules(published, asked.TaintRules)
	}
	state := stateOf(asked.Allocated, gates["DRAConsumableCapacity"])
	return structured.NewAllocator(
		context.Background(), allocatorFeatures(gates), state, asked.Classes, published, cached)
}

func gatesOf(asked map[string]bool) (map[string]bool, error) {
	gates := map[string]bool{}
	for name, enabled := range defaultGates {
		gates[name] = enabled
	}
	for name, enabled := range asked {
		if _, known := gates[name]; !known {
			return nil, fmt.Errorf("the allocator does not know the gate %q", name)
		}
		gates[name] = enabled
	}
	return gates, nil
}

// allocatorFeatures: AllocatorFeatures in the DynamicResources plugin.
func allocatorFeatures(gates map[string]bool) structured.Features {
	return structured.Features{
		AdminAccess:          gates["DRAAdminAccess"],
		CompatibilityGroups:  gates["DRADeviceCompatibilityGroups"],
		ConsumableCapacity:   gates["DRAConsumableCapacity"],
		DerivedAttributes:    gates["DRADerivedAttributes"],
		DeviceTaints:         gates["DRADeviceTaints"],
		ListTypeAttributes:   gates["DRAListTypeAttributes"],
		PartitionableDevices: gates["DRAPartitionableDevices"],
		PrioritizedList:      gates["DRAPrioritizedList"],

		FractionalCapacityRange: gates["DRAFractionalCapacityRange"],
		OptionalNodeOperations:  gates["DRAOptionalNodeOperations"],
		DeviceBindingAndStatus: gates["DRADeviceBindingConditions"] &&
			gates["DRAResourceClaimDeviceStatus"],
	}
}

// stateOf gathers who holds what: foreachAllocatedDevice in the plugin's allocateddevices.go.
func stateOf(claims []*resourceapi.ResourceClaim, consumable bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if !consumable || result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(
					structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

// withTaintRules adds the rules' taints as the ResourceSlice tracker does, here in the rules' order.
func withTaintRules(
	published []*resourceapi.ResourceSlice, rules []*resourceapi.DeviceTaintRule,
) []*resourceapi.ResourceSlice {
	tainted := slices.Clone(published)
	for _, rule := range rules {
		chosen := rule.Spec.DeviceSelector
		if chosen == nil {
			continue
		}
		for i, slice := range tainted {
			if !matches(chosen.Driver, slice.Spec.Driver) || !matches(chosen.Pool, slice.Spec.Pool.Name) {
				continue
			}
			slice = slice.DeepCopy()
			for d := range slice.Spec.Devices {
				device := &slice.Spec.Devices[d]
				if matches(chosen.Device, device.Name) {
					device.Taints = append(device.Taints, rule.Spec.Taint)
				}
			}
			tainted[i] = slice
		}
	}
	return tainted
}

func matches(wanted *string, found string) bool {
	return wanted == nil || *wanted == found
}

var celCaches = map[dracel.Features]*dracel.Cache{}

// cacheFor keeps what was compiled from question to question.
func cacheFor(features dracel.Features) *dracel.Cache {
	if celCaches[features] == nil {
		celCaches[features] = dracel.NewCache(1000, features)
	}
	return celCaches[features]
}

func verdictOn(node *v1.Node, allocator structured.Allocator, asked scenario) (verdict nodeVerdict) {
	ctx, cancel := bounded(asked)
	defer cancel()
	before := stepsOf(allocator)
	// Objects that the API server would refuse can bring upstream down; that is an answer, too.
	defer func() {
		if cause := recover(); cause != nil {
			kind := "panic"
			verdict = nodeVerdict{Error: &kind, Message: fmt.Sprint(cause)}
		}
	}()
	results, err := allocator.Allocate(ctx, node, asked.Claims)
	verdict = nodeVerdict{Results: results, Steps: stepsOf(allocator) - before}
	if err != nil {
		kind := errorKind(err)
		verdict.Error, verdict.Message = &kind, err.Error()
	}
	return verdict
}

func errorKind(err error) string {
	switch {
	case errors.Is(err, errTooManySteps):
		return "steps"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return "node"
	default:
		return "fatal"
	}
}

// bounded is a context that ends when the question's time or steps are used up.
func bounded(asked scenario) (context.Context, context.CancelFunc) {
	timeout := time.Duration(asked.TimeoutSeconds * float64(time.Second))
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	if asked.MaxSteps == 0 {
		return ctx, cancel
	}
	return &stepLimit{Context: ctx, left: asked.MaxSteps}, cancel
}

// stepLimit ends after so many questions whether it has ended: upstream asks once per step.
type stepLimit struct {
	context.Context
	left int64
}

func (s *stepLimit) Err() error {
	if s.left--; s.left < 0 {
		return errTooManySteps
	}
	return s.Context.Err()
}

// stepsOf calls GetStats, which every implementation has; its type is internal to upstream.
func stepsOf(allocator structured.Allocator) int64 {
	stats := reflect.ValueOf(allocator).MethodByName("GetStats").Call(nil)[0]
	return stats.FieldByName("NumAllocateOneInvocations").Int()
}
