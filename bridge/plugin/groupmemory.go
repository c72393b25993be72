package plugin

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drawbridge.internal/bridge/sidecar"
)

// maxGroups bounds what is remembered of groups, of which most end without a word to us.
const maxGroups = 1_000

// groupMemory is what the runs over a group teach for the next one.
type groupMemory struct {
	last     *groupCycle // Of the last run that was no what-if, until it was learned from.
	excluded map[types.UID][]string
	inARow   int // Placements that were turned down since the group was answered otherwise.
}

// learn takes note of what other filters turned down in the last run, and reports whether they did.
func (m *groupMemory) learn() bool {
	last := m.last
	m.last = nil
	if last == nil {
		return false
	}
	nodes := last.turnedDown()
	if len(nodes) == 0 && last.verdict == sidecar.Fits {
		m.forgive()
	}
	for pod, node := range nodes {
		if m.excluded == nil {
			m.excluded = map[types.UID][]string{}
		}
		if !slices.Contains(m.excluded[pod], node) {
			m.excluded[pod] = append(m.excluded[pod], node)
			slices.Sort(m.excluded[pod])
		}
	}
	return len(nodes) > 0
}

// forgive has all nodes tried again.
func (m *groupMemory) forgive() { m.excluded, m.inARow = nil, 0 }

// groupMemories are those of all groups. Only the scheduler's serial cycle uses them.
type groupMemories struct {
	groups map[types.UID]*groupMemory
	// rests has until when no victim is looked for, since that took too long, by namespace: for its next group it
	// would take as long.
	rests map[string]time.Time
}

func newGroupMemories() *groupMemories {
	return &groupMemories{groups: map[types.UID]*groupMemory{}, rests: map[string]time.Time{}}
}

// rest has no victim looked for, for groups of a namespace, until a time.
func (m *groupMemories) rest(namespace string, now, until time.Time) {
	maps.DeleteFunc(m.rests, func(_ string, until time.Time) bool { return !now.Before(until) })
	m.rests[namespace] = until
}

// isResting reports whether no victim is looked for now.
func (m *groupMemories) isResting(namespace string, now time.Time) bool {
	return now.Before(m.rests[namespace])
}

// of returns the memory of a group. When there are too many all are forgotten: they save attempts, no more.
func (m *groupMemories) of(group types.UID) *groupMemory {
	memory, isKnown := m.groups[group]
	if !isKnown {
		if len(m.groups) >= maxGroups {
			clear(m.groups)
		}
		memory = &groupMemory{}
		m.groups[group] = memory
	}
	return memory
}
