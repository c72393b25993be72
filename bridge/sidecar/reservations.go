package sidecar

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reservations are those in force, and what the sidecar may not know of them yet.
//
// Reserve runs in the scheduler's serial cycle, so it costs no call: a reservation gets a number,
// and requests carry it until an answer acknowledges that number or a higher one.
type reservations struct {
	mutex        sync.Mutex
	instance     string // Of the sidecar that acknowledged.
	last         int64
	acknowledged int64
	inForce      map[types.UID]Reservation
	// Pods whose reservation the scheduler gave up and may make again. They are in force until then.
	parked     map[types.UID]struct{}
	unreserved map[int64]struct{}
}

func newReservations() *reservations {
	return &reservations{
		inForce:    map[types.UID]Reservation{},
		parked:     map[types.UID]struct{}{},
		unreserved: map[int64]struct{}{},
	}
}

// add numbers a reservation. A pod has one at most: a second one takes the place of the first.
func (r *reservations) add(pod *v1.Pod, node string, group *GroupReference) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.addLocked(pod, node, group)
}

// addMember numbers a reservation for a member of a group, unless the same one is parked. That one is
// resumed: under another number its devices would be free for others in between.
func (r *reservations) addMember(pod *v1.Pod, node string, group *GroupReference) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	reservation := r.inForce[pod.UID]
	if _, isParked := r.parked[pod.UID]; isParked && reservation.Node == node && reservation.isOf(group) {
		delete(r.parked, pod.UID)
		return
	}
	r.addLocked(pod, node, group)
}

// isOf reports whether the reservation was made in a cycle of the group.
func (r *Reservation) isOf(group *GroupReference) bool {
	return r.Group != nil && group != nil && r.Group.UID == group.UID
}

// park keeps a pod's reservation in force until it is resumed, or parking ends.
func (r *reservations) park(pod types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, ok := r.inForce[pod]; ok {
		r.parked[pod] = struct{}{}
	}
}

// endParking gives up all reservations that are parked.
func (r *reservations) endParking() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for pod := range r.parked {
		r.dropLocked(pod)
	}
}

func (r *reservations) addLocked(pod *v1.Pod, node string, group *GroupReference) {
	r.dropLocked(pod.UID)
	r.last++
	r.inForce[pod.UID] = Reservation{
		Number:       r.last,
		PodUID:       pod.UID,
		PodNamespace: pod.Namespace,
		PodName:      pod.Name,
		Node:         node,
		Group:        group,
	}
}

// drop gives a pod's reservation up and returns its number, 0 without any; later requests say so
// until one of them is answered.
func (r *reservations) drop(pod types.UID) int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.dropLocked(pod)
}

func (r *reservations) dropLocked(pod types.UID) int64 {
	reservation, ok := r.inForce[pod]
	if !ok {
		return 0
	}
	delete(r.inForce, pod)
	delete(r.parked, pod)
	// Even one that no answer acknowledged may be under way in a request.
	r.unreserved[reservation.Number] = struct{}{}
	return reservation.Number
}

// settle forgets a reservation whose pod is bound: its claims say in the API what it said.
func (r *reservations) settle(pod types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.inForce, pod)
	delete(r.parked, pod)
}

// fill writes into a header what the sidecar may not know, or with everything all that is in force.
func (r *reservations) fill(header *Header, everything bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	header.Reservations = nil
	for _, reservation := range r.inForce {
		if everything || reservation.Number > r.acknowledged {
			header.Reservations = append(header.Reservations, reservation)
		}
	}
	slices.SortFunc(header.Reservations, func(a, b Reservation) int { return int(a.Number - b.Number) })
	header.Unreserved = nil
	for number := range r.unreserved {
		header.Unreserved = append(header.Unreserved, number)
	}
	slices.Sort(header.Unreserved)
}

// answered takes note of an answer with status 200 to a request that carried these numbers. What a
// sidecar says that is gone is not true of the one that came after it.
func (r *reservations) answered(instance string, acknowledged int64, unreserved []int64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if instance != r.instance {
		return
	}
	// Never beyond what was given out, whatever a sidecar says, and never back.
	r.acknowledged = max(r.acknowledged, min(acknowledged, r.last))
	for _, number := range unreserved {
		delete(r.unreserved, number)
	}
}

// greeted takes note of the sidecar that answers from now on: a new one has acknowledged nothing.
func (r *reservations) greeted(instance string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if instance != r.instance {
		r.instance, r.acknowledged = instance, 0
	}
}
