// Command arrivals prints the order in which the pods of the openb trace arrive in the artefact of "Beware of
// Fragmentation" (USENIX ATC 2023): hkust-adsl/kubernetes-scheduler-simulator at 8f3d6417, SortClusterPods and
// TunePodsByNodeTotalResource of pkg/simulator/simulator.go. The order is that of Go's math/rand.
//
//	arrivals SEED MILLI
//
// It reads a line for each pod, sorted by name: the thousandths of one GPU and of all GPUs that it requests. It prints
// the number of a pod's line, from 0, for each arrival, until they request MILLI thousandths of GPUs.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
)

type pod struct{ line, milli, total int }

func main() {
	if len(os.Args) != 3 {
		fail("arrivals: found %d arguments, expected SEED and MILLI", len(os.Args)-1)
	}
	seed, wanted := number(os.Args[1]), number(os.Args[2])
	var pods []pod
	for {
		next := pod{line: len(pods)}
		if _, err := fmt.Scan(&next.milli, &next.total); err != nil {
			break
		}
		pods = append(pods, next)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, arrival := range arrivals(pods, wanted, rand.New(rand.NewSource(int64(seed)))) {
		fmt.Fprintln(out, arrival.line)
	}
}

func arrivals(list []pod, wanted int, chance *rand.Rand) []pod {
	chance.Int() // The artefact logs one number first.
	arriving := append([]pod{}, list...)
	chance.Shuffle(len(arriving), func(i, j int) { arriving[i], arriving[j] = arriving[j], arriving[i] })
	requested := 0
	for _, each := range arriving {
		requested += each.total
	}
	if requested >= wanted {
		for requested > wanted {
			index := chance.Intn(len(arriving))
			requested -= arriving[index].total
			arriving = append(arriving[:index], arriving[index+1:]...)
		}
		return arriving
	}
	for {
		clone := list[chance.Intn(len(list))]
		// The artefact counts one GPU of a pod with several here.
		if requested+clone.milli > wanted {
			return arriving
		}
		requested += clone.total
		arriving = append(arriving, clone)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		fail("arrivals: %q is no number", text)
	}
	return value
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(2)
}
