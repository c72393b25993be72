package plugin

import (
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
	// evictsAgain is until when no victim is looked for, since it took too long.
	evictsAgain time.Time
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
type groupMemories struct{ groups map[types.UID]*groupMemory }

func newGroupMemories() *groupMemories {
	return &groupMemories{groups: map[types.UID]*groupMemory{}}
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
