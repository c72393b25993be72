// How long the structured allocator takes for a scenario: the question "bench".

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/util/workqueue"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// measurement asks for a scenario on every node, as for a pod that fits nowhere: kube-scheduler
// then looks at all nodes, with so many workers.
type measurement struct {
	Scenario *scenario `json:"scenario,omitempty"`
	// File holds the scenario where it is too large for a line.
	File    string `json:"file,omitempty"`
	Workers int    `json:"workers"`
	Rounds  int    `json:"rounds"`
}

// timing has one entry per round. The first round also compiles the selectors.
type timing struct {
	Error string `json:"error,omitempty"`
	// SetupSeconds: what holds which device, and NewAllocator.
	SetupSeconds []float64 `json:"setupSeconds"`
	// Seconds: Allocate on every node.
	Seconds []float64 `json:"seconds"`
	// Steps, and how many nodes came to which end, are of the last round.
	Steps int64          `json:"steps"`
	Ends  map[string]int `json:"ends"`
}

// schedulerCacheSize is how many compiled expressions the DynamicResources plugin keeps.
const schedulerCacheSize = 10

// ends are fit, unfit and the kinds of errors.
var ends = []string{"fit", "unfit", "node", "fatal", "steps", "timeout"}

func measured(asked measurement) timing {
	timed, err := asked.read()
	if err != nil {
		return timing{Error: err.Error()}
	}
	var shared *dracel.Cache
	cache := func(features dracel.Features) *dracel.Cache {
		if shared == nil {
			shared = dracel.NewCache(schedulerCacheSize, features)
		}
		return shared
	}
	var result timing
	for range asked.Rounds {
		if err := result.add(*timed, asked.Workers, cache); err != nil {
			return timing{Error: err.Error()}
		}
	}
	return result
}

func (m measurement) read() (*scenario, error) {
	if m.Scenario != nil {
		return m.Scenario, nil
	}
	content, err := os.ReadFile(m.File)
	if err != nil {
		return nil, err
	}
	found := &scenario{}
	return found, strictly(content, found)
}

func (t *timing) add(asked scenario, workers int, cache func(dracel.Features) *dracel.Cache) error {
	start := time.Now()
	allocator, err := newAllocator(asked, cache)
	if err != nil {
		return err
	}
	ready := time.Now()
	counts := make(map[string]*atomic.Int64, len(ends))
	for _, end := range ends {
		counts[end] = &atomic.Int64{}
	}
	workqueue.ParallelizeUntil(context.Background(), workers, len(asked.Nodes), func(i int) {
		ctx, cancel := bounded(asked)
		defer cancel()
		results, err := allocator.Allocate(ctx, asked.Nodes[i], asked.Claims)
		counts[endOf(results, err)].Add(1)
	}, workqueue.WithChunkSize(chunkSize(len(asked.Nodes), workers)))
	done := time.Now()

	t.SetupSeconds = append(t.SetupSeconds, ready.Sub(start).Seconds())
	t.Seconds = append(t.Seconds, done.Sub(ready).Seconds())
	t.Steps = stepsOf(allocator)
	t.Ends = map[string]int{}
	for end, count := range counts {
		if count := int(count.Load()); count > 0 {
			t.Ends[end] = count
		}
	}
	return nil
}

func endOf(results []resourceapi.AllocationResult, err error) string {
	switch {
	case err != nil:
		return errorKind(err)
	case results == nil:
		return "unfit"
	default:
		return "fit"
	}
}

// chunkSize is how many nodes a worker takes at once: kube-scheduler's Parallelizer.
func chunkSize(nodes, workers int) int {
	size := int(math.Sqrt(float64(nodes)))
	return max(1, min(size, nodes/workers+1))
}

// strictly decodes JSON and refuses fields that the types do not have.
func strictly(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
